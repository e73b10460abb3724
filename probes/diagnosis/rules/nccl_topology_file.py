"""The file that tells NCCL how its machine is built: it is missing on a node, or it is that of another machine.

In virtual machines the guest does not see the switches between GPUs and adapters, so a file tells them. Without it NCCL
takes every adapter for far away: no GPUDirect, fewer channels; with a wrong one it may not even find NVLink.

Source   NCCL graph/topo.cc and graph/xml.cc: NCCL_TOPO_FILE; that of topologyd is tried unasked
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.gpus import gpu_states
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, odd_ones, whom

CAUSE = "nccl.topology_degraded"
# Models of which every GPU has NVLink, by the names that the driver gives them.
WITH_NVLINK = re.compile(r"SXM|HGX|NVL\b|H100 80GB HBM3|H200(?! NVL)|B[23]00|GB[23]00", re.I)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    asked: dict[str, Reason] = {}
    missing: dict[str, tuple[str, Reason]] = {}  # node -> path of the file
    loaded: dict[str, Reason] = {}
    for one in evidence.job.said("nccl_topo_file"):
        if one[0].name == "Loading":
            loaded.setdefault(node_of(evidence, one), quoted(*one))
        elif one[0].name == "Could not open" and "topologyd" not in one[0].where:
            missing.setdefault(node_of(evidence, one), (one[0].where, quoted(*one)))
    for one in evidence.job.said("nccl_setting"):
        if one[0].name == "NCCL_TOPO_FILE":
            asked.setdefault(node_of(evidence, one), quoted(*one))
    for seen in evidence.of("nccl.topology"):
        for file in seen.facts.given("NCCL_TOPO_FILE"):
            there = Reason(f"NCCL_TOPO_FILE is {file.path} on {seen.node or 'a node'}", seen.ref)
            if file.outcome == "missing":
                gone = Reason(f"{file.path} is not there for the ranks of {seen.node or 'a node'}", seen.ref)
                missing.setdefault(seen.node, (file.path, gone))
            elif file.outcome == "ok":
                loaded.setdefault(seen.node, there)
    systems = _systems(evidence)
    odd = odd_ones({node: value for node, (value, _) in systems.items()})
    if missing:
        yield _missing(evidence, missing, set(loaded) - set(missing), {node: systems[node][1] for node in odd})
    elif odd:
        yield _slower(evidence, systems, odd)
    yield from _of_another(evidence, loaded or asked)


def _systems(evidence: Evidence) -> dict[str, tuple[str, Said]]:
    found: dict[str, tuple[str, Said]] = {}
    for one in evidence.job.said("nccl_system"):
        value = f"{one[0].more.get('most')} of {one[0].more.get('total')}"
        found.setdefault(node_of(evidence, one), (value, one))
    return found


def _missing(
    evidence: Evidence, missing: dict[str, tuple[str, Reason]], others: set[str], odd: dict[str, Said]
) -> Hypothesis:
    """`odd`: what NCCL says of the nodes that it takes for other machines than the rest."""
    signals = ["topology_file_missing_here" if others else "topology_file_missing"]
    because = [reason for _, reason in list(missing.values())[:3]]
    if odd and set(odd) <= set(missing):
        signals.append("system_differs")
        because += [quoted(*one) for one in list(odd.values())[:2]]
    elsewhere = f", which {listed(others)} loaded" if others else ""
    return _of(
        evidence, set(missing), f"NCCL on {listed(set(missing))} could not open its topology file{elsewhere}", because,
        signals, (f"the file {next(iter(missing.values()))[0]} in the ranks' container",),
    )  # fmt: skip


def _slower(evidence: Evidence, systems: dict[str, tuple[str, Said]], odd: Sequence[str]) -> Hypothesis:
    like = next(node for node in systems if node not in odd)
    because = [quoted(*systems[node][1]) for node in (*odd[:2], like)]
    says = f"NCCL takes {listed(set(odd))} for another machine than {like}: {systems[odd[0]][0]} GB/s"
    return _of(evidence, set(odd), says, because, ["system_differs"], ("nodes of several kinds in the job",))


def _of_another(evidence: Evidence, given: dict[str, Reason]) -> Iterator[Hypothesis]:
    """A file was given, NCCL then knows no NVLink, and its GPUs have it."""
    if not given:
        return
    hops: dict[str, dict[str, Said]] = {}
    for one in evidence.job.said("nccl_hop"):
        hops.setdefault(node_of(evidence, one), {}).setdefault(one[0].name, one)
    links: dict[str, set[str]] = {}
    for one in evidence.job.said("nccl_link"):
        links.setdefault(node_of(evidence, one), set()).add(one[0].name.partition("/")[0])
    names = [one for one in evidence.job.said("gpu_name") if WITH_NVLINK.search(one[0].name)]
    models = [(gpu.name, seen.ref) for seen in gpu_states(evidence) for gpu in seen.facts.gpus if gpu.name]
    known = [Reason(f"GPUs are {name}, which have NVLink", ref) for name, ref in models if WITH_NVLINK.search(name)]
    known += [quoted(*one) for one in names]
    blind = {node for node in given if node in hops and "NVL" not in hops[node] and "P2P" not in links.get(node, ())}
    dumped = _without_links(evidence)
    blind |= set(given) & set(dumped)
    if not blind or not known:
        return
    because = [given[node] for node in sorted(blind)[:2]] + known[:1]
    first = min(blind)
    because += [dumped[first] if first in dumped else quoted(*next(iter(hops[first].values())))]
    signals = ["topology_file_hides_nvlink"]
    says = f"The topology file of {listed(blind)} is not of this machine: NCCL knows no NVLink between its GPUs"
    yield _of(evidence, blind, says, because, signals, ("the same without NCCL_TOPO_FILE",))


def _without_links(evidence: Evidence) -> dict[str, Reason]:
    """Nodes of which NCCL wrote what it found there since the job began: several GPUs and no link of theirs."""
    dumps = [(seen, file.path, file.system, file.old) for seen in evidence.of("nccl.topology")
        for file in seen.facts.given("NCCL_TOPO_DUMP_FILE")]  # fmt: skip
    dumps += [(seen, seen.ref.rpartition("/")[2], seen.facts, False) for seen in evidence.of("nccl.system")]
    found = {}
    for seen, path, machine, old in dumps:
        if machine is not None and machine.seen and machine.gpus > 1 and not machine.links and not old:
            says = f"NCCL wrote into {path} that it found {machine.gpus} GPUs and no NVLink"
            found[seen.node] = Reason(says, seen.ref)
    return found


def _of(
    evidence: Evidence, nodes: set[str], says: str, because: list[Reason], signals: list[str], would: tuple[str, ...]
) -> Hypothesis:
    return Hypothesis(
        CAUSE, whom(nodes), says, tuple(because), tuple(signals), would_change=would,
        ranks=everyone(evidence), nodes=frozenset(nodes),
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
