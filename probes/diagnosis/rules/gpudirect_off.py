"""Some ranks move GPU memory through the host: the module is not loaded there, or NCCL took no direct path."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import quoted

CAUSE = "ib.gpudirect_off"
MODULES = ("nvidia_peermem", "nv_peer_mem", "nv_peermem")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    have: list[Seen] = []
    lack: list[Seen] = []
    for seen in evidence.of("host.settings"):
        if seen.facts.modules is not None and any(name.startswith("nvidia") for name in seen.facts.modules):
            (have if set(MODULES) & set(seen.facts.modules) else lack).append(seen)
    direct: dict[str, bool] = {}
    lines: dict[str, Reason] = {}
    for event, log, seen in evidence.job.said("nccl_link", "nccl_net"):
        if "NET/" not in event.name or event.rank is None or "NET/Socket" in event.name or event.kind == "nccl_net":
            continue
        node = seen.node or evidence.job.view(event.rank).node or f"rank {event.rank}"
        direct[node] = direct.get(node, False) or "GDR" in event.name
        lines.setdefault(node, quoted(event, log, seen))
    off = {node for node, used in direct.items() if not used}
    odd = off if off and len(off) < len(direct) else set()
    for seen in lack:
        if not have and seen.node not in odd:
            continue
        because = [
            Reason(
                f"nvidia_peermem is not loaded on {seen.node or 'this node'}, on {len(have)} other nodes it is",
                seen.ref,
            )
        ]
        signals = ["peermem_missing"]
        if seen.node in off:
            because.append(lines[seen.node])
            signals.append("no_direct_path")
        against: tuple[Reason, ...] = ()
        if direct.get(seen.node):
            against = (Reason("NCCL uses a direct path there all the same (dma-buf)", lines[seen.node].reading),)
            signals = ["peermem_not_needed"]
        yield _off(seen.node, because, signals, against)
    named = {seen.node for seen in lack if have or seen.node in odd}
    for node in sorted(odd - named):
        yield _off(node, [lines[node]], ["no_direct_path"], ())


def _off(node: str, because: list[Reason], signals: list[str], against: tuple[Reason, ...]) -> Hypothesis:
    is_rank = node.startswith("rank ")
    return Hypothesis(
        CAUSE, {"rank": int(node[5:])} if is_rank else {"node": node},
        f"GPUDirect RDMA is off on {node}: its data goes through host memory",
        tuple(because), tuple(signals), against=against,
        would_change=("links of NCCL `via NET/IB/.../GDRDMA` on it", "a driver and NCCL that use dma-buf instead"),
        nodes=frozenset() if is_rank else frozenset({node}),
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
