"""The MTU differs between nodes: short messages pass, long ones are lost (NCCL from 2.20 on does not take the smaller
one, NVIDIA/nccl#1524)."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, odd_ones, whom

CAUSE = "net.mtu_mismatch"
BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}  # enum ibv_mtu
TOO_LONG = 1  # IBV_WC_LOC_LEN_ERR


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    told: dict[str, set[int]] = {}
    lines: dict[str, Said] = {}
    for one in evidence.job.said("nccl_qp"):
        mtu = BYTES.get(int(one[0].more.get("mtu", 0)))
        if mtu:
            node = node_of(evidence, one)
            told.setdefault(node, set()).add(mtu)
            lines.setdefault(node, one)
    values: dict[str, object] = {node: min(sizes) for node, sizes in told.items()}
    if len(set(values.values())) < 2:
        return
    odd = odd_ones(values)
    long = [one for one in evidence.job.said("ib_completion") if one[0].code == TOO_LONG]
    sizes = ", ".join(f"{values[node]} bytes on {node or 'a node'}" for node in sorted(values)[:4])
    yield Hypothesis(
        CAUSE,
        whom(odd),
        f"The InfiniBand MTU of {listed(odd) if odd else 'the nodes'} differs: {sizes}",
        tuple(quoted(*lines[node]) for node in (*odd, *values))[:4] + tuple(quoted(*one) for one in long[:2]),
        ("mtu_differs_in_log", *(("message_too_long",) if long else ())),
        would_change=("active_mtu of ibv_devinfo, the same on every node",),
        ranks=everyone(evidence),
        nodes=frozenset(odd),
    )


RULE = Rule((CAUSE,), judge)
