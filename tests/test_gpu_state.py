"""gpu.state beyond its recorded outputs: the NVML way against a library built here, and how silence is told.

Needs cc. No GPU: what is tested is that our ctypes layouts agree with NVIDIA's own pynvml on one and the same library,
not that a real driver answers.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sysconfig
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from probes import runner
from probes.catalog.gpu.facts import Gpu
from probes.catalog.gpu_state import PROBE, findings, parse
from probes.core import ParseError
from probes.transport.plan import Plan

FIXTURES = Path(__file__).parent / "fixtures" / "gpu.state"
BUSES = ["0000:19:00.0", "0000:3b:00.0", "0000:4c:00.0", "0000:5d:00.0", "0000:6e:00.0"]


def _works(python: str) -> bool:
    return subprocess.run([python, "-I", "-S", "-c", "import ctypes"], capture_output=True).returncode == 0


PYTHONS = [
    path
    for minor in range(6, 15)
    for path in [
        shutil.which(f"python3.{minor}"),
        *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")),
    ]
    if path and ".pyenv/shims" not in path and _works(path)
]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-nostdlib", "-w", "-o", library, FIXTURES / "fake_nvml.c"], check=True)
    return folder


def _make_bus(folder: Path) -> Path:
    """A PCI bus with the five GPUs of the library, a network card, an NVSwitch and a GPU that belongs to a VM."""
    rows = [(bus, "0x10de", "0x030200", "nvidia", "16") for bus in BUSES]
    rows += [("0000:1a:00.0", "0x15b3", "0x020700", "mlx5_core", "16")]
    rows += [
        ("0000:05:00.0", "0x10de", "0x068000", "nvidia", "2"),
        ("0000:f0:00.0", "0x10de", "0x030000", "vfio-pci", "16"),
    ]
    for name, vendor, kind, driver, width in rows:
        device = folder / name
        device.mkdir(parents=True)
        for file, text in (
            ("vendor", vendor),
            ("class", kind),
            ("current_link_width", width),
            ("max_link_width", "16"),
        ):
            (device / file).write_text(text + "\n")
        (device / "driver").symlink_to(f"/nowhere/drivers/{driver}")
    return folder


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    return _make_bus(tmp_path / "pci")


def _run(
    python: str, bus: Path, folder: Path | str, site: tuple[str, ...] = (), path: str = "/usr/bin:/bin"
) -> dict[str, Any]:
    """The collector as a node would run it, with `bus` in place of /sys/bus/pci/devices."""
    plan = Plan((PROBE,), deadline_s=12.0, parallel=1, site=site)
    program = plan.source(watch_stdin=False).replace("/sys/bus/pci/devices", str(bus))
    env = {"PATH": path, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([python, "-I", "-S", "-"], input=program.encode(), capture_output=True, timeout=30, env=env)
    for line in done.stdout.decode().splitlines():
        told: dict[str, Any] = json.loads(line.removeprefix(runner.MARK))
        if told["kind"] == "capture":
            if "z" in told:
                told["out"] = zlib.decompress(base64.b64decode(told.pop("z"))).decode()
            return told
    raise AssertionError(done.stderr.decode())


@pytest.fixture(scope="session")
def answers(library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each Python brings back, and "pynvml"; all at once, because the stuck GPU costs each five seconds."""
    bus = _make_bus(tmp_path_factory.mktemp("bus") / "pci")
    site = tmp_path_factory.mktemp("site")
    shutil.copy(Path(sysconfig.get_paths()["purelib"]) / "pynvml.py", site)
    with ThreadPoolExecutor(len(PYTHONS) + 1) as pool:
        told = {python: pool.submit(_run, python, bus, library) for python in PYTHONS}
        told["pynvml"] = pool.submit(_run, PYTHONS[-1], bus, library, (str(site),))
        done = {name: answer.result() for name, answer in told.items()}
    assert [path.name for path in site.iterdir()] == ["pynvml.py"], "the collector left something on the node"
    return done


def _steady(gpu: Gpu) -> Gpu:
    """Without what depends on how long a second took."""
    return dataclasses.replace(gpu, looks_s=None, held={name: round(share, -1) for name, share in gpu.held.items()})


