"""A GPU at fault: by the kernel log's Xids, off the bus with or without one, silent, or out of memory.

Xids that follow from another on the same GPU are told by the log's own probe (`caused by`), or explained by the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.core import Finding
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import quoted
from probes.reference import rows

OFF_BUS, MEMORY, NVLINK = "gpu.fell_off_bus", "gpu.memory_error", "gpu.nvlink_error"
SWITCH, DRIVER, PROGRAM, FULL = "gpu.nvswitch_fabric", "gpu.driver_hang", "gpu.app_fault", "gpu.out_of_memory"
SAID = {"off_bus": "fell off the bus"}
# gpu.state's own findings: cause and signal.
STATE = {
    "gpu.lost": (OFF_BUS, "off_bus"),
    "gpu.not_visible": (OFF_BUS, "gpu_not_counted"),
    "gpu.no_answer": (DRIVER, "driver_silent"),
    "gpu.driver_problem": (DRIVER, "driver_silent"),
    "gpu.driver_no_answer": (DRIVER, "driver_silent"),
    "gpu.fabric_not_ready": (SWITCH, "gpu_reports_fault"),
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


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen, finding in evidence.findings("kernel.xid", "kernel.sxid", "kernel.gpu_off_bus", *STATE):
        told = _told(finding)
        if told is not None and finding.severity != "info" and not _before_the_job(evidence, seen, finding, told[0]):
            yield _hypothesis(evidence, seen, finding, *told)
    for event, log, seen in evidence.job.said("cuda_error"):
        if "out of memory" not in event.text.lower() or event.rank is None:
            continue
        view = evidence.job.view(event.rank)
        yield Hypothesis(
            FULL,
            view.subject,
            f"{view.headline} ran out of GPU memory",
            (quoted(event, log, seen),),
            ("cuda_out_of_memory",),
            ranks=frozenset({event.rank}),
            nodes=frozenset({view.node}),
        )


def _before_the_job(evidence: Evidence, seen: Seen, finding: Finding, cause: str) -> bool:
    """A program's own fault that is older than the ranks of its node: that program is gone, and was not this job. Both
    times are by the node's clock. Of the hardware an old Xid tells as well."""
    if cause != PROGRAM or seen.facts is None:
        return False
    places = (view.place for view in evidence.job.ranks.values() if view.node == seen.node)
    began = [place.start_time for place in places if place is not None and place.start_time is not None]
    same = (finding.subject.get("bus_id"), finding.subject.get("xid"))
    last = [xid.last_at for xid in seen.facts.xids if (xid.bus_id, xid.xid) == same]
    return bool(began and last and last[0] is not None and last[0] < min(began))


def _told(finding: Finding) -> tuple[str, str] | None:
    """Cause and signal of a finding; None where the number alone blames nothing."""
    if finding.code == "kernel.gpu_off_bus":
        return OFF_BUS, "off_bus"
    if finding.code == "kernel.sxid":
        return (SWITCH, "gpu_xid") if finding.severity == "bad" else None
    if finding.code in STATE:
        return STATE[finding.code]
    number = finding.subject.get("xid")
    cause = next((row.get("cause") for row in rows("xid") if number in row["codes"]), None)
    if cause is None:
        return None
    return str(cause), "off_bus" if cause == OFF_BUS else "gpu_xid_program" if cause == PROGRAM else "gpu_xid"


def _hypothesis(evidence: Evidence, seen: Seen, finding: Finding, cause: str, signal: str) -> Hypothesis:
    bus_id, known = _known(evidence, seen.node, str(finding.subject.get("bus_id", "")))
    subject: dict[str, str | int] = {"node": seen.node}
    if bus_id:
        subject["bus_id"] = bus_id
    index = finding.subject.get("gpu", known)
    if isinstance(index, int):
        subject["gpu"] = index
    users = frozenset(
        rank
        for rank, view in evidence.job.ranks.items()
        if view.node == seen.node
        and view.place is not None
        and isinstance(index, int)
        and _uses(view.place.visible, view.place.local_rank, index)
    )
    gpu = f"GPU {index} ({bus_id})" if isinstance(index, int) else f"GPU {bus_id}" if bus_id else "the GPU driver"
    says = finding.says.partition(". To do:")[0].removeprefix(f"GPU {finding.subject.get('bus_id')}: ")
    named = isinstance(index, int) and says.startswith(f"GPU {index} ")
    node = seen.node or "a node"
    headline = f"On {node}, {says if named else f'{gpu}: {says}'}"
    if cause == OFF_BUS:
        headline = f"{gpu[:1].upper()}{gpu[1:]} on {node} fell off the bus: the driver has lost it"
    return Hypothesis(
        cause,
        subject,
        headline,
        (Reason(finding.says, seen.ref),),
        (signal,),
        would_change=("the same GPU answering, and no such line after the job's start",),
        ranks=users,
        nodes=frozenset({seen.node}),
    )


def _known(evidence: Evidence, node: str, bus_id: str) -> tuple[str, int | None]:
    """The GPU as gpu.state of the node knows it, its bus id with the function and the driver's number, so that what the
    kernel log and the driver say is about one GPU. The kernel log's bus ids have no function."""
    for seen in evidence.of("gpu.state"):
        for gpu in seen.facts.gpus if seen.node == node and bus_id else ():
            if bus_id.lower() in (gpu.bus_id, gpu.bus_id.partition(".")[0]):
                return gpu.bus_id, gpu.index
    return bus_id, None


def _uses(visible: object, local_rank: int | None, index: int) -> bool:
    """Whether a rank uses this GPU: by its list of visible devices, else by its local rank."""
    listed = str(visible.get("CUDA_VISIBLE_DEVICES", "")) if isinstance(visible, dict) else ""
    if local_rank is None:
        return False
    numbers = [part.strip() for part in listed.split(",") if part.strip()]
    if not numbers:
        return local_rank == index
    if not all(part.isdecimal() for part in numbers):
        return False
    mine = numbers[local_rank] if local_rank < len(numbers) else numbers[0]
    return int(mine) == index


RULE = Rule((OFF_BUS, MEMORY, NVLINK, SWITCH, DRIVER, PROGRAM, FULL), judge)
