"""NVLink or the NVSwitch fabric of a node is not there: by topo -m and nvlink against peers, fabric manager, error 802.

Also the way between the GPUs of a node that has no NVLink: ACS on bridges and the IOMMU send peers' traffic by the CPU,
or block it.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.gpu.links import HARMLESS
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.gpus import gpu_states, usual
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import node_of
from probes.diagnosis.times import times_of

LINK, SWITCH, BLOCKED = "gpu.nvlink_error", "gpu.nvswitch_fabric", "gpu.p2p_blocked"
GPU_DRIVERS = ("nvidia", "amdgpu")
RISES = 10  # errors between two looks; judgement: one may be left from a job's start
FIRST_COLLECTIVES = 8  # judgement: set-up, barriers and the first broadcast of a model
REFUSED = "peer access is not supported between these two devices"  # cudaErrorPeerAccessUnsupported
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
    yield from _rising(evidence)
    yield from _whole_nodes(evidence)
    yield from _fabric(evidence)
    yield from _blocked(evidence)


def _links(evidence: Evidence) -> Iterator[Hypothesis]:
    """One GPU without links that the others have."""
    codes = {
        "gpu.topo_no_nvlink": "nvlink_lost",
        "gpu.nvlink_inactive": "nvlink_lost",
        "gpu.nvlink_errors": "nvlink_counts",
        "gpu.nvlink_rising": "nvlink_errors_rise",
    }
    others = []
    for seen, finding in evidence.findings(*codes):
        signal = "nvlink_counts" if finding.severity == "warn" else codes[finding.code]
        subject: dict[str, str | int] = dict(finding.subject)
        ends = _other_ends(seen) if seen.node else {}
        if (mine := subject.get("gpu")) in ends:
            at = ends[mine]
            subject = {} if at is None else {"gpu": at}
        if seen.node:
            subject["node"] = seen.node
        found = Hypothesis(
            LINK,
            subject,
            f"On {seen.node or 'a node'} {finding.says}",
            (Reason(finding.says, seen.ref),),
            (signal,),
            would_change=("all links of that GPU active at a second look",),
            nodes=frozenset() if signal == "nvlink_counts" else frozenset({seen.node}),
        )
        if subject.get("gpu") == mine:
            yield found
        else:
            others.append(found)  # whose words count after those of the GPU itself
    yield from others


def _other_ends(seen: Seen) -> dict[object, int | None]:
    """{GPU: the one whose links it misses} where GPUs are joined directly and all that miss links are ends of the same:
    of a bridge both, and nothing tells which is at fault; of a mesh one GPU and all that it was joined to."""
    down = {
        one.gpu: [link for link, speed in one.speeds.items() if speed is None]
        for one in (seen.facts.gpus if seen.probe == "gpu.nvlink" else ())
    }
    some = sorted((gpu for gpu in down if down[gpu]), key=lambda gpu: -len(down[gpu]))
    if len(some) == 2 and down[some[0]] == down[some[1]]:
        return dict.fromkeys(some)
    joined = len(some) > 2 and len(down[some[0]]) == sum(len(down[gpu]) for gpu in some[1:])
    return dict.fromkeys(some, some[0]) if joined else {}


def _rising(evidence: Evidence) -> Iterator[Hypothesis]:
    """Errors that a link could not repair, more of them at one look than at another: they are of now."""
    looks: dict[tuple[str, int], list[tuple[dict[str, int], Seen]]] = {}
    for seen in evidence.of("gpu.nvlink"):
        for gpu in seen.facts.gpus:
            bad = {kind: count for kind, count in gpu.errors.items() if not kind.startswith(HARMLESS)}
            if bad:
                looks.setdefault((seen.node, gpu.gpu), []).append((bad, seen))
    for (node, number), several in looks.items():
        totals = [sum(bad.values()) for bad, _ in several]
        more = max(totals) - min(totals)
        if len(several) < 2 or more < RISES:
            continue
        kinds = ", ".join(list(several[totals.index(max(totals))][0])[:4])
        says = f"GPU {number}: {more} more NVLink errors ({kinds}) at one look than at another"
        yield Hypothesis(
            LINK,
            {"node": node, "gpu": number} if node else {"gpu": number},
            f"On {node or 'a node'} {says}",
            tuple(Reason(says, seen.ref) for _, seen in several[:2]),
            ("nvlink_errors_rise",),
            would_change=("two looks a minute apart with the same counts",),
            nodes=frozenset({node}),
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
    refused = [one for one in symptoms if REFUSED in one[0].text]
    if refused:
        node = node_of(evidence, refused[0])
        yield Hypothesis(
            BLOCKED,
            {"node": node} if node else {},
            f"On {node or 'a node'} CUDA refuses one GPU the memory of another: {REFUSED}",
            (quoted(*refused[0]),),
            ("peer_access_refused",),
            would_change=("the same job with NCCL_P2P_DISABLE=1, which then runs",),
            ranks=frozenset(one[0].rank for one in refused if one[0].rank is not None),
            nodes=frozenset({node}),
        )
    yield from _by_acs(evidence, told)
    for seen in evidence.of("host.kernel_log"):
        if not seen.facts.iommu_faults:
            continue
        gpus = _gpus_of_node(evidence, seen.node)
        said = [finding for finding in seen.findings if finding.code == "kernel.iommu_fault"]
        found = []
        for event, finding in zip(seen.facts.iommu_faults, said, strict=False):
            of_gpu = event.device in gpus or event.driver in GPU_DRIVERS
            if not times.old(seen.node, event.last_at, event.last) and (of_gpu or told):
                found.append((of_gpu, Reason(finding.says, seen.ref)))
        if found:
            sure = any(of_gpu for of_gpu, _ in found)
            because = [reason for _, reason in sorted(found, key=lambda one: not one[0])[:3]]
            yield _p2p(seen, [*because, *told], ("iommu_refuses_gpu" if sure else "iommu_refuses_some",))


def _by_acs(evidence: Evidence, told: list[Reason]) -> Iterator[Hypothesis]:
    """Bridges above GPUs that send peers' traffic up to the CPU: on many machines so, and no fault by itself."""
    on: dict[str, tuple[Seen, str]] = {}
    off: list[str] = []
    for seen in evidence.of("host.pci"):
        if seen.facts.virtual:
            continue
        said = next((finding.says for finding in seen.findings if finding.code == "pci.acs"), "")
        bridges = [one for one in seen.facts.of("bridge") if one.redirects is not None]
        if not said and not seen.facts.of("gpu"):  # a list of bridges only: the GPUs are told elsewhere
            buses = {int(slot.split(":")[1], 16) for slot in _gpus_of_node(evidence, seen.node) if slot.count(":") == 2}
            above = [one for one in bridges if one.redirects and _above(one.below, buses)]
            said = (
                f"ACS redirects peer traffic on {len(above)} PCIe bridges: GPUs talk by way of the CPU" if above else ""
            )
        if said:
            on[seen.node] = (seen, said)
        elif bridges and not any(one.redirects for one in bridges):
            off.append(seen.node)
    stopped = _first_stopped(evidence)
    for node, (seen, said) in on.items():
        signals = ["acs_and_peer_errors" if told else "acs_and_first_collective" if stopped else "acs_on"]
        because = [Reason(said, seen.ref), *told]
        if stopped and not told:
            because.append(stopped)
        if off and node not in off:
            signals.append("acs_unlike_peers")
            because.append(Reason(f"on {len(off)} other nodes no bridge redirects", seen.ref))
        yield _p2p(seen, because, tuple(signals))


