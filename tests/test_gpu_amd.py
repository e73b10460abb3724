"""gpu.amd: AMD GPUs from sysfs alone, on this machine's Pythons and over real sshds. No GPU: the files are made as the
kernel's source prints them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from probes import catalog, suites
from probes.catalog.gpu.facts import GpuState
from probes.catalog.gpu_amd import PROBE
from probes.core import Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from tests.support import amd_gpus
from tests.support.amd_gpus import BUSES, HANGS
from tests.support.asking import ask, nothing_left
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.sshd_nodes import Lab

BROKEN = {"ras/umc_err_count": "ue: 2\nce: 40\nde: 1", "ras/gpu_vram_bad_pages": "0x01ff23ab : 0x00001000 : P"}
NARROW = {"current_link_width": "8"}

# This machine's own kernel log may tell of anything.
QUIET_KERNEL = "#!/bin/sh\necho '2025-03-03T08:00:01,000000+00:00 usb 1-1: new high-speed USB device number 2'\n"


def told(root: Path, python: str = "") -> Reading:
    """What the probe tells where `root` holds the PCI bus and /sys/class."""
    instead = {"/sys/bus/pci/devices": str(root / "pci"), "/sys/class/kfd/kfd": str(root / "class/kfd/kfd")}
    return catalog.read(capture_here(PROBE, python or old_and_new_pythons()[0], instead=instead))


def codes(reading: Reading) -> list[tuple[str, Any]]:
    return [(finding.code, finding.subject.get("gpu")) for finding in reading.findings]


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_a_healthy_gpu_is_told_in_full_and_without_a_finding(tmp_path: Path, python: str) -> None:
    amd_gpus.make(tmp_path, {})
    reading = told(tmp_path, python)
    assert (reading.outcome, reading.findings) == ("ok", ()), reading.capture.why or reading.parse_error
    state: GpuState = reading.facts
    gpu = state.gpus[0]
    assert (state.on_pci, gpu.bus_id, gpu.index, gpu.name) == (2, BUSES[0], 0, "AMD Instinct MI300X OAM")
    assert (gpu.uuid, gpu.vbios) == ("000000009a7c1d00", "113-M3000100-102")
    assert (gpu.utilisation_percent, gpu.temperature_c, gpu.sm_mhz, gpu.sm_max_mhz) == (97, 71, 2100, 2100)
    assert (gpu.power_w, gpu.power_limit_w, gpu.power_default_w) == (612.0, 750.0, 750.0)
    assert (gpu.memory_used_mib, gpu.memory_total_mib) == (143_360, 196_592)
    assert (gpu.ecc_uncorrected, gpu.ecc_corrected, gpu.remap_pending) == (0, 3, False)
    assert (gpu.pcie_width, gpu.pcie_width_max, gpu.pcie_gen, gpu.pcie_gen_max) == (16, 16, 5, 5)
    assert gpu.pids == (4711,) and state.gpus[1].pids == (), "memory alone, where a queue is told, is no computing"


def test_errors_of_memory_and_half_of_the_lanes_are_found_on_their_gpus(tmp_path: Path) -> None:
    amd_gpus.make(tmp_path, BROKEN, NARROW)
    reading = told(tmp_path)
    assert codes(reading) == [("gpu.ecc_uncorrected", 1), ("gpu.remap_pending", 1), ("gpu.pcie_width", 2)]
    assert reading.facts.gpus[1].ecc_uncorrected == 2 and reading.facts.gpus[1].ecc_corrected == 40


def test_a_gpu_that_does_not_answer_costs_its_own_part_only(tmp_path: Path) -> None:
    amd_gpus.make(tmp_path, {"gpu_busy_percent": HANGS})
    began = time.monotonic()
    reading = told(tmp_path)
    assert time.monotonic() - began < 7
    assert codes(reading) == [("gpu.no_answer", 1)]
    assert [gpu.answered for gpu in reading.facts.gpus] == [True, False]


def test_a_gpu_off_the_bus_is_lost(tmp_path: Path) -> None:
    """Every register reads all ones then, that of the width too."""
    amd_gpus.make(tmp_path, {"current_link_width": "63", "max_link_width": "63"})
    assert codes(told(tmp_path)) == [("gpu.lost", 1)]


def test_a_sleeping_gpu_is_not_woken_and_one_without_a_driver_is_named(tmp_path: Path) -> None:
    amd_gpus.make(tmp_path, {"power/runtime_status": "suspended", "gpu_busy_percent": HANGS})
    (tmp_path / "pci" / BUSES[0] / "driver").unlink()
    reading = told(tmp_path)
    assert {(finding.code, finding.severity) for finding in reading.findings} == {
        ("gpu.not_asked", "info"),
        ("gpu.not_asked", "warn"),
    }


def test_a_node_without_amd_gpus_says_so(tmp_path: Path) -> None:
    (tmp_path / "pci").mkdir()
    (tmp_path / "class/kfd/kfd").mkdir(parents=True)
    reading = told(tmp_path)
    assert (reading.outcome, "vendor 0x1002" in reading.capture.why) == ("absent", True)


@pytest.mark.needs_root
def test_the_broken_gpu_of_one_node_leads_over_its_healthy_twin(lab: Lab) -> None:
    """The whole suite over real sshds: one GPU counts uncorrectable errors, one more of the node does not answer."""
    for name, sick in (("well", ({}, {})), ("sick", (BROKEN, {"gpu_busy_percent": HANGS}))):
        place = lab.folder / f"amd-{name}"
        amd_gpus.make(place, *sick)
        mounts = f"mount --bind {place}/pci /sys/bus/pci/devices\nmount --bind {place}/class /sys/class"
        lab.start(name, mounts=mounts, tools={"dmesg": QUIET_KERNEL, "journalctl": "#!/bin/sh\nexit 1\n"})
    captures, ends = ask(lab, ["well", "sick"], suites.SUITES["gpu"].plan(), node_s=25, run_s=40)
    assert {end.reason for end in ends.values()} == {""}
    readings = {key: catalog.read(capture) for key, capture in captures.items()}
    assert readings["well", "gpu.amd"].findings == ()
    assert codes(readings["sick", "gpu.amd"]) == [
        ("gpu.ecc_uncorrected", 1), ("gpu.remap_pending", 1), ("gpu.no_answer", 2)]  # fmt: skip
    assert readings["sick", "gpu.state"].outcome == "absent"
    best = diagnose([seen(one) for one in readings.values()], ("well", "sick")).verdict.hypothesis
    assert best.subject.get("node") == "sick" and best.cause in ("gpu.memory_error", "gpu.driver_hang")
    nothing_left(lab)
