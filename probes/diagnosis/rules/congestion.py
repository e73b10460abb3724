"""Ports wait to send for much of the time. Who waits is the victim: the one downstream of it, which is slow, is not.

One tick of PortXmitWait is 8 bytes of port time on Quantum switches and HCAs of that age (NVIDIA ibdiagnet manual,
"Congestion Assessment"); where that gives more than all of the time, only ports are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from probes.catalog.network.ib_facts import WORD
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.ports import Ports, PortView, usual

CAUSE = "ib.congestion"
WAIT = "port_xmit_wait"
BYTES = 8
LONG_S = 5.0  # a shorter look may meet one collective of a healthy job, which waits too; judgement
SOME, BAD = 0.05, 0.20  # of the time; judgement, field row port_xmit_wait
# Two looks without times: the part of sending and waiting that is waiting, and ticks (1.6 s of NDR); judgement
HALF, LONG_WAIT = 0.5, 10_000_000_000
FASTEST = 800.0  # Gb/s, of XDR: where no port's rate is told, it waited at least so long
ODD = 5.0  # times the others' wait, before it is that port alone; judgement
PAUSES = ("rx_global_pause_duration", *(f"rx_prio{n}_pause_duration" for n in range(8)))
SENT_PAUSES = tuple("t" + name[1:] for name in PAUSES)
FRAMES = (*(f"{way}x_prio{n}_pause" for way in "rt" for n in range(8)), "rx_pause_ctrl_phy", "tx_pause_ctrl_phy")
# A frame pauses 65,535 quanta of 512 bits at most: 84 us at 400 Gb/s, 336 us at 100. Judgement: so many matter.
FRAMES_PER_S, MANY_FRAMES = 2000.0, 1_000_000
MARKS_PER_S = 10_000.0  # judgement: with DCQCN some hundreds a second are usual in a busy fabric
MARKED = 100_000_000  # between two looks whose times nobody told; judgement: hours of the rate above
MARKS = ("np_ecn_marked_roce_packets", "rp_cnp_handled", "np_cnp_sent")


def share(view: PortView, like: float | None = None) -> float | None:
    """Part of the time that it waited to send, 0 to 1; None where rate or time are not known. `like`: the rate of the
    job's other ports, for one whose own nobody told."""
    change = view.changes.get(WAIT)
    if change is None or change.delta is None or not change.seconds:
        return None
    rate = view.rate_gbps or like or FASTEST
    part = change.delta * BYTES / (change.seconds * rate * 1e9 / 8)
    return part if part <= 1.2 else None  # its tick is another


def busy_share(view: PortView, like: float | None = None) -> float | None:
    """Part of the time in which it had something to send that it waited, 0 to 1, of two looks whose time, or of a port
    whose rate nobody told; None where both are known, or it waited too little to tell."""
    wait, sent, word = view.changes.get(WAIT), view.changes.get("port_xmit_data"), WORD
    if sent is None:  # exporters give bytes
        sent, word = view.changes.get("port_xmit_bytes"), 1
    if wait is not None and wait.seconds and (view.rate_gbps or like or (share(view) or 0.0) <= SOME):
        return None
    if wait is None or sent is None or not wait.delta or sent.delta is None or wait.delta < LONG_WAIT:
        return None
    return wait.delta * BYTES / (wait.delta * BYTES + sent.delta * word)


def pause_share(view: PortView, names: tuple[str, ...]) -> float:
    """Part of the time in which a peer held it back (received), or it held its peer back (sent); durations in us."""
    parts = [
        change.delta / 1e6 / change.seconds
        for name in names
        if (change := view.changes.get(name)) is not None and change.delta and change.seconds
    ]
    return min(1.0, max(parts, default=0.0))


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    paused = list(_paused(evidence, ports))
    yield from paused or list(_frames(ports)) or _marked(ports)
    like = usual(view.rate_gbps for view in ports.of_nodes if view.rate_gbps)
    waits = {id(view): part for view in ports.views.values() if (part := share(view, like)) is not None}
    high = [view for view in ports.views.values() if waits.get(id(view), 0.0) > SOME]
    bad = [view for view in high if waits[id(view)] > BAD]
    if bad:
        yield from _waiting(ports, bad, waits)
    elif stuck := {id(view): part for view in ports.views.values() if (part := busy_share(view, like)) is not None}:
        yield from _stuck(ports, stuck)
    else:
        yield from _compared(ports)


