"""What tells of a GPU at fault, from every probe, as one list: for the rules about GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from probes.catalog.gpu.ladder import HANGS
from probes.catalog.kernel.events import Event
from probes.core import Finding
from probes.diagnosis.core import Evidence, Seen
from probes.diagnosis.gpus import GPU_PROBES
from probes.diagnosis.times import Old, Times
from probes.reference import rows

OFF_BUS, MEMORY, NVLINK = "gpu.fell_off_bus", "gpu.memory_error", "gpu.nvlink_error"
SWITCH, DRIVER, PROGRAM = "gpu.nvswitch_fabric", "gpu.driver_hang", "gpu.app_fault"
# gpu.state's and lspci's own findings: cause and signal.
STATE = {
    "gpu.lost": (OFF_BUS, "off_bus"),
    "pci.dead": (OFF_BUS, "off_bus"),
    "gpu.not_visible": (OFF_BUS, "gpu_not_counted"),
    "gpu.no_answer": (DRIVER, "driver_silent"),
    "gpu.driver_no_answer": (DRIVER, "driver_silent"),
    "gpu.fabric_not_ready": (SWITCH, "gpu_fabric_not_ready"),
    "gpu.recovery_action": (DRIVER, "gpu_needs_recovery"),
    **dict.fromkeys(
        (
            "gpu.ecc_uncorrected",
            "gpu.sram_threshold",
            "gpu.remap_failed",
            "gpu.remap_pending",
            "gpu.memory_unrepairable",
            "gpu.repair_pending",
        ),
        (MEMORY, "gpu_reports_fault"),
    ),
}
# Drivers' words without an Xid: see GpuProblem. A version mismatch is told by library_mismatch.
PROBLEMS = {
    "init failed": (DRIVER, "gpu_init_failed"),
    "gsp": (DRIVER, "gpu_xid"),
    "reset": (DRIVER, "amd_gpu_hang"),
    "reset failed": (DRIVER, "amd_gpu_hang"),
    "ring timeout": (DRIVER, "amd_gpu_hang"),
    "queue stuck": (DRIVER, "amd_gpu_hang"),
    "uncorrectable": (MEMORY, "gpu_xid"),
    "link": (NVLINK, "gpu_xid"),
    "poison": (MEMORY, "gpu_xid"),
    "lost": (OFF_BUS, "off_bus"),
    "page fault": (PROGRAM, "gpu_xid_program"),
}
# Sub-codes of Xid 149 (gpud's table of NVIDIA's NVLink5 decoding): the peer device, and software or the user.
OF_PEER = frozenset((21, 32, 33, 34, 35, 36, 37))
OF_USER = frozenset((15, 16, 17, 18, 22, 38))
# Kernel functions, modules and programs of the drivers.
OF_DRIVER = ("nv_", "uvm_", "nvidia", "os_acquire", "amdgpu", "kfd", "_nv0", "rm_ioctl", "rmapi")
PROBLEM_IN_STATE = ("couldn't communicate", "has failed", "No devices were found", "Failed to initialize NVML")

# What training is called among processes (15 letters, comm of proc(5)): interpreters, launchers, trainers in C++.
_TRAINS = re.compile(
    r"^(?:python|pt_|torch|deepspeed|accelerate|ray|mpi)|train|nemo|megatron|worker|vllm|sglang|llm|gpt|jax|_perf$",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that tells of a GPU at fault. `bus_id` "" where none is named. `at`: by our clock, its first time."""

    cause: str
    signal: str
    seen: Seen
    finding: Finding
    bus_id: str
    index: int | None
    event: Event | None = None
    at: float | None = None
    old: Old = ""

    @property
    def xid(self) -> int | None:
        number = self.finding.subject.get("xid")
        return number if isinstance(number, int) else None

    @property
    def pids(self) -> tuple[int, ...]:
        own = getattr(self.event, "pid", None)
        return tuple(getattr(self.event, "pids", ())) + (() if own is None else (own,))

    @property
    def process(self) -> str:
        """The program that the line names, often a victim; "" where none is."""
        return str(getattr(self.event, "process", "")).replace("<unknown>", "")

    @property
    def peer(self) -> bool:
        """Whether the driver's sub-code points at the other end of an NVLink."""
        return self.xid == 149 and bool(set(getattr(self.event, "subcodes", ())) & OF_PEER)

    @property
    def lines(self) -> int:
        return self.event.count if self.event is not None else 1


def faults(evidence: Evidence, times: Times) -> Iterator[Fault]:
    """Notices (severity info) and what follows from something else are left out."""
    for seen in evidence.all_of("host.kernel_log"):
        for event, finding in _paired(seen):
            told = _kernel(finding, event)
            if told is None or finding.severity == "info":
                continue
            bus = str(finding.subject.get("bus_id", ""))
            last = (None, "") if event is None else (event.last_at, event.last)
            at = times.corrected(seen.node, event.first_at) if event is not None else None
            yield Fault(*told, seen, finding, bus, None, event, at, times.old(seen.node, *last))
    yield from stuck(evidence, times)
    for seen, finding in evidence.findings(*STATE):
        index, bus = finding.subject.get("gpu"), str(finding.subject.get("bus_id", ""))
        stamp = str(finding.subject.get("stamp", ""))  # of an alert, or of a reason that stands since
        if finding.code == "pci.dead" and "nvidia" not in finding.says.lower():
            continue
        if stamp and times.over(seen.node, None, stamp):
            continue
        yield Fault(*STATE[finding.code], seen, finding, bus, index if isinstance(index, int) else None)
    for seen, finding in evidence.findings("gpu.driver_problem"):
        if "mismatch" in finding.says:
            continue
        silent = not any(word in finding.says for word in PROBLEM_IN_STATE)
        yield Fault(DRIVER, "driver_silent" if silent else "driver_absent", seen, finding, "", None)


