"""host.hardware_log on made EDAC trees, and host.boots on this machine."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from probes.catalog import host_boots, host_hardware_log
from probes.core import Capture, ParseError, interpret
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from tests.support.collectors import capture_here, old_and_new_pythons

EDAC = host_hardware_log.PROBE
ROOT = "/sys/devices/system/edac/mc"


def module(root: Path, controller: str, name: str, corrected: int, uncorrected: int, label: str = "") -> None:
    folder = root / controller / name
    folder.mkdir(parents=True)
    (folder / "dimm_ce_count").write_text(f"{corrected}\n")
    (folder / "dimm_ue_count").write_text(f"{uncorrected}\n")
    (folder / "dimm_label").write_text(f"{label}\n")


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_errors_are_told_by_memory_module(tmp_path: Path, python: str) -> None:
    module(tmp_path, "mc0", "dimm0", 0, 0, "CPU_SrcID#0_MC#0_Chan#0_DIMM#0")
    module(tmp_path, "mc0", "dimm2", 41, 0, "CPU_SrcID#0_MC#0_Chan#1_DIMM#0")
    module(tmp_path, "mc1", "dimm0", 0, 2)
    (tmp_path / "mc2").mkdir()
    (tmp_path / "mc2/ce_count").write_text("3\n")
    log = host_hardware_log.parse(capture_here(EDAC, python, instead={ROOT: str(tmp_path)}).text)
    assert [(one.kind, one.where, one.count) for one in log.errors] == [
        ("corrected", "mc0 CPU_SrcID#0_MC#0_Chan#1_DIMM#0", 41), ("counted", "mc1 dimm0", 2), ("corrected", "mc2", 3)
    ]  # fmt: skip


def test_a_count_since_boot_is_a_doubt_and_no_verdict(tmp_path: Path) -> None:
    module(tmp_path, "mc0", "dimm1", 0, 1)
    capture = capture_here(EDAC, instead={ROOT: str(tmp_path)})
    one = seen(interpret(EDAC, capture), "gpu-1: host.hardware_log")
    assert [(finding.code, finding.severity) for finding in one.findings] == [("host.hardware_counted", "warn")]
    ranked = diagnose([one], ["gpu-1"]).ranked
    share = next(each.probability for each in ranked if each.hypothesis.cause == "host.machine_check")
    assert 0.05 < share < 0.8


@pytest.mark.parametrize(
    ("kind", "more", "codes"),
    [
        ("ce", 400, {"host.hardware_corrected": "info", "host.hardware_rising": "warn"}),
        ("ue", 1, {"host.hardware_corrected": "info", "host.hardware_counted": "warn", "host.hardware_error": "bad"}),
    ],
)
def test_errors_that_become_more_while_it_looks_are_of_now(
    tmp_path: Path, kind: str, more: int, codes: dict[str, str]
) -> None:
    module(tmp_path, "mc0", "dimm1", 9000, 0)
    counted = tmp_path / f"mc0/dimm1/dimm_{kind}_count"
    before = int(counted.read_text())
    ended = threading.Event()

    def rise() -> None:
        for step in range(200):
            replaced = counted.with_name("next")
            replaced.write_text(f"{before + more * (step + 1)}\n")
            replaced.rename(counted)
            if ended.wait(0.2):
                return

    thread = threading.Thread(target=rise)
    thread.start()
    capture = capture_here(EDAC, instead={ROOT: str(tmp_path)})
    ended.set()
    thread.join()
    one = seen(interpret(EDAC, capture), "gpu-1: host.hardware_log")
    assert {finding.code: finding.severity for finding in one.findings} == codes
    shares = {each.hypothesis.cause: each.probability for each in diagnose([one], ["gpu-1"]).ranked}
    assert (shares["host.machine_check"] > 0.5) == (kind == "ue"), "corrected ones cost time, and end nothing"


def test_a_node_without_an_edac_driver_says_so(tmp_path: Path) -> None:
    capture = capture_here(EDAC, instead={ROOT: str(tmp_path / "none")})
    assert capture.outcome == "absent" and "EDAC" in capture.why


def test_corrected_errors_alone_find_nothing(tmp_path: Path) -> None:
    module(tmp_path, "mc0", "dimm1", 9000, 0)
    one = seen(interpret(EDAC, capture_here(EDAC, instead={ROOT: str(tmp_path)})), "gpu-1: host.hardware_log")
    assert diagnose([one], ["gpu-1"]).verdict.hypothesis.cause in ("none", "unknown")


@pytest.mark.parametrize("row", ['{"where": "mc0"}', '{"where": 1, "corrected": 0, "uncorrected": 0}', "x"])
def test_what_the_collector_does_not_write_is_refused(row: str) -> None:
    with pytest.raises(ParseError):
        host_hardware_log.parse(f"==> edac <==\n{row}\n")


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_the_time_of_the_boot_is_the_kernels(python: str) -> None:
    boots = host_boots.parse(capture_here(host_boots.PROBE, python).text)
    assert boots.booted is not None and boots.uptime_s is not None
    assert abs(time.time() - boots.uptime_s - boots.booted) < 5
    assert abs(time.clock_gettime(time.CLOCK_BOOTTIME) - boots.uptime_s) < 5


def test_a_node_that_is_up_for_minutes_where_others_run_for_weeks_is_told() -> None:
    """20 min against 40 days."""
    text = "==> /proc/stat <==\nbtime {at}\n\n==> /proc/uptime <==\n{up}.10 9.0\n"
    now, short, long = 1_796_000_000, 1200, 3_456_000
    ups = {"gpu-1": long, "gpu-2": short, "gpu-3": long, "gpu-4": long}
    readings = [
        seen(
            interpret(host_boots.PROBE, Capture(node, "host.boots", "ok", text.format(at=now - up, up=up).encode())),
            f"{node}: host.boots",
        )
        for node, up in ups.items()
    ]
    first = diagnose(readings, list(ups)).ranked
    named = [one.hypothesis for one in first if one.hypothesis.cause == "host.rebooted"]
    assert [one.subject.get("node") for one in named] == ["gpu-2"]