@pytest.mark.parametrize("python", PYTHONS)
def test_every_python_reads_the_same_from_nvml(python: str, answers: dict[str, dict[str, Any]]) -> None:
    told = answers[python]
    assert told["outcome"] == "ok", told
    state = parse(told["out"])
    good, bad, lost, stuck, dying, passed = state.gpus
    assert [gpu.bus_id for gpu in state.gpus] == [*BUSES, "0000:f0:00.0"]
    assert (state.driver, state.on_pci) == ("590.48.01", 6)
    assert (good.name, good.uuid, good.index, good.pstate) == ("NVIDIA H100 80GB HBM3", "GPU-1", 0, "P0")
    assert (good.power_w, good.power_limit_w, good.power_default_w) == (68.05, 700.0, 700.0)
    assert (good.temperature_c, good.sm_mhz, good.sm_max_mhz, good.utilisation_percent) == (29, 345, 1980, 100)
    assert (good.memory_used_mib, good.memory_total_mib) == (19818, 81559)
    assert (good.ecc_corrected, good.ecc_uncorrected, good.sram_threshold_exceeded) == (5_000_000_000, 0, False)
    assert (good.remapped_corrected, good.remapped_uncorrected, good.remap_pending, good.remap_failed) == (
        3,
        0,
        False,
        False,
    )
    assert (good.pcie_gen, good.pcie_gen_max, good.pcie_width, good.pcie_width_max) == (1, 5, 16, 16)
    assert (good.mig, good.persistence, good.recovery_action, good.reasons) == (False, True, "none", ("gpu_idle",))
    assert (good.fabric_state, good.fabric_status, good.pids) == ("completed", "success", (11327, 11345))
    assert good.reason_us["hw_power_brake_slowdown"] == 0
    assert bad.reason_us["hw_power_brake_slowdown"] == 90_000_000_000
    assert (bad.recovery_action, bad.reasons) == ("drain and reset", ("hw_slowdown", "hw_power_brake_slowdown"))
    assert (good.vbios, good.gsp, good.memory_c, good.nvlinks) == ("96.00.A5.00.01", "590.48.01", 48, 17)
    assert (good.slowdown_c, good.memory_max_c, bad.nvlinks) == (87, 95, 17)
    assert (good.ecc, good.ecc_pending, bad.ecc, bad.ecc_pending) == (True, True, False, True)
    assert (good.mig, good.mig_pending, bad.mig, bad.mig_pending) == (False, False, False, True)
    assert (lost.answered, lost.silence) == (False, "GPU is lost")
    assert (stuck.answered, stuck.outcome, stuck.state, stuck.index) == (False, "timeout", "D", 3)
    assert (dying.answered, dying.name, dying.missing["power_w"], dying.power_w) == (True, None, "GPU is lost", None)
    assert (passed.outcome, passed.silence, passed.index) == ("skipped", "not asked: it is bound to vfio-pci", None)


@pytest.mark.parametrize("python", [*PYTHONS, "pynvml"])
def test_what_rises_between_two_looks_is_told_apart_from_totals(
    python: str, answers: dict[str, dict[str, Any]]
) -> None:
    """The library counts 24 errors of a link, 50 PCIe replays, 60 corrected ECC errors and 0.6 s of power brake more at
    the second look."""
    good, bad = parse(answers[python]["out"]).gpus[:2]
    assert good.looks_s and bad.looks_s and 0.9 < bad.looks_s < 3
    assert (good.pcie_replays, good.pcie_replays_more, bad.pcie_replays_more) == (100, 0, 50)
    assert good.held["hw_power_brake_slowdown"] == 0
    assert bad.held["hw_power_brake_slowdown"] == pytest.approx(60 / bad.looks_s, abs=0.1)
    assert good.nvlink_errors == {"link 3 replay": 24}
    assert bad.nvlink_errors == {"link 3 receive error": 24}, "counted in fields of each link, as from Blackwell on"
    assert (good.ecc_corrected_more, bad.ecc_corrected_more) == (0, 60)