def _waiting(ports: Ports, bad: list[PortView], waits: dict[int, float]) -> Iterator[Hypothesis]:
    of_switch = [view for view in bad if view.switch]
    # A switch's port that waits towards an adapter: that adapter takes too slowly. It is where the waiting ends.
    sinks = [view for view in of_switch if view.peer is not None and _is_adapter(ports, view)]
    worst = max(sinks or bad, key=lambda view: waits[id(view)])
    told = [
        Reason(f"{view.called} waited to send for {100 * waits[id(view)]:.0f} % of the time", view.ref_of(WAIT))
        for view in sorted(bad, key=lambda view: -waits[id(view)])[:6]
    ]
    many = len(bad) > 1
    if sinks and worst.peer is not None:
        node, _, hca = worst.peer[0].rpartition(" ")
        subject: dict[str, str | int] = {"node": node, "hca": hca} if node else {"node": worst.peer[0]}
        says = f"{worst.peer[0]} takes too slowly what {worst.switch} sends it: {worst.called} waits"
        yield _said(subject, says, told, _signal(bad, many), frozenset({node or worst.peer[0]}))
        return
    switches = Counter(view.switch or (view.peer[0] if view.peer else "") for view in bad)
    common, count = switches.most_common(1)[0]
    if many and common and count > 1:
        says = f"{count} ports of {common} wait to send for more than {100 * BAD:.0f} % of the time"
        yield _said({"switch": common}, says, told, _signal(bad, True), frozenset(v.node for v in bad if v.node))
        return
    says = f"{worst.called[:1].upper()}{worst.called[1:]} waits to send for {100 * waits[id(worst)]:.0f} % of the time"
    more = f", and so do {len(bad) - 1} more ports: the fabric behind them is full" if many else ""
    subject = worst.subject if not many else {}
    yield _said(
        subject,
        says + more,
        told,
        _signal(bad, many),
        frozenset(v.node for v in bad if v.node),
    )


def _stuck(ports: Ports, parts: dict[int, float]) -> Iterator[Hypothesis]:
    """Two looks without their times: ports that, while they had something to send, mostly waited."""
    bad = [view for view in ports.views.values() if parts.get(id(view), 0.0) > HALF]
    if len(bad) * 2 < len(parts) or len(bad) < 2:
        yield from _compared(ports)
        return
    bad.sort(key=lambda view: -parts[id(view)])
    told = [
        Reason(f"{view.called} waited for {100 * parts[id(view)]:.0f} % of the time in which it had something to send",
            view.ref_of(WAIT)) for view in bad[:6]
    ]  # fmt: skip
    switches = {view.switch for view in bad}
    one = {"switch": switches.pop()} if len(switches) == 1 and "" not in switches else {}
    says = f"{len(bad)} ports mostly wait to send what they have: the fabric behind them is full"
    yield _said(dict(one), says, told, "waits_more_than_sends", frozenset(v.node for v in bad if v.node))


def _is_adapter(ports: Ports, view: PortView) -> bool:
    assert view.peer is not None
    name = view.peer[0]
    switches = {one.name for one in ports.devices.values() if one.kind == "switch"} | {
        one.switch for one in ports.views.values()
    }
    return name not in switches


def _compared(ports: Ports) -> Iterator[Hypothesis]:
    """Without rate or time: only that one waits much more than all others says something."""
    rises = {id(view): view.rise(WAIT) for view in ports.views.values() if view.known(WAIT)}
    if len(rises) < 4:
        return
    views = [view for view in ports.views.values() if id(view) in rises]
    top = max(views, key=lambda view: rises[id(view)])
    others = [rises[id(view)] for view in views if view is not top]
    if (part := share(top)) is not None and part < SOME:
        return  # little, even of what the fastest port does in that time
    if rises[id(top)] > 1_000_000_000 and rises[id(top)] > ODD * 10 * max(1.0, median(others)):
        says = f"{top.called} waited to send {rises[id(top)]:,} ticks, half of the others {median(others):,.0f} or less"
        many = sum(ODD * rises[id(view)] > rises[id(top)] for view in views) > 1
        yield _said(
            {} if many else top.subject,
            says[:1].upper() + says[1:],
            [Reason(says, top.ref_of(WAIT))],
            "waits_more_than_others",
            top.nodes,
        )


