"""The MTU differs between nodes: short messages pass, long ones are lost (NCCL from 2.20 on does not take the smaller
one, NVIDIA/nccl#1524). By the interfaces and ports of the nodes, and by the queue pairs that NCCL logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.interfaces import NOT_TRAINING, training_interfaces
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, odd_ones, whom
from probes.diagnosis.ports import Ports

CAUSE = "net.mtu_mismatch"
BYTES = {1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}  # enum ibv_mtu
JUMBO, FEWEST = 2000, 3  # bytes, nodes; judgement: who sets large frames on so many nodes does so for the job's data
TOO_LONG = 1  # IBV_WC_LOC_LEN_ERR


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _by_interfaces(evidence)
    yield from _by_queue_pairs(evidence)


def _by_interfaces(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    training = training_interfaces(evidence, ports)
    by_name: dict[str, list[tuple[str, int, str]]] = {}
    for (node, name), (link, ref) in ports.links.items():
        if link.mtu is not None and not name.startswith(NOT_TRAINING) and link.up is not False:
            by_name.setdefault(name, []).append((node, link.mtu, ref))
    for view in ports.of_nodes:
        if view.facts is not None and view.facts.mtu is not None and view.facts.state in ("ACTIVE", None):
            by_name.setdefault(view.hca, []).append((view.node, view.facts.mtu, view.mtu_ref or view.ref))
    told: dict[tuple[frozenset[str], str], list[_Odd]] = {}
    for name, found in by_name.items():
        counts = Counter(mtu for _, mtu, _ in found)
        if len({node for node, _, _ in found}) < 2 or len(counts) < 2:
            continue
        most, count = counts.most_common(1)[0]
        used = name in training or any(name == view.hca for view in ports.of_nodes)
        jumbo = most > JUMBO and count >= FEWEST
        if not used and not jumbo and _large_beside(by_name, name):
            continue
        signal = "mtu_differs" if used else "mtu_differs_jumbo" if jumbo else "mtu_differs_elsewhere"
        odd = [(node, mtu, ref) for node, mtu, ref in found if mtu != most]
        like = next(ref for _, mtu, ref in found if mtu == most)
        one = _Odd(name, odd, most, count, like, count * 2 > len(found))
        told.setdefault((frozenset(node for node, _, _ in odd), signal), []).append(one)
    for (nodes, signal), some in told.items():
        yield _said(nodes, signal, some)


def _large_beside(by_name: dict[str, list[tuple[str, int, str]]], name: str) -> bool:
    """Whether the same nodes all send large frames by another interface: that is the job's, this one is for logins."""
    nodes = {node for node, _, _ in by_name[name]}
    return any(
        other != name and nodes <= {node for node, _, _ in found} and all(mtu > JUMBO for _, mtu, _ in found)
        for other, found in by_name.items()
    )


class _Odd(NamedTuple):
    """One interface, and where its MTU is unlike that of most."""

    name: str
    odd: list[tuple[str, int, str]]
    most: int
    alike: int
    like: str
    settled: bool


def _said(nodes: frozenset[str], signal: str, some: list[_Odd]) -> Hypothesis:
    """Several interfaces that differ on the same nodes are one fault."""
    because = [
        Reason(f"{one.name or 'an interface'} on {node}: MTU {mtu}", ref)
        for one in some[:3]
        for node, mtu, ref in one.odd[:3]
    ]
    because += [Reason(f"{one.name or 'it'} on {one.alike} nodes: MTU {one.most}", one.like) for one in some[:2]]
    first = some[0]
    subject: dict[str, str | int] = {"device": first.name} if len(some) == 1 and first.name else {}
    if len(nodes) == 1 and all(one.settled for one in some):
        subject = {"node": first.odd[0][0], **subject}
    more = f" and {len(nodes) - 1} more nodes" if len(nodes) > 1 else ""
    what = (first.name or "an interface") if len(some) == 1 else f"{first.name} and {len(some) - 1} more interfaces"
    return Hypothesis(
        CAUSE, subject,
        f"MTU of {what} is {first.odd[0][1]} on {first.odd[0][0]}{more}, {first.most} on {first.alike} others",
        tuple(because), (signal,),
        would_change=("a ping of full size without fragments between these nodes",), nodes=nodes,
    )  # fmt: skip


def _by_queue_pairs(evidence: Evidence) -> Iterator[Hypothesis]:
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
        ("mtu_differs", *(("message_too_long",) if long else ())),
        would_change=("active_mtu of ibv_devinfo, the same on every node",),
        ranks=everyone(evidence),
        nodes=frozenset(odd),
    )


RULE = Rule((CAUSE,), judge)
