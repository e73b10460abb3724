"""Large frames are lost on the way while small ones pass: something between two nodes has a smaller MTU than they.

Connections open and short messages arrive, then the first long one never does: TCP sends it again and again and waits
ever longer (RFC 2923, 2.1). A peer that died looks the same, so another connection to it must be alive. Frames need not
be jumbo: a tunnel between containers takes 20 to 60 bytes of each packet, so 1500 do not fit into one of 1450.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from probes.catalog.network.net_facts import OVERHEAD, Ping, Socket
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.interfaces import NOT_TRAINING
from probes.diagnosis.log_evidence import everyone, listed, whom
from probes.diagnosis.sockets import sockets_of

CAUSE = "net.mtu_mismatch"
JUMBO = 2000  # bytes: more than a frame of 1500 carries
FULL = 1280  # bytes: every IPv6 path passes as much (RFC 8200, 5); a loss of less is no question of size
FEW = 4  # judgement: full segments; a connection that got less through may have sent short messages only
BACKOFF, AGAIN = 3, 5  # doublings, retransmissions: far beyond what a lost packet or two take; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _own_limit(evidence)
    because, signals = _by_ping(evidence)
    stuck = [(seen, one) for seen, sockets in sockets_of(evidence) for one in sockets if _stuck(one)]
    alive = [(seen, one) for seen, one in stuck if _alive(evidence, one)]
    jumbo = any((one.mss or 0) >= JUMBO for _, one in alive or stuck)
    if stuck and (alive or jumbo):
        signals.append(("jumbo_stuck_beside_others" if alive else "jumbo_stuck") if jumbo else "segments_stuck")
        because += [_told(seen, one) for seen, one in (alive or stuck)[:3]]
    size = max([one.mss or 0 for _, one in stuck], default=0) or JUMBO
    if because and (between := _smaller(evidence, size)):
        signals.append("mtu_smaller_between")
        because += between[:2]
    tunnels, signal = _tunnels(evidence)
    if tunnels:
        signals.append(signal)
        because += tunnels[:3]
    if not because:
        return
    odd = _odd_one(evidence)
    where = f"to and from {odd}" if odd else "between nodes"
    says = f"Large frames are lost {where}, small ones pass: something on the way has a smaller MTU"
    if signals == [signal]:
        says = f"The MTU of a tunnel does not fit: {tunnels[0].says}"
    yield Hypothesis(
        CAUSE, {"node": odd} if odd else {}, says, tuple(because), tuple(signals),
        would_change=("`ping -M do -s` with the size of full frames that is answered", "MTU of what lies between"),
        ranks=everyone(evidence), nodes=frozenset(seen.node for seen, _ in stuck if seen.node),
    )  # fmt: skip


def _tunnels(evidence: Evidence) -> tuple[list[Reason], str]:
    """Tunnels that are too large for what carries them, or too small for the containers that send through them."""
    links = [(seen, link) for seen in evidence.of("net.links") for link in seen.facts.links if link.mtu is not None]
    found = []
    for seen, link in links:
        under = next((one for other, one in links if other.node == seen.node and one.name == link.over), None)
        need = (link.mtu or 0) + OVERHEAD.get(link.tunnel, 0)
        if link.over and link.tunnel and under is not None and under.mtu is not None and need > under.mtu:
            says = f"{link.name} on {seen.node or 'a node'} carries {link.mtu} bytes over {under.name}, which passes"
            found.append(Reason(f"{says} {under.mtu}: with the tunnel's own it needs {need}", seen.ref))
    if found:
        return found, "tunnel_larger_than_its_way"
    small = [(seen, link) for seen, link in links if link.tunnel and link.tunnel not in ("ipip", "sit")]
    small += [(seen, link) for seen, link in links if link.tunnel in ("ipip", "sit") and link.up]  # else made unasked
    least = min((link.mtu or 0 for _, link in small), default=0)
    large = [(seen, link) for seen, link in links if link.in_container and (link.mtu or 0) > least > 0]
    for seen, link in large[:2]:
        found.append(Reason(f"{link.name} of {seen.node or 'a container'} sends up to {link.mtu} bytes", seen.ref))
    if large:
        seen, link = next(one for one in small if one[1].mtu == least)
        found.append(Reason(f"the tunnel {link.name} on {seen.node or 'a node'} passes {link.mtu} bytes", seen.ref))
    return found, "container_larger_than_tunnel"


def _own_limit(evidence: Evidence) -> Iterator[Hypothesis]:
    """A node whose own interface refuses the size that others send."""
    runs = [(seen, one) for seen in evidence.of("host.settings") for one in seen.facts.pings if one.size > JUMBO]
    sends = {_from(seen, one) for seen, one in runs if one.received}
    refuses = {
        _from(seen, one): (seen, one) for seen, one in runs if one.smaller and not one.router and not one.received
    }
    if not sends or not refuses or sends & set(refuses):
        return
    told = [Reason(f"{node or 'a node'} itself sends {one.smaller} bytes at most", seen.ref)
        for node, (seen, one) in refuses.items()]  # fmt: skip
    yield Hypothesis(
        CAUSE, whom(refuses), f"The MTU of {listed(refuses)} is smaller than that of {listed(sends)}",
        tuple(told[:4]), ("mtu_differs_elsewhere",),
        would_change=("the same MTU on the interfaces that the job uses",), nodes=frozenset(refuses),
    )  # fmt: skip


def _by_ping(evidence: Evidence) -> tuple[list[Reason], list[str]]:
    runs: list[tuple[Seen, Ping]] = [(seen, one) for seen in evidence.of("host.settings") for one in seen.facts.pings]
    passed: dict[tuple[str, str], int] = {}
    for seen, one in runs:
        if one.received:
            passed[_from(seen, one), one.peer] = max(passed.get((_from(seen, one), one.peer), 0), one.size)
    failed = [(seen, one) for seen, one in runs if one.size > FULL and one.sent and not one.received]
    failed = [(seen, one) for seen, one in failed if passed.get((_from(seen, one), one.peer), 0) < one.size]
    told = [(seen, one) for seen, one in failed if one.router]
    senders = {_from(seen, one) for seen, one in runs if one.received and one.size > JUMBO}
    lost = [(seen, one) for seen, one in failed if one.smaller is None or _from(seen, one) in senders]
    sure = [(seen, one) for seen, one in lost if (_from(seen, one), one.peer) in passed]
    alone = [(seen, one) for seen, one in lost if one.size > JUMBO]
    large = [(seen, one) for seen, one in told if one.size > JUMBO]
    shown = large or sure or told or alone
    if not shown:
        return [], []
    # A router that tells helps senders of usual frames: they send smaller ones then (RFC 1191).
    signal = "large_pings_lost" if sure else "path_smaller_told" if told else "large_pings_lost_alone"
    says = [
        Reason(
            f"packets of {one.size} bytes from {_from(seen, one) or 'a node'} to {one.peer or 'its peer'} are lost"
            + (f": a router passes {one.smaller}" if one.router and one.smaller else "")
            + (f", {size} bytes arrive" if (size := passed.get((_from(seen, one), one.peer), 0)) else ""),
            seen.ref,
        )
        for seen, one in shown[:3]
    ]
    return says, ["frame_too_big_for_router" if large else signal]


def _from(seen: Seen, one: Ping) -> str:
    return one.source or seen.node


def _odd_one(evidence: Evidence) -> str:
    """The node that every pair which loses large packets has in common, while large ones pass between others."""
    large = [
        ({_from(seen, one), one.peer}, bool(one.received))
        for seen in evidence.of("host.settings")
        for one in seen.facts.pings
        if one.size > JUMBO and _from(seen, one)
    ]
    lost = [pair for pair, arrived in large if not arrived and len(pair) == 2]
    shared = set.intersection(*lost) if len({frozenset(pair) for pair in lost}) > 1 else set()
    others = any(arrived and not shared & pair for pair, arrived in large)
    return shared.pop() if len(shared) == 1 and others else ""


def _stuck(one: Socket) -> bool:
    mss, acked = one.mss or 0, one.acked or 0
    in_vain = one.retransmits >= AGAIN and one.retransmits * mss > acked  # a lossy one gets on all the same
    tries = one.backoff >= BACKOFF or in_vain
    waits = one.state == "ESTAB" and one.send_queue > mss and tries and not one.probes_window
    if mss >= JUMBO:
        return waits and acked > 0
    return waits and mss + 40 >= FULL and acked < FEW * mss  # none of its full segments ever arrived


def _host(end: str) -> str:
    """The address of an end; ::ffff:10.0.0.1 is 10.0.0.1."""
    address = end.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(getattr(found, "ipv4_mapped", None) or found)


def _alive(evidence: Evidence, stuck: Socket) -> bool:
    """Another connection between the two, which is not stuck."""
    ends = {_host(stuck.local), _host(stuck.peer)}
    return len(ends) == 2 and any(
        one.state == "ESTAB" and not one.backoff and {_host(one.local), _host(one.peer)} == ends
        and {one.local, one.peer} != {stuck.local, stuck.peer}
        for _, sockets in sockets_of(evidence)
        for one in sockets
    )  # fmt: skip


def _told(seen: Seen, one: Socket) -> Reason:
    often = f"{one.retransmits} times" if one.retransmits else "again and again"
    arrived = f"{one.acked:,}" if one.acked else "none"
    return Reason(
        f"{one.local} sends segments of {one.mss} bytes to {one.peer} {often} in vain; {one.send_queue:,} bytes wait, "
        f"{arrived} arrived before",
        seen.ref,
    )


def _smaller(evidence: Evidence, size: int) -> list[Reason]:
    """Bridges and their like with a smaller MTU than the frames that wait."""
    found = []
    for seen in evidence.of("net.links"):
        masters = {link.master for link in seen.facts.links if link.master}
        for link in seen.facts.links:
            small = link.mtu is not None and link.mtu < size and link.up is not False
            if small and link.name in masters and not link.name.startswith(NOT_TRAINING):
                found.append(Reason(f"{link.name} on {seen.node or 'the way'} passes {link.mtu} bytes", seen.ref))
    return found


RULE = Rule((CAUSE,), judge)