def _above(below: tuple[int, int] | None, buses: set[int]) -> bool:
    return not buses or below is None or any(below[0] <= bus <= below[1] for bus in buses)


def _first_stopped(evidence: Evidence) -> Reason | None:
    """The first collectives never ended although NCCL had set up peer-to-peer links: the way between GPUs is broken."""
    links = [event for event, _, _ in evidence.job.said("nccl_link") if "P2P" in event.name]
    if not links or next(evidence.job.said("progress"), None) is not None:
        return None
    waited = [one for one in evidence.job.said("watchdog_timeout") if one[0].seq is not None]
    if not waited or max(one[0].seq or 0 for one in waited) > FIRST_COLLECTIVES:
        return None
    return quoted(*waited[0])


def _gpus_of_node(evidence: Evidence, node: str) -> set[str]:
    found = {gpu.bus_id for seen in gpu_states(evidence) if seen.node == node for gpu in seen.facts.gpus}
    return found | {gpu.slot for seen in evidence.of("host.pci") if seen.node == node for gpu in seen.facts.of("gpu")}


def _p2p(seen: Seen, because: list[Reason], signals: tuple[str, ...]) -> Hypothesis:
    return Hypothesis(
        BLOCKED,
        {"node": seen.node} if seen.node else {},
        f"On {seen.node or 'a node'} {because[0].says}",
        tuple(because),
        signals,
        would_change=("the same job with NCCL_P2P_DISABLE=1, which then runs",),
        nodes=frozenset({seen.node}) if signals[0] != "acs_on" else frozenset(),
    )


RULE = Rule((LINK, SWITCH, BLOCKED), judge)
