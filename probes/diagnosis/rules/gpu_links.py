"""NVLink or the NVSwitch fabric of a node is not there: by topo -m and nvlink against peers, fabric manager, error 802.

Also the way between the GPUs of a node that has no NVLink: ACS on bridges and the IOMMU send peers' traffic by the CPU,
or block it.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.gpus import usual
from probes.diagnosis.job import quoted
from probes.diagnosis.times import times_of

LINK, SWITCH, BLOCKED = "gpu.nvlink_error", "gpu.nvswitch_fabric", "gpu.p2p_blocked"
NO_PEER = (
    "peer access",
    "P2P is disabled",
    "P2P mapping",
    "p2p not supported",
    "cudaIpcOpenMemHandle",
    "Could not enable P2P",
)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _links(evidence)
    yield from _whole_nodes(evidence)
    yield from _fabric(evidence)
    yield from _blocked(evidence)


def _links(evidence: Evidence) -> Iterator[Hypothesis]:
    """One GPU without links that the others have."""
    codes = {
        "gpu.topo_no_nvlink": "nvlink_lost",
        "gpu.nvlink_inactive": "nvlink_lost",
        "gpu.nvlink_errors": "nvlink_counts",
    }
    for seen, finding in evidence.findings(*codes):
        subject: dict[str, str | int] = dict(finding.subject)
        if seen.node:
            subject["node"] = seen.node
        lost = codes[finding.code] == "nvlink_lost"
        yield Hypothesis(
            LINK,
            subject,
            f"On {seen.node or 'a node'} {finding.says}",
            (Reason(finding.says, seen.ref),),
            ("nvlink_lost",) if lost else ("nvlink_counts",),
            would_change=("all links of that GPU active at a second look",),
            nodes=frozenset({seen.node}) if lost else frozenset(),
        )


def _whole_nodes(evidence: Evidence) -> Iterator[Hypothesis]:
    """A node none of whose GPUs has NVLink, where other nodes have it."""
    most: dict[str, tuple[int, Seen]] = {}
    for seen in evidence.of("gpu.topo"):
        if len(seen.facts.gpus) > 1:
            most[seen.node] = (max((max(seen.facts.links(gpu), default=0) for gpu in seen.facts.gpus), default=0), seen)
    for seen in evidence.of("gpu.nvlink"):
        up = max((sum(speed is not None for speed in gpu.speeds.values()) for gpu in seen.facts.gpus), default=0)
        if any(gpu.speeds or "inactive" in gpu.why.lower() for gpu in seen.facts.gpus):
            most.setdefault(seen.node, (up, seen))
    value, count, total = usual([links for links, _ in most.values()])
    for node, (links, seen) in most.items():
        if isinstance(value, int) and count * 2 > total and total > 1 and links < value:
            says = f"no GPU of {node or 'a node'} has more than {links} NVLinks; on the other nodes they have {value}"
            yield Hypothesis(
                SWITCH,
                {"node": node} if node else {},
                says[:1].upper() + says[1:],
                (Reason(says, seen.ref),),
                ("fabric_lost",),
                would_change=("the same links as on the other nodes",),
                nodes=frozenset({node}),
            )


def _fabric(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen, finding in evidence.findings("gpu.fabric_manager_down", "gpu.fabric_manager_error"):
        down = finding.code == "gpu.fabric_manager_down"
        serious = down or finding.severity == "bad"
        yield Hypothesis(
            SWITCH,
            {"node": seen.node} if seen.node else {},
            f"On {seen.node or 'a node'} {finding.says}",
            (Reason(finding.says, seen.ref),),
            ("fabric_manager_down",) if down else ("fabric_manager_failed",) if serious else ("fabric_manager_notice",),
            would_change=("fabric manager running, and GPUs whose fabric state is completed",),
            nodes=frozenset({seen.node}) if serious else frozenset(),
        )


def _blocked(evidence: Evidence) -> Iterator[Hypothesis]:
    times = times_of(evidence)
    symptoms = [
        (event, log, seen)
        for event, log, seen in evidence.job.said("nccl_warn", "nccl_error", "cuda_error", "traceback", "nccl_link")
        if any(words in event.text for words in NO_PEER)
    ]
    told = [quoted(event, log, seen) for event, log, seen in symptoms[:2]]
    for seen, finding in evidence.findings("pci.acs"):
        yield _p2p(seen, [Reason(finding.says, seen.ref), *told], "acs_and_peer_errors" if told else "acs_on")
    for seen in evidence.of("host.kernel_log"):
        if not seen.facts.iommu_faults:
            continue
        gpus = _gpus_of_node(evidence, seen.node)
        said = [finding for finding in seen.findings if finding.code == "kernel.iommu_fault"]
        for event, finding in zip(seen.facts.iommu_faults, said, strict=False):
            if not times.old(seen.node, event.last_at, event.last) and (event.device in gpus or told):
                yield _p2p(seen, [Reason(finding.says, seen.ref), *told], "iommu_refuses_gpu")


def _gpus_of_node(evidence: Evidence, node: str) -> set[str]:
    found = {gpu.bus_id for seen in evidence.of("gpu.state") if seen.node == node for gpu in seen.facts.gpus}
    return found | {gpu.slot for seen in evidence.of("host.pci") if seen.node == node for gpu in seen.facts.of("gpu")}


def _p2p(seen: Seen, because: list[Reason], signal: str) -> Hypothesis:
    return Hypothesis(
        BLOCKED,
        {"node": seen.node} if seen.node else {},
        f"On {seen.node or 'a node'} {because[0].says}",
        tuple(because),
        (signal,),
        would_change=("the same job with NCCL_P2P_DISABLE=1, which then runs",),
        nodes=frozenset({seen.node}) if signal != "acs_on" else frozenset(),
    )


RULE = Rule((LINK, SWITCH, BLOCKED), judge)
