"""Who takes too slowly, by counters of adapters and switches: a host that posts its receives late, or a port that does
not drain.

An adapter drops what no receive was posted for (out_of_buffer, on the receiver), and tells the sender that it is not
ready (rnr_nak_retry_err, on the sender): NVIDIA, "Understanding mlx5 Linux Counters". So the host that receives is
slow, its CPU or NCCL's proxy thread, and the network is not. A port that discards what it should send has the port
behind its cable down, or that one takes too slowly (InfiniBand Architecture Specification vol. 1, 16.1.3.5).
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.ports import Ports, PortView
from probes.diagnosis.rules._rising import Odd, by_node, called, many, odd_ones, rose

HOST, SINK = "fw.rank_straggler", "ib.congestion"
DROPPED, NOT_READY, DISCARDS = "out_of_buffer", "rnr_nak_retry_err", "port_xmit_discards"
MOST = 4  # nodes that are told


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    dropped, refused = odd_ones(ports.of_nodes, DROPPED), odd_ones(ports.of_nodes, NOT_READY)
    for node, mine in list(by_node(dropped).items())[:MOST]:
        yield _receiver(node, mine, [one for one in refused if one[0].node != node])
    if refused and not dropped:
        yield _told_so(ports, refused)
    yield from _sinks(ports)


def _receiver(node: str, mine: list[Odd], refused: list[Odd]) -> Hypothesis:
    signals = (
        "receives_posted_late" if many(mine) else "receives_posted_late_few",
        *(("peers_told_not_ready",) if refused else ()),
    )
    because = [rose(view, DROPPED, count) for view, count in mine[:3]]
    because += [rose(view, NOT_READY, count) for view, count in refused[:3]]
    return Hypothesis(
        HOST, {"node": node} if node else {},
        f"{node or called(mine)} takes too slowly what its peers send: messages came before a receive was posted for "
        "them. That is its host (CPU, proxy threads of NCCL), not the network",
        tuple(because), signals,
        would_change=("the load, CPU quota and threads of that node", "the same counters a minute later, unchanged"),
        nodes=frozenset({node}),
    )  # fmt: skip


def _told_so(ports: Ports, refused: list[Odd]) -> Hypothesis:
    """Only senders tell it. The receiver is known where one node is left."""
    senders = {view.node for view, _ in refused}
    left = sorted({view.node for view in ports.of_nodes if view.known(NOT_READY)} - senders)
    slow = left[0] if len(left) == 1 else ""
    who = f"{slow} is" if slow else f"A host that {called(refused)} sends to is"
    return Hypothesis(
        HOST, {"node": slow} if slow else {},
        f"{who} not ready to receive what is sent: its CPU or NCCL's proxy threads are late, not the network",
        tuple(rose(view, NOT_READY, count) for view, count in refused[:4]),
        ("peers_not_ready" if many(refused) else "peers_not_ready_few",),
        would_change=("out_of_buffer of the other nodes, twice", "the load of the nodes that receive"),
        nodes=frozenset({slow} if slow else ()),
    )  # fmt: skip


def _sinks(ports: Ports) -> Iterator[Hypothesis]:
    for view, count in odd_ones(ports.views.values(), DISCARDS)[:MOST]:
        sink = ports.adapter_of(view)
        if _went_down(view) or _went_down(sink):
            continue  # a link that goes down discards what it had to send: it is the cause, and told by itself
        says = f"{view.called} discards what it should send"
        if sink is not view:
            says = f"{sink.called} takes too slowly, or not at all, what is sent to it: {says}"
        elif view.peer is not None:
            says += f": {view.peer[0]} port {view.peer[1]} behind it takes too slowly"
        else:
            says += ": who takes it behind that port is too slow"
        yield Hypothesis(
            SINK, sink.subject, says[:1].upper() + says[1:], (rose(view, DISCARDS, count),),
            ("discards_rise" if many([(view, count)]) else "discards_rise_few",),
            would_change=("discards and waits of the ports behind it, twice",), nodes=sink.nodes,
        )  # fmt: skip


def _went_down(view: PortView) -> bool:
    down = view.facts is not None and view.facts.state not in ("ACTIVE", None)
    return down or view.rise("link_downed", "link_down_events_phy") > 0


RULE = Rule((HOST, SINK), judge)
