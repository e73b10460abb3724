"""What a tool's own check says about a GPU in words: DCGM's health watch and its diagnostic.

Errors of memory, NVLinks and GPUs that are lost have the codes of the probes that see the same, and are judged there.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.gpus import NodeGpus, gpus_of
from probes.diagnosis.rules._gpu_sources import row_of
from probes.diagnosis.times import times_of

# An Xid of the hardware is followed by a reset or a reboot, which an exporter does not outlive.
LASTING = ("gpu.fell_off_bus", "gpu.memory_error", "gpu.nvlink_error", "gpu.driver_hang", "gpu.nvswitch_fabric")
FULL, WORKING_W = 90, 250.0  # judgement: in a collective that waits an H100 draws 120 to 200 W (recorded)
LINK, DRIVER = "gpu.nvlink_error", "gpu.driver_hang"
THROTTLED, PCIE = "gpu.throttled", "gpu.pcie_degraded"
BLOCKED, SWITCH = "gpu.p2p_blocked", "gpu.nvswitch_fabric"
# Finding -> cause, signal.
TOLD = {
    "gpu.throttle_told": (THROTTLED, "check_says_throttled"),
    "gpu.pcie_width_told": (PCIE, "pcie_narrower_than_peers"),
    "gpu.pcie_told": (PCIE, "check_says_pcie"),
    "gpu.aer_counted": (PCIE, "pcie_errors_counted"),
    "gpu.fewer_told": ("gpu.fell_off_bus", "gpu_fewer_than_peers"),
    "gpu.task_stuck": (DRIVER, "task_waits_for_driver"),
    "gpu.tasks_stuck": (DRIVER, "tasks_wait_for_driver"),
    "gpu.copy_slow": (PCIE, "copies_slower_than_peers"),
    "gpu.nvlink_slow": (LINK, "links_slower_than_peers"),
    "gpu.p2p_told": (BLOCKED, "check_says_no_peer"),
    "gpu.p2p_not_supported": (BLOCKED, "no_pair_has_peer_access"),
    "gpu.switch_told": (SWITCH, "gpu_fabric_not_ready"),
}
XID = "gpu.xid_told"
# Finding -> its signal for a fault of the hardware, and for one of the program.
XIDS = {
    XID: ("last_xid_told", "last_xid_of_program"),
    "gpu.xid_written": ("xid_written", "xid_of_program_written"),
}
FAULTS = ("gpu.fell_off_bus", "gpu.memory_error", "gpu.nvlink_error", "gpu.nvswitch_fabric", "gpu.driver_hang",
    "gpu.app_fault")  # fmt: skip


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    gpus = gpus_of(evidence)
    for seen, finding in evidence.findings(*TOLD, *XIDS):
        number = finding.subject.get("xid")
        row = row_of(number) if isinstance(number, int) else {}
        said = str(row.get("cause", ""))
        told = XIDS.get(finding.code)
        cause, signal = (said, told[said not in LASTING]) if told else TOLD[finding.code]
        if told and (cause not in FAULTS or row.get("weight") == "notice"):
            continue
        stamp = str(finding.subject.get("stamp", ""))
        if stamp and times_of(evidence).over(seen.node, None, stamp):
            continue  # a reason that stands there since before the job
        there = gpus.get(seen.node)
        at_work = finding.code == XID and there is not None and _computes(there, finding.subject.get("gpu"))
        against = (Reason("that GPU is at work now", seen.ref),) if at_work else ()
        subject: dict[str, str | int] = {"node": seen.node} if seen.node else {}
        subject |= {name: value for name, value in finding.subject.items() if name in ("gpu", "bus_id")}
        weak = finding.severity != "bad"
        if signal == "no_pair_has_peer_access" and _others_reach(evidence, seen):
            signal, weak = "no_pair_unlike_others", False
        yield Hypothesis(
            cause,
            subject,
            f"On {seen.node or 'a node'} {finding.says}",
            (Reason(finding.says, seen.ref),),
            (signal, *(("works_now",) if at_work else ())),
            against=against,
            would_change=("the same check passing a second time",),
            nodes=frozenset() if weak else frozenset({seen.node}),
        )


def _others_reach(evidence: Evidence, seen: Seen) -> bool:
    """Whether on another node all GPUs reach each other: then the job's machines are built for it."""
    told = [(one.node, one.facts) for one in evidence.of("gpu.p2p_status")]
    told += [(one.node, one.facts.peers) for one in evidence.of("gpu.topo") if one.facts.peers is not None]
    return any(node != seen.node and all(set(words) <= {"X", "OK"} for _, words in peers.rows) for node, peers in told)


def _computes(there: NodeGpus, index: object) -> bool:
    """Fully used, and at more power than a GPU that waits."""
    gpu = next((gpu for gpu in there.gpus.values() if gpu.index == index), None)
    return gpu is not None and (gpu.utilisation_percent or 0) >= FULL and (gpu.power_w or 0.0) >= WORKING_W


RULE = Rule((THROTTLED, PCIE, BLOCKED, *FAULTS), judge)
