"""RoCE loses packets: a port's flow control is set unlike that of the others, and retransmissions or discards rise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.catalog.network.net_facts import NetLink
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.ports import Ports, PortView

CAUSE = "ib.lossless_misconfigured"
LOSS = (
    "out_of_sequence", "packet_seq_err", "rx_discards_phy", "roce_adp_retrans", "implied_nak_seq_err",
    "tx_pause_storm_error_events", "tx_pause_storm_warning_events", "local_ack_timeout_err", "rx_roce_discards",
    *(f"rx_prio{n}_{what}" for n in range(8) for what in ("discards", "buf_discard", "cong_discard")),
)  # fmt: skip
PER_SECOND, MANY = 10.0, 1000  # judgement: above, loss is no accident; with adaptive routing on InfiniBand it is normal
SETTINGS = ("pfc", "trust", "dcbx", "pause", "ecn")
WORDS = {
    "pfc": "priorities without loss (PFC)", "trust": "trust", "dcbx": "DCBX mode", "pause": "802.3x pause",
    "ecn": "congestion notification (ECN)",
}  # fmt: skip


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    losing = [view for view in ports.of_nodes if _roce(view) and _loses(view)]
    told: set[str] = set()
    for (node, name), (link, ref) in ports.links.items():
        for setting, mine, most, count in _unlike(ports, node, name, link):
            loss = [view for view in losing if view.node == node] or losing
            what = WORDS[setting]
            because = [Reason(f"{name} on {node}: {what} {_shown(mine)}, on {count} other nodes {_shown(most)}", ref)]
            because += [_reason(view) for view in loss[:4]]
            told.add(node)
            yield Hypothesis(
                CAUSE, _subject(node, name),
                f"{what[:1].upper()}{what[1:]} of {name or 'the interface'} on {node} is {_shown(mine)}, "
                f"unlike {_shown(most)} of the other nodes" + (": packets are lost" if loss else ""),
                tuple(because), ("flow_control_differs", *(("packets_lost",) if loss else ())),
                would_change=("the same setting on all nodes", "counters of lost packets, twice"),
                nodes=frozenset({node}),
            )  # fmt: skip
        if link.pause and link.pfc:
            yield Hypothesis(
                CAUSE, {"node": node, "device": name},
                f"{name} on {node} has 802.3x pause and priority flow control (PFC) on together",
                (Reason("both kinds of flow control are on: only one works", ref), *map(_reason, losing[:3])),
                ("flow_control_mixed", *(("packets_lost",) if losing else ())), nodes=frozenset({node}),
            )  # fmt: skip
    if losing and not told:
        off = [(key, ref) for key, (link, ref) in ports.links.items() if link.pfc == ()]
        on = [link for link, _ in ports.links.values() if link.pfc]
        if on and 0 < len(off) <= len(on):
            yield _off_there(off, losing)
        else:
            yield _losing(ports, losing)


def _off_there(off: list[tuple[tuple[str, str], str]], losing: list[PortView]) -> Hypothesis:
    """Packets are lost, and flow control is off in one place and on in others, be they too few to compare."""
    (node, name), ref = off[0]
    because = [
        Reason(f"no priority is without loss on {where} ({dev or 'its interface'})", r) for (where, dev), r in off[:3]
    ]
    return Hypothesis(
        CAUSE, _subject(node, name) if len(off) == 1 else {},
        f"RoCE loses packets on {len(losing)} ports: PFC is off on {node or 'one end'}, elsewhere it is on",
        (*because, *map(_reason, losing[:4])), ("flow_control_differs", "packets_lost"),
        would_change=("the same setting on all nodes and switches",),
        nodes=frozenset(view.node for view in losing if view.node),
    )  # fmt: skip


def _subject(node: str, name: str) -> dict[str, str | int]:
    if name == "switch":
        return {"switch": node} if node else {}
    subject: dict[str, str | int] = {"node": node} if node else {}
    return subject | ({"device": name} if name else {})


def _losing(ports: Ports, losing: list[PortView]) -> Hypothesis:
    """Nobody's settings were compared, or all are alike: with none of them lossless that is the reason."""
    off = [
        (node, link, ref) for (node, _), (link, ref) in ports.links.items() if link.pfc == () and link.pause is not True
    ]
    told = [link for link, _ in ports.links.values() if link.pfc is not None]
    nowhere = bool(off) and len(off) == len(told)
    worst = max(losing, key=_rise)
    because = [_reason(view) for view in sorted(losing, key=_rise, reverse=True)[:5]]
    if nowhere:
        because.append(
            Reason(
                f"no priority is without loss on {off[0][0]}" + (f" and {len(off) - 1} more" if len(off) > 1 else ""),
                off[0][2],
            )
        )
    many = len({view.node for view in losing}) > 1
    where = f"{len(losing)} ports" if many else worst.called
    return Hypothesis(
        CAUSE, {} if many else worst.subject, f"RoCE loses packets on {where}" + (": PFC is off" if nowhere else ""),
        tuple(because), ("packets_lost", *(("flow_control_off",) if nowhere else ())),
        would_change=("the flow control of each node and its switch port (mlnx_qos, dcb pfc show)",),
        nodes=frozenset(view.node for view in losing if view.node),
    )  # fmt: skip


def _roce(view: PortView) -> bool:
    return view.facts is None or view.facts.link_layer != "InfiniBand"


def _rise(view: PortView) -> int:
    return view.rise(*LOSS)


def _loses(view: PortView) -> bool:
    for name in LOSS:
        rise, seconds = view.rise(name), view.seconds(name)
        if rise and (rise / seconds > PER_SECOND if seconds else rise > MANY):
            return True
    return False


def _reason(view: PortView) -> Reason:
    rose = [name for name in LOSS if view.rise(name)][:4]
    seconds = view.seconds(rose[0]) if rose else None
    over = f" in {seconds:.0f} s" if seconds else " between two looks"
    return Reason(
        f"{view.called}: " + ", ".join(f"{name} rose by {view.rise(name):,}" for name in rose) + over,
        view.ref_of(*rose),
    )


def _unlike(ports: Ports, node: str, name: str, link: NetLink) -> Iterator[tuple[str, object, object, int]]:
    """(setting, here, elsewhere, on how many): only where two others at least agree, and most do."""
    for setting in SETTINGS:
        mine = getattr(link, setting)
        if mine in (None, ""):
            continue
        others = [
            getattr(other, setting) for (n, m), (other, _) in ports.links.items()
            if n != node and m == name and getattr(other, setting) not in (None, "")
        ]  # fmt: skip
        if len(others) < 2:
            continue
        most, count = Counter(others).most_common(1)[0]
        if most != mine and count * 2 > len(others) + 1:
            yield setting, mine, most, count


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


RULE = Rule((CAUSE,), judge)
