"""GPUDirect RDMA is off on some nodes and on on others: those without copy everything through the host's memory."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, whom

CAUSE = "ib.gpudirect_off"
MODULES = ("nvidia_peermem", "nv_peer_mem", "nv_peermem")
LARGE = 64 * 2**20  # bytes of a message: smaller ones do not fill the links; judgement
SLOW_GBYTES = 4.0  # bus bandwidth per adapter; judgement: a third of 100 Gb/s, and GPUDirect reaches nearly all of it


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    on: dict[str, Said] = {}
    off: dict[str, Said] = {}
    for one in evidence.job.said("nccl_gdr"):
        (on if one[0].name.lower() == "enabled" else off).setdefault(node_of(evidence, one), one)
    for one in evidence.job.said("nccl_link"):
        if one[0].name.startswith("NET/IB"):
            (on if "GDRDMA" in one[0].name else off).setdefault(node_of(evidence, one), one)
    without = {node: one for node, one in off.items() if node not in on}
    if not without:
        return
    differs = bool(on)
    lacks = [] if differs else _modules_missing(evidence, set(without))
    slow = [] if differs else slow_test(evidence)
    signals = ["gpudirect_differs" if differs else "gpudirect_off_everywhere"]
    signals += (["peermem_missing_everywhere"] if lacks else []) + (["bandwidth_low"] if slow else [])
    yield Hypothesis(
        CAUSE,
        whom(without) if differs else {},
        f"GPUDirect RDMA is off on {listed(without)}" + (f", and works on {listed(on)}" if differs else ""),
        (*(quoted(*one) for one in (*list(without.values())[:3], *list(on.values())[:1])), *lacks[:2], *slow),
        tuple(signals),
        would_change=("nvidia_peermem loaded, or DMA-BUF available, on that node", "ACS off on its PCIe bridges"),
        ranks=everyone(evidence),
        nodes=frozenset(without),
    )


def _modules_missing(evidence: Evidence, nodes: set[str]) -> list[Reason]:
    """That no node has the module, where one was asked. Its adapter's driver must be there: else no RDMA is meant."""
    found = []
    for seen in evidence.of("host.settings"):
        modules = set(seen.facts.modules or ())
        if seen.facts.modules is None or not {"nvidia", "ib_uverbs"} <= modules:
            continue
        if modules & set(MODULES):
            return []
        if seen.node in nodes or not seen.node:
            found.append(Reason(f"no module for GPUDirect RDMA is loaded on {seen.node or 'a node'}", seen.ref))
    return found if 2 * len(found) >= len(nodes) else []


def slow_test(evidence: Evidence) -> list[Reason]:
    """What nccl-tests measured, where its best is far below what that many adapters carry."""
    adapters = max(
        (str(one[0].more.get("devices", "")).count(":1/") for one in evidence.job.said("nccl_net")
         if one[0].name == "NET/IB"), default=0
    )  # fmt: skip
    measured = [
        (_number(one[0].more.get("busbw")), one)
        for one in evidence.job.said("bandwidth")
        if _number(one[0].more.get("bytes")) >= LARGE
    ]
    if not measured or not adapters:
        return []
    best, (event, log, seen) = max(measured, key=lambda one: one[0])
    if best >= SLOW_GBYTES * adapters:
        return []
    return [quoted(event, log, seen, f"nccl-tests measured {best:g} GB/s of bus bandwidth over {adapters} adapters")]


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0


RULE = Rule((CAUSE,), judge)