def test_a_power_brake_that_came_and_went_between_the_looks_is_seen() -> None:
    """Both samples of the active reasons may miss it; the driver's counter (ns) does not."""
    told = {"values": {"reasons": 1, "field_271": 0, "again": {"s": 1.0, "field_271": 400_000_000}}, "errors": {}}
    gpu = parse(f"==> golden15/nvml {BUSES[0]} <==\n{json.dumps(told)}\n").gpus[0]
    assert (gpu.reasons, gpu.held["hw_power_brake_slowdown"]) == (("gpu_idle", "hw_power_brake_slowdown"), 40.0)
    flash = {"values": {"reasons": 1, "field_271": 0, "again": {"s": 1.0, "field_271": 20_000_000}}, "errors": {}}
    assert parse(f"==> golden15/nvml {BUSES[0]} <==\n{json.dumps(flash)}\n").gpus[0].reasons == ("gpu_idle",)


def test_our_layouts_agree_with_pynvml(answers: dict[str, dict[str, Any]]) -> None:
    """NVIDIA's own binding and our ctypes calls, on one library: every value and every error code is the same."""
    ours = answers[PYTHONS[-1]]["out"]
    theirs = answers["pynvml"]["out"]
    assert '"way": "libnvidia-ml.so.1"' in ours
    assert '"way": "pynvml"' in theirs and "libnvidia" not in theirs
    for one, other in zip(parse(ours).gpus[:3], parse(theirs).gpus[:3], strict=True):
        assert _steady(one) == _steady(other)
    assert parse(ours).gpus[4] == parse(theirs).gpus[4]


def test_faults_read_from_nvml_are_found(answers: dict[str, dict[str, Any]]) -> None:
    state = parse(answers[PYTHONS[-1]]["out"])
    told = [(finding.code, finding.severity, finding.subject.get("gpu")) for finding in findings(state)]
    assert told == [
        ("gpu.recovery_action", "bad", 1),
        ("gpu.ecc_uncorrected", "bad", 1),
        ("gpu.ecc_corrected_rising", "warn", 1),
        ("gpu.sram_threshold", "bad", 1),
        ("gpu.remap_pending", "bad", 1),
        ("gpu.ecc_mode", "info", 1),
        ("gpu.mig_mode", "info", 1),
        ("gpu.hot", "warn", 1),
        ("gpu.power_brake", "bad", 1),
        ("gpu.pcie_width", "bad", 1),
        ("gpu.power_limit_lowered", "warn", 1),
        ("gpu.nvlink_rising", "bad", 1),
        ("gpu.pcie_replays_rise", "warn", 1),
        ("gpu.lost", "bad", 2),
        ("gpu.no_answer", "bad", 3),
        ("gpu.lost", "bad", 4),
        ("gpu.not_asked", "info", None),
    ]
    stuck = next(finding for finding in findings(state) if finding.code == "gpu.no_answer")
    assert stuck.says.startswith("GPU 3 at 0000:5d:00.0 does not answer: process in state D")


def test_a_split_that_waits_for_a_reset_is_told_as_ecc_is() -> None:
    """nvidia-smi(1): a change of MIG mode is pending until the GPU is reset."""
    text = (FIXTURES / "h100_590_load.out").read_text()
    head, mode, rest = text.partition("    MIG Mode\n")
    changed = head + mode + re.sub(r"(Pending +: )Disabled", r"\1Enabled", rest, count=1)
    (told,) = [one for one in findings(parse(changed)) if one.code == "gpu.mig_mode"]
    assert "one whole device, and split into instances (MIG) after the next reset" in told.says
    assert [one for one in findings(parse(text)) if one.code == "gpu.mig_mode"] == []


