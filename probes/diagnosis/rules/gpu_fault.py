"""A GPU at fault: by the kernel log's Xids, off the bus with or without one, or silent.

The earliest and most severe of a node leads. What follows from it (Xid 45 and 43, 154 on every GPU, NVLink errors of
its peers) is told under it and blames no other GPU. What was before the job, or is over by the GPU's own word, does not
lead either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from probes.core import Finding
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.gpus import NodeGpus, gpus_of
from probes.diagnosis.rules._gpu_sources import (
    DRIVER,
    MEMORY,
    NVLINK,
    OFF_BUS,
    PROGRAM,
    SWITCH,
    Fault,
    faults,
    row_of,
)
from probes.diagnosis.rules._merge import as_one
from probes.diagnosis.times import times_of

_RANK = re.compile(r"python|pt_|ray|torch|train|mpi|nccl|all_\w{1,20}_perf|deepspeed|megatron", re.I)
_DESKTOP = re.compile(r"X(?:org|wayland)?$|blender|gnome|kwin|chrom|firefox|steam|matlab|vglrun|vnc|obs$", re.I)
BURST_S = 180.0  # NVSentinel: lines that belong together are at most 3 min apart
# Of one node, what the first makes appear on other GPUs: their links, their program, and calls into the driver.
FOLLOWS = {
    OFF_BUS: (NVLINK, DRIVER, PROGRAM, SWITCH),
    SWITCH: (NVLINK, PROGRAM),
    MEMORY: (PROGRAM, DRIVER),
    NVLINK: (PROGRAM,),
    DRIVER: (PROGRAM,),
}
WEAK = (
    "gpu_xid_other_program",
    "gpu_xid_notice",
    "gpu_reports_fault",
    "gpu_needs_recovery",
    "gpu_xid_unclear",
    "gpu_not_counted",
    "fault_before_job",
)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    times = times_of(evidence)
    gpus = gpus_of(evidence)
    by_node: dict[str, list[Fault]] = {}
    for fault in faults(evidence, times):
        by_node.setdefault(fault.seen.node, []).append(fault)
    current = {node: [one for one in some if _counts(one, gpus.get(node))] for node, some in by_node.items()}
    first = _first([one for some in current.values() for one in some], {node for node, some in current.items() if some})
    programs: list[tuple[float, Hypothesis]] = []
    for node, some in current.items():
        there = gpus.get(node, NodeGpus(node))
        for group in _groups(some):
            found = _hypothesis(evidence, group, there, group[0] is first)
            if found.cause == PROGRAM:
                programs.append((_begins(group[0]), found))
            else:
                yield found
    # One program runs on all nodes: the earliest is its first fault, the others follow when their peer is gone.
    programs.sort(key=lambda one: one[0])
    yield from _one_program([found for _, found in programs])


def _one_program(some: Sequence[Hypothesis]) -> Iterator[Hypothesis]:
    for found in as_one(some, (), "%d more nodes as well"):
        yield replace(found, subject=some[0].subject)


def _counts(fault: Fault, there: NodeGpus | None) -> bool:
    """A program's own fault that is older than the job was another program's. Of the hardware an old one tells as well,
    but little unless the GPU shows it still: see `_hypothesis`."""
    if fault.old != "yes" or fault.cause != PROGRAM:
        return True
    return there is not None and _still(fault, there) is True


def _still(fault: Fault, there: NodeGpus) -> bool | None:
    """Whether the GPU's own state confirms what the log tells of it: True, False, or None where it does not say."""
    found = there.at(fault.bus_id) if fault.bus_id else None
    if found is None:
        gone = there.listed is not None and fault.cause == OFF_BUS and bool(there.gpus)
        return True if gone and all(gpu.bus_id for gpu in there.gpus.values()) else None
    gpu = found[0]
    if fault.cause == OFF_BUS:
        if gpu.name is None and gpu.temperature_c is None and gpu.answered:
            return None
        return not gpu.answered
    if fault.cause == MEMORY:
        flags = (gpu.remap_pending, gpu.remap_failed, gpu.memory_unrepairable, gpu.repair_pending)
        if any(flags) or gpu.ecc_uncorrected:
            return True
        return False if gpu.ecc_uncorrected == 0 else None
    if fault.cause == DRIVER:
        return True if not gpu.answered else None
    return None