def of_driver(words: str) -> bool:
    """Whether a kernel function or module is a GPU driver's."""
    return words.lower().startswith(OF_DRIVER) or "nvidia" in words.lower()


def stuck(evidence: Evidence, times: Times) -> Iterator[Fault]:
    """Tasks that do not come back from the driver, by the kernel's own word or at two looks."""
    for seen in evidence.of("host.kernel_log"):
        said = [finding for finding in seen.findings if finding.code == "kernel.hung_task"]
        for event, finding in zip(seen.facts.hung_tasks, said, strict=False):
            if any(of_driver(name) for name in (event.where, event.process, *event.modules)):
                at = times.corrected(seen.node, event.first_at)
                old = times.old(seen.node, event.last_at, event.last)
                yield Fault(DRIVER, "driver_task_stuck", seen, finding, "", None, event, at, old)
    for seen in evidence.of("host.storage"):
        for task in seen.facts.blocked:
            about = any(words in task.waits_for for words in ("NVIDIA", "AMD GPU"))
            if task.stuck and (about or task.comm.startswith("nvidia-smi")):
                says = f"{task.comm} ({task.pid}) is stuck in state D in {task.wchan or 'an unknown function'}"
                yield Fault(DRIVER, "driver_task_stuck", seen, Finding("host.task_stuck", "bad", says), "", None)
    for seen in (one for probe in GPU_PROBES for one in evidence.all_of(probe)):
        if seen.outcome == "skipped" and HANGS in seen.why:
            says = seen.why.partition(HANGS)[0].removeprefix("not asked: ") + HANGS
            yield Fault(DRIVER, "driver_task_stuck", seen, Finding("gpu.driver_no_answer", "bad", says), "", None)
    for rank, view in evidence.job.ranks.items():
        process = view.process
        if process is None or not process.stuck or not of_driver(process.wchan):
            continue
        seen_there = next((one for one in evidence.all_of("rank.process") if one.node == view.node), None)
        if seen_there is not None:
            says = f"rank {rank} is in state D in {process.wchan}, at both looks"
            yield Fault(DRIVER, "driver_task_stuck", seen_there, Finding("rank.stuck", "bad", says), "", None)


def _paired(seen: Seen) -> Iterator[tuple[Event | None, Finding]]:
    """Findings with the events that they are of: the probe tells one finding for each, in their order."""
    events: dict[str, list[Any]] = {}
    if seen.facts is not None:
        events = {
            "kernel.xid": list(seen.facts.xids),
            "kernel.sxid": list(seen.facts.sxids),
            "kernel.gpu_off_bus": list(seen.facts.off_bus),
            "kernel.gpu_problem": list(seen.facts.gpu_problems),
        }
    for code in ("kernel.xid", "kernel.sxid", "kernel.gpu_off_bus", "kernel.gpu_problem"):
        found = [finding for finding in seen.findings if finding.code == code]
        known = events.get(code, [])
        for at, finding in enumerate(found):
            yield known[at] if len(known) == len(found) else None, finding


def event_codes(event: Event | None) -> tuple[int, ...]:
    """Sub-codes of an NVLink5 Xid."""
    return tuple(getattr(event, "subcodes", ()))


def row_of(number: int | None) -> dict[str, Any]:
    """The row of an Xid, {} where the table has none."""
    return next((row for row in rows("xid") if number in row["codes"]), {})


def _kernel(finding: Finding, event: Event | None) -> tuple[str, str] | None:
    """Cause and signal; None where the line alone blames nothing."""
    if finding.code == "kernel.gpu_off_bus":
        return OFF_BUS, "off_bus"
    if finding.code == "kernel.sxid":
        return (SWITCH, "gpu_xid") if finding.severity == "bad" else None
    if finding.code == "kernel.gpu_problem":
        return PROBLEMS.get(str(finding.subject.get("what")))
    row = row_of(number if isinstance(number := finding.subject.get("xid"), int) else None)
    cause = row.get("cause")
    if cause is None:
        return None
    if cause == OFF_BUS:
        return OFF_BUS, "off_bus"
    unclear = row.get("weight") == "unclear" or (event is not None and getattr(event, "fatal", None) is False)
    if row.get("weight") == "notice":
        return str(cause), "gpu_xid_notice"
    if finding.subject.get("xid") == 149 and event_codes(event) and set(event_codes(event)) <= OF_USER:
        unclear = True
    if unclear:
        return str(cause), "gpu_xid_unclear"
    if cause != PROGRAM:
        return str(cause), "gpu_xid"
    process = str(getattr(event, "process", "") or "")
    # A program's own fault is that program's: a desktop's or a neighbour's stops no training.
    return PROGRAM, "gpu_xid_program" if not process or _TRAINS.search(process) else "gpu_xid_other_program"