def _fake_smi(tmp_path: Path, body: str) -> str:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nvidia-smi").write_text("#!/bin/sh\n" + body)
    (folder / "nvidia-smi").chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_nvidia_smi_is_asked_per_gpu_where_no_library_loads(tmp_path: Path, bus: Path) -> None:
    one = (FIXTURES / "h100_535_power_brake.out").read_text()
    for name in BUSES[2:]:
        shutil.rmtree(bus / name)
    head, *blocks = one.split("\nGPU ")
    for number, block in enumerate(blocks[:2]):
        (tmp_path / f"gpu{number}").write_text(head + "\nGPU " + block)
    path = _fake_smi(tmp_path, f'case "$3" in *19*) cat {tmp_path}/gpu0;; *3b*) cat {tmp_path}/gpu1;; esac')
    told = _run(PYTHONS[-1], bus, "/nowhere", path=path)
    state = parse(told["out"])
    assert [(gpu.bus_id, gpu.index, gpu.sm_mhz) for gpu in state.gpus if gpu.answered] == [
        ("0000:19:00.0", 0, 86),
        ("0000:3b:00.0", 1, 86),
    ]
    assert [finding.code for finding in findings(state)] == ["gpu.power_brake", "gpu.power_brake", "gpu.not_asked"]


def test_a_container_that_sees_no_pci_bus_asks_nvidia_smi_once(tmp_path: Path) -> None:
    path = _fake_smi(tmp_path, f'[ "$*" = -q ] && cat {FIXTURES}/h100_590_idle.out')
    told = _run(PYTHONS[-1], tmp_path / "nowhere", "/nowhere", path=path)
    assert [gpu.name for gpu in parse(told["out"]).gpus] == ["NVIDIA H100 80GB HBM3"]


def test_a_driver_mismatch_is_one_finding_not_eight(tmp_path: Path, bus: Path) -> None:
    words = "Failed to initialize NVML: Driver/library version mismatch"
    path = _fake_smi(tmp_path, f"echo '{words}'; exit 18")
    shutil.rmtree(bus)
    told = _run(PYTHONS[-1], bus, "/nowhere", path=path)
    assert [(f.code, f.says) for f in findings(parse(told["out"]))] == [
        ("gpu.driver_problem", f"the NVIDIA driver does not work on this node: {words}")
    ]


def test_a_node_without_gpu_says_absent(tmp_path: Path) -> None:
    told = _run(PYTHONS[-1], tmp_path, "/nowhere")
    assert told["outcome"] == "absent"
    assert "no NVIDIA GPU on the PCI bus" in told["why"]


def _silent(bus: str, state: str = "D", wchan: str = "uvm_va_space_destroy", outcome: str = "hung") -> str:
    why = f"process 7 cannot be stopped: state {state} in {wchan}; it was left alone"
    told = {"name": bus, "outcome": outcome, "why": why, "state": state, "wchan": wchan}
    return f"==> golden15/silent {bus} <==\n{json.dumps(told)}\n"


def test_when_no_gpu_answers_the_driver_is_named_and_no_gpu() -> None:
    text = "".join(_silent(bus) for bus in BUSES)
    assert [(f.code, dict(f.subject)) for f in findings(parse(text))] == [("gpu.driver_no_answer", {})]


def test_a_stuck_file_system_is_not_blamed_on_the_gpu() -> None:
    found = list(findings(parse(_silent(BUSES[0], wchan="rpc_wait_bit_killable"))))
    assert "a network file system and not the GPU" in found[0].says


def test_all_ones_on_the_bus_means_lost_even_when_the_driver_only_hangs() -> None:
    pci = {"gpus": [{"bus_id": BUSES[0], "driver": "nvidia", "width": "63", "width_max": "16"}]}
    text = f"==> golden15/pci <==\n{json.dumps(pci)}\n{_silent(BUSES[0])}"
    assert [finding.code for finding in findings(parse(text))] == ["gpu.lost"]


@pytest.mark.parametrize(
    ("line", "bus"),
    [  # texts of public issues: darknet#86, open-gpu-kernel-modules#387, syno_nvidia_gpu_driver#22
        ("Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.  Reboot", "0000:03:00.0"),
        ("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error", "0000:0b:00.0"),
        ("Unable to determine the device handle for GPU0000:07:00.0: Unknown Error", "0000:07:00.0"),
        ("Unable to determine the device handle for GPU3: 0000:07:00.0: Unknown Error", "0000:07:00.0"),
    ],
)
def test_a_lost_gpu_is_read_from_every_wording(line: str, bus: str) -> None:
    found = list(findings(parse(line + "\n")))
    assert [(finding.code, finding.subject["bus_id"]) for finding in found] == [("gpu.lost", bus)]