def _first(some: Sequence[Fault], nodes: set[str]) -> Fault | None:
    """The fault that began before all others, where several nodes have one and all tell their time."""
    timed = sorted((one for one in some if one.at is not None and not one.old), key=lambda one: one.at or 0.0)
    if len(nodes) < 2 or not timed or any(one.at is None and one.event is not None for one in some):
        return None
    return timed[0]


def _groups(some: Sequence[Fault]) -> list[list[Fault]]:
    """Faults of a node that are one thing: of one cause on one GPU, or what follows from the worst. The first of each
    group is its root."""
    order = [OFF_BUS, SWITCH, MEMORY, DRIVER, NVLINK, PROGRAM]
    ranked = sorted(
        some,
        key=lambda one: (
            one.old == "yes",
            order.index(one.cause),
            one.signal in WEAK,
            not one.bus_id,
            _begins(one),
            -one.lines,
        ),
    )
    groups: list[list[Fault]] = []
    for fault in ranked:
        home = next((group for group in groups if _belongs(fault, group[0])), None)
        if home is None:
            groups.append([fault])
        else:
            home.append(fault)
    return groups


def _begins(fault: Fault) -> float:
    return fault.at if fault.at is not None else fault.event.first_at or 0.0 if fault.event is not None else 0.0


def _belongs(fault: Fault, root: Fault) -> bool:
    same = _same_gpu(fault, root)
    if fault.cause == root.cause and fault.old == root.old:
        # Both ends of a link log its error; one driver serves all GPUs; one program runs on all of them.
        return same or fault.cause in (NVLINK, DRIVER, PROGRAM, SWITCH)
    if fault.cause not in FOLLOWS.get(root.cause, ()):
        return fault.signal == "gpu_needs_recovery" and (same or not fault.bus_id)
    if root.signal in WEAK or root.old or (root.cause == MEMORY and fault.cause == DRIVER):
        return same
    if fault.at is not None and root.at is not None:
        return -5 <= fault.at - root.at <= BURST_S or (same and fault.at >= root.at)
    return same or fault.event is not None


def _same_gpu(one: Fault, other: Fault) -> bool:
    if one.bus_id and other.bus_id:
        return one.bus_id.partition(".")[0].lower() == other.bus_id.partition(".")[0].lower()
    return one.index is not None and one.index == other.index


def _hypothesis(evidence: Evidence, group: list[Fault], there: NodeGpus, first: bool) -> Hypothesis:
    root = group[0]
    node, finding, cause = root.seen.node, root.finding, root.cause
    found = there.at(root.bus_id) if root.bus_id else None
    bus_id = found[0].bus_id if found is not None else root.bus_id
    index = root.index if root.index is not None else found[0].index if found is not None else None
    subject: dict[str, str | int] = {"node": node} if node else {}
    one_gpu = cause != PROGRAM or len({one.bus_id for one in group if one.cause == cause}) == 1
    if bus_id and one_gpu:
        subject["switch" if finding.code == "kernel.sxid" else "bus_id"] = bus_id
    if index is not None and one_gpu:
        subject["gpu"] = index
    told = next(evidence.job.said("cuda_error"), None) is not None
    users = _users(evidence, node, index, group) if one_gpu else frozenset()
    signals = [one.signal for one in group if one.cause == cause]
    against: list[Reason] = []
    still = _still(root, there)
    if root.old == "yes" and still is not True:
        signals.append("fault_before_job_surely")
        against.append(Reason("it was before this job, or before the job was seen to go on", root.seen.ref))
    elif root.old == "perhaps":
        signals.append("fault_before_job")
        against.append(Reason("by the times as they are printed, this was before the job went on", root.seen.ref))
    if still is False:
        signals.append("gpu_is_well_again")
        against.append(Reason(f"{_named(index, bus_id)} answers and reports no such error", found[1] if found else ""))
    if first:
        signals.append("gpu_fault_first")
    if cause == PROGRAM and all(_not_the_job(one) for one in group if one.cause == cause):
        signals.append("fault_of_another_program")
        against.append(Reason(f"the program is called {root.process}: hardly a rank of a job", root.seen.ref))
    elif cause == PROGRAM and root.process and not _RANK.match(root.process) and not told:
        signals.append("perhaps_of_another_program")
    weak = all(one.signal in WEAK for one in group if one.cause == cause) or still is False
    weak = weak or root.old == "yes"
    reasons = [Reason(one.finding.says, one.seen.ref) for one in group[:8]]
    reasons += _verdicts(evidence, root)
    if root.peer:
        against.append(Reason("this sub-code points at the other end of the link too", root.seen.ref))
    return Hypothesis(
        cause,
        subject,
        _headline(cause, node, index, bus_id, finding, group),
        tuple(reasons),
        tuple(signals),
        against=tuple(against),
        would_change=("the same GPU answering, and no such line after the job's start",),
        ranks=frozenset() if weak else users,
        nodes=frozenset() if weak else frozenset({node}),
    )


