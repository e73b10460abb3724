"""What NCCL found when it searched for rings: how good its paths are on each node, or that it read them from a file.

The search of each node goes into one graph for all, so one node that finds little takes the others down with it; and a
file of rings (NCCL_GRAPH_FILE) is believed without a look at the machine.

Source   NCCL graph/search.cc, ncclTopoPrintGraph, ncclTopoCompute; graph/connect.cc and init.cc take the minimum of all
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.gpus import gpu_states
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, number, odd_ones, whom
from probes.diagnosis.rules.nccl_topology_file import WITH_NVLINK

CAUSE = "nccl.topology_degraded"
RING = "4"  # NCCL_TOPO_PATTERN_RING: every communicator has one
PATTERNS = ("ring", "tree")
NEAR = ("NVL", "NVB", "C2C", "XGMI", "LOC")  # paths between GPUs that do not leave their own links
SLOW = 0.2  # GB/s and less is no path at all: search.cc falls back to 0.1


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _searched(evidence)
    yield from _from_file(evidence)


def _searched(evidence: Evidence) -> Iterator[Hypothesis]:
    found: dict[str, tuple[tuple[str, str, float], Said]] = {}
    pathless: dict[str, Said] = {}
    for one in evidence.job.said("nccl_graph"):
        node = node_of(evidence, one)
        if one[0].name == "simple order":
            pathless.setdefault(node, one)
        elif one[0].name == RING:
            more = one[0].more
            value = (str(more.get("type_intra")), str(more.get("type_inter")), number(more.get("intra")))
            found.setdefault(node, (value, one))
    odd = set(odd_ones({node: value for node, (value, _) in found.items()}))
    best = max((_rank(value) for value, _ in found.values()), default=(False, 0.0))
    worse = {node for node in odd if _much_less(_rank(found[node][0]), best)}
    bad = set(pathless) | {node for node, (value, _) in found.items() if value[2] <= SLOW} | worse
    others = set(found) - bad
    if not bad:
        return
    shown = [one for node in sorted(bad)[:2] for one in (pathless.get(node), found.get(node, (None, None))[1]) if one]
    because = [quoted(*one) for one in (*shown, *(found[node][1] for node in sorted(others)[:1]))]
    paths = next((found[node][0] for node in sorted(bad) if node in found), None)
    path = f": {paths[0]} between GPUs, {paths[1]} to the network" if paths else ""
    signals = ["graph_worse_than_others" if others else "no_path_found" if pathless else "graph_worse_than_others"]
    yield _of(evidence, bad, f"NCCL found no good rings on {listed(bad)}{path}", because, signals)


def _rank(value: tuple[str, str, float]) -> tuple[bool, float]:
    return value[0] in NEAR, value[2]


def _much_less(one: tuple[bool, float], best: tuple[bool, float]) -> bool:
    """Another kind of path, or less than half as fast: a little less may be of another communicator."""
    return one[0] < best[0] or one[1] < best[1] / 2


def _from_file(evidence: Evidence) -> Iterator[Hypothesis]:
    """Rings out of a file: suspicious where they are worse than what the machine has."""
    loaded: dict[str, Said] = {}
    for one in evidence.job.said("nccl_graph_file"):
        loaded.setdefault(node_of(evidence, one), one)
    settings = [one for one in evidence.job.said("nccl_setting") if one[0].name == "NCCL_GRAPH_FILE"]
    told = [seen for seen in evidence.of("host.settings") if seen.facts.env.get("NCCL_GRAPH_FILE")]
    files = [(seen, one) for seen in evidence.of("nccl.topology") for one in seen.facts.given("NCCL_GRAPH_FILE")]
    if not (loaded or settings or told or files):
        return
    because = [quoted(*one) for one in [*loaded.values(), *settings][:2]]
    because += [Reason(f"NCCL_GRAPH_FILE is {seen.facts.env['NCCL_GRAPH_FILE']}", seen.ref) for seen in told[:1]]
    because += [Reason(f"NCCL_GRAPH_FILE of ranks is {one.path}", seen.ref) for seen, one in files[:1]]
    signals = ["graph_from_file"]
    graphs = [(seen, one) for seen in evidence.of("nccl.graphs") for one in seen.facts.graphs]
    graphs += [(seen, one) for seen, file in files for one in file.graphs]
    poor = [
        (seen, one) for seen, one in graphs if one.intra and one.intra not in NEAR and one.pattern in ("ring", "tree")
    ]
    if (nvlink := _nvlink(evidence)) and poor:
        seen, one = poor[0]
        says = (
            f"that file has {one.channels} channels of a {one.pattern} over {one.intra} paths, {one.adapters} adapters"
        )
        because += [Reason(says, seen.ref), nvlink]
        signals.append("graph_file_without_nvlink")
    channels = [int(one[0].more.get("channels", 0)) for one in loaded.values()]
    adapters = _adapters(evidence)
    if channels and adapters is not None and 0 < max(channels) < adapters[0]:
        says = f"the file has {max(channels)} channels, though NCCL found {adapters[0]} adapters"
        because.append(Reason(says, adapters[1]))
        signals.append("fewer_channels_than_adapters")
    nodes = set(loaded) | {node_of(evidence, one) for one in settings} | {seen.node for seen, _ in files}
    some = set() if nodes >= set(evidence.nodes) else nodes
    yield _of(evidence, some, "NCCL takes its rings from a file that is not of this machine", because, signals)


def _nvlink(evidence: Evidence) -> Reason | None:
    for seen in evidence.of("gpu.topo"):
        kinds = set(seen.facts.pairs.values())
        if kinds and all(kind.startswith("NV") for kind in kinds):
            return Reason(f"its GPUs are connected by NVLink ({min(kinds)})", seen.ref)
    for seen in gpu_states(evidence):
        if name := next((gpu.name for gpu in seen.facts.gpus if gpu.name and WITH_NVLINK.search(gpu.name)), ""):
            return Reason(f"its GPUs are {name}, which have NVLink", seen.ref)
    return None


def _adapters(evidence: Evidence) -> tuple[int, str] | None:
    for one in evidence.job.said("nccl_net"):
        count = str(one[0].more.get("devices", "")).count(":1/")
        if one[0].name == "NET/IB" and count > 1:
            return count, one[2].ref
    return None


def _of(evidence: Evidence, nodes: set[str], says: str, because: list[Reason], signals: list[str]) -> Hypothesis:
    return Hypothesis(
        CAUSE, whom(nodes), says, tuple(because), tuple(signals),
        would_change=("NCCL_DEBUG_SUBSYS=GRAPH without a file of graphs or topology, which finds the same",),
        ranks=everyone(evidence), nodes=frozenset(nodes - {""}),
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
