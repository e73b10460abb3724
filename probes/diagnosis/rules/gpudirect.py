"""GPUDirect RDMA is off on some nodes and on on others: those without copy everything through the host's memory."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, whom

CAUSE = "ib.gpudirect_off"


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
    yield Hypothesis(
        CAUSE,
        whom(without) if differs else {},
        f"GPUDirect RDMA is off on {listed(without)}" + (f", and works on {listed(on)}" if differs else ""),
        tuple(quoted(*one) for one in (*list(without.values())[:3], *list(on.values())[:1])),
        ("gpudirect_differs",) if differs else ("gpudirect_off_everywhere",),
        would_change=("nvidia_peermem loaded, or DMA-BUF available, on that node", "ACS off on its PCIe bridges"),
        ranks=everyone(evidence),
        nodes=frozenset(without),
    )


RULE = Rule((CAUSE,), judge)