def _not_the_job(fault: Fault) -> bool:
    """Whether the line names a program that draws: by the engine that it used, or by its name."""
    draws = "ENGINE GRAPHICS" in getattr(fault.event, "text", "") and not _RANK.match(fault.process)
    return bool(fault.process) and (draws or bool(_DESKTOP.match(fault.process)))


def _named(index: int | None, bus_id: str) -> str:
    if index is not None:
        return f"GPU {index} ({bus_id})" if bus_id else f"GPU {index}"
    return f"GPU {bus_id}" if bus_id else "the GPU driver"


def _gpus(count: int) -> str:
    return "another GPU" if count == 1 else f"{count} other GPUs"


def _headline(cause: str, node: str, index: int | None, bus_id: str, finding: Finding, group: list[Fault]) -> str:
    gpu, where = _named(index, bus_id), node or "a node"
    if cause == OFF_BUS:
        gpu = gpu if index is not None or bus_id else "a GPU"
        return f"{gpu[:1].upper()}{gpu[1:]} on {where} fell off the bus: the driver has lost it"
    says = finding.says.partition(". To do:")[0].removeprefix(f"GPU {finding.subject.get('bus_id')}: ")
    others = {one.bus_id for one in group if one.cause == cause and one.bus_id} - {group[0].bus_id}
    more = ""
    if others and cause == NVLINK:
        more = f"; {_gpus(len(others))} of the node logged it too: both ends of a link do"
    elif others and cause == PROGRAM:
        more = f"; {_gpus(len(others))} as well: the program, not one GPU"
    named = finding.code == "kernel.sxid" or index is not None and says.startswith(f"GPU {index} ")
    return f"On {where}, {says if named else f'{gpu}: {says}'}{more}"


def _verdicts(evidence: Evidence, root: Fault) -> Iterator[Reason]:
    """What the driver itself asks for (Xid 154), and the victims that follow, once each."""
    for seen, finding in evidence.findings("kernel.xid"):
        number = finding.subject.get("xid")
        if seen.node != root.seen.node or finding.subject.get("bus_id") != root.bus_id or seen.ref != root.seen.ref:
            continue
        if number == 154 and finding.severity == "warn":
            yield Reason(f"the driver asks for it: {finding.says}", seen.ref)
        elif number in (43, 45) and row_of(root.xid):
            yield Reason(f"follows from it: {finding.says}", seen.ref)


def _users(evidence: Evidence, node: str, index: int | None, group: Sequence[Fault]) -> frozenset[int]:
    """Ranks that use the GPU: by their own list of devices, or as the driver names their process."""
    pids = {pid for one in group for pid in one.pids}
    found = set()
    for rank, view in evidence.job.ranks.items():
        if view.node != node:
            continue
        by_list = view.place is not None and index is not None
        if (
            by_list
            and _uses(view.place.visible, view.place.local_rank, index)
            or view.pid is not None
            and view.pid in pids
        ):
            found.add(rank)
    return frozenset(found)


def _uses(visible: object, local_rank: int | None, index: int | None) -> bool:
    """Whether a rank uses this GPU: by its list of visible devices, else by its local rank."""
    listed = str(visible.get("CUDA_VISIBLE_DEVICES", "")) if isinstance(visible, dict) else ""
    if local_rank is None or index is None:
        return False
    numbers = [part.strip() for part in listed.split(",") if part.strip()]
    if not numbers:
        return local_rank == index
    if not all(part.isdecimal() for part in numbers):
        return False
    mine = numbers[local_rank] if local_rank < len(numbers) else numbers[0]
    return int(mine) == index


RULE = Rule((OFF_BUS, MEMORY, NVLINK, SWITCH, DRIVER, PROGRAM), judge)