def _paused(evidence: Evidence, ports: Ports) -> Iterator[Hypothesis]:
    """RoCE: who sends pauses is slow to take; who receives them is held back."""
    sends = {id(view): pause_share(view, SENT_PAUSES) for view in ports.of_nodes}
    takes = {id(view): pause_share(view, PAUSES) for view in ports.of_nodes}
    slow = [view for view in ports.of_nodes if sends[id(view)] > SOME]
    held = [view for view in ports.of_nodes if takes[id(view)] > SOME]
    if slow and len(slow) * 2 <= max(2, len(ports.of_nodes)):
        worst = max(slow, key=lambda view: sends[id(view)])
        told = [
            Reason(f"{worst.called} told its switch to pause for {100 * sends[id(worst)]:.0f} % of the time", worst.ref)
        ]
        told += [
            Reason(f"{view.called} was paused for {100 * takes[id(view)]:.0f} % of the time", view.ref)
            for view in held[:5]
        ]
        says = (
            f"{worst.called} takes too slowly: it holds its switch back for {100 * sends[id(worst)]:.0f} % of the time"
        )
        yield _said(worst.subject, says, told, _signal([worst], bool(held)), worst.nodes)
    elif held:
        told = [
            Reason(f"{view.called} was paused for {100 * takes[id(view)]:.0f} % of the time", view.ref)
            for view in held[:6]
        ]
        marks = sum(view.rise(*MARKS) for view in ports.of_nodes)
        if marks:
            told.append(Reason(f"congestion was marked or answered {marks:,} times", held[0].ref))
        many = len(held) > 1
        says = (
            f"{len(held)} ports are held back by their switch"
            if many
            else f"{held[0].called} is held back by its switch"
        )
        yield _said(
            held[0].subject if not many else {},
            says,
            told,
            _signal(held, many),
            frozenset(v.node for v in held),
        )


def _frames(ports: Ports) -> Iterator[Hypothesis]:
    """Ports of which only the number of pause frames is known, as switches count them."""
    rates = {}
    for view in ports.views.values():
        names = [name for name in FRAMES if view.rise(name)]
        if any(view.known(name) for name in (*PAUSES, *SENT_PAUSES)):
            continue
        rise = max((view.rise(name) for name in names), default=0)
        seconds = next((s for name in names if (s := view.seconds(name))), None)
        if (rise / seconds > FRAMES_PER_S) if seconds else rise > MANY_FRAMES:
            rates[id(view)] = rise, seconds
    some = [view for view in ports.views.values() if id(view) in rates]
    if not some:
        return
    told = []
    for view in sorted(some, key=lambda view: -rates[id(view)][0])[:6]:
        rise, seconds = rates[id(view)]
        over = f" in {seconds:.0f} s" if seconds else " between two looks"
        told.append(Reason(f"{view.called} counted {rise:,} more pause frames{over}", view.ref_of(*FRAMES)))
    switches = {view.switch for view in some}
    subject: dict[str, str | int] = {"switch": switches.pop()} if len(switches) == 1 and "" not in switches else {}
    subject = some[0].subject if len(some) == 1 else subject
    yield _said(subject, f"Pause frames rise fast on {len(some)} ports: who sends them takes too slowly",
        told, "pause_frames_rise", frozenset(view.node for view in some if view.node))  # fmt: skip


def _marked(ports: Ports) -> Iterator[Hypothesis]:
    """RoCE that is only slowed down: senders are told very often to send less, and nothing waits or is lost."""
    rates: dict[int, str] = {}
    for view in ports.of_nodes:
        fastest = max(((view.rise(name) / s) for name in MARKS if (s := view.seconds(name))), default=0.0)
        often = max((view.rise(name) for name in MARKS if view.seconds(name) is None), default=0)
        if fastest > MARKS_PER_S or often > MARKED:
            rates[id(view)] = f"{fastest:,.0f} marks or notifications of congestion a second"
            if fastest <= MARKS_PER_S:
                rates[id(view)] = f"{often:,} more marks or notifications of congestion"
    some = [view for view in ports.of_nodes if id(view) in rates]
    if some:
        told = [Reason(f"{view.called}: {rates[id(view)]}", view.ref_of(*MARKS)) for view in some[:6]]  # fmt: skip
        subject = some[0].subject if len(some) == 1 else {}
        says = f"Congestion is notified very often on {len(some)} port{'s' if len(some) > 1 else ''}"
        yield _said(subject, says, told, "congestion_marked", frozenset(view.node for view in some if view.node))


def _signal(views: list[PortView], many: bool) -> str:
    seconds = [s for view in views for name in (WAIT, *PAUSES, *SENT_PAUSES) if (s := view.seconds(name))]
    if seconds and max(seconds) < LONG_S:
        return "waits_to_send_shortly"
    return "waits_to_send_many" if many else "waits_to_send"


def _said(
    subject: dict[str, str | int], says: str, told: list[Reason], signal: str, nodes: frozenset[str]
) -> Hypothesis:
    return Hypothesis(
        CAUSE, subject, says, tuple(told), (signal,),
        would_change=("the same counters twice on the switch ports behind", "a minute in which no port waits"),
        nodes=nodes,
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