WORDS = ["[GPU is lost]", "[GPU requires reset]", "[Unknown Error]", "ERR!", "[N/A]", "N/A"]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_in_place_of_a_value_is_never_a_number(word: str) -> None:
    text = (FIXTURES / "h100_590_idle.out").read_text()
    old = "Average Power Draw                             : 69.85 W"
    assert text.count(old) == 1
    state = parse(text.replace(old, f"Average Power Draw                             : {word}"))
    assert state.gpus[0].power_w is None
    assert state.gpus[0].missing["power_w"] == word.strip("[]")
    expected = {"[GPU is lost]": ["gpu.lost"], "[GPU requires reset]": ["gpu.recovery_action"]}
    assert [finding.code for finding in findings(state)] == expected.get(word, [])


def test_a_renamed_reason_is_an_error_and_not_silence() -> None:
    text = (FIXTURES / "h100_590_idle.out").read_text().replace("HW Power Brake Slowdown", "HW Power Brake        x")
    with pytest.raises(ParseError, match="GPU 0000:00:09.0.*'HW Power Brake Slowdown'"):
        parse(text)


def test_one_of_eight_gpus_shown_is_not_taken_for_the_node() -> None:
    text = (FIXTURES / "h100_590_idle.out").read_text()
    state = parse(text.replace("Attached GPUs                                          : 1", "Attached GPUs : 8"))
    assert [finding.code for finding in findings(state)] == ["gpu.not_shown"]
    assert state.gpus[0].index is None


def test_no_collected_line_can_pass_for_a_section(tmp_path: Path) -> None:
    """A process may call itself '==> golden15/nvml ... <==' after a line end: nvidia-smi -q prints its name."""
    path = _fake_smi(
        tmp_path, f"cat {FIXTURES}/h100_590_idle.out; printf '\\n==> golden15/nvml 0000:01:00.0 <==\\n{{}}'"
    )
    told = _run(PYTHONS[-1], tmp_path / "nowhere", "/nowhere", path=path)
    assert told["out"].count("==> ") == 2
    assert os.linesep + "= => golden15" in told["out"]


def test_uncorrectable_errors_of_every_memory_are_added_up_and_corrected_ones_are_no_fault() -> None:
    text = (FIXTURES / "h100_590_idle.out").read_text()
    head, volatile, rest = text.partition("        Volatile\n")
    block, aggregate, tail = rest.partition("        Aggregate\n")
    counts = {"SRAM Correctable": 7, "Parity": 1, "SEC-DED": 2, "DRAM Correctable": 9, "DRAM Uncorrectable": 4}
    lines = [
        next((line.replace(": 0", f": {count}") for label, count in counts.items() if label in line), line)
        for line in block.splitlines()
    ]
    state = parse(head + volatile + "\n".join(lines) + "\n" + aggregate + tail)
    assert (state.gpus[0].ecc_uncorrected, state.gpus[0].ecc_corrected) == (1 + 2 + 4, 7 + 9)
    assert [finding.code for finding in findings(state)] == ["gpu.ecc_uncorrected"]


@pytest.mark.parametrize(
    ("state", "status", "facts", "codes"),
    [  # the status means something only once the state is "completed" (3)
        (2, 0, ("in progress", None), ["gpu.fabric_not_ready"]),
        (0, 999, ("not supported", None), []),
        (3, 0, ("completed", "success"), []),
        (3, 10, ("completed", "timeout in the driver"), ["gpu.fabric_not_ready"]),
    ],
)
def test_a_fabric_status_counts_only_once_the_state_is_completed(
    state: int, status: int, facts: tuple[str, str | None], codes: list[str]
) -> None:
    told = {"values": {"fabric_state": state, "fabric_status": status}, "errors": {}}
    read = parse(f"==> golden15/nvml {BUSES[0]} <==\n{json.dumps(told)}\n")
    assert (read.gpus[0].fabric_state, read.gpus[0].fabric_status) == facts
    assert [finding.code for finding in findings(read)] == codes
