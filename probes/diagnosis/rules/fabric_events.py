"""What a fabric's manager or switches logged: a link that went down and stayed so, one that flaps, a lost switch.

The manager sees both ends: where one is an adapter, its cable is named by the adapter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from probes.catalog.network.fabric_events import End, FabricEvent
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.times import apart, local, times_of

LINK, SWITCH, FLAPS = "ib.link_down", "ib.switch_down", "ib.link_flapping"
DEGRADED, CONGESTED = "ib.link_degraded", "ib.congestion"
TOGETHER = 3  # links of one switch that go down together; judgement: cables do not fail in threes
TOGETHER_S = 120.0
MANY_EVENTS = 4  # judgement: a fabric that is only busy tells it of a port now and then
DAYS_S = 3 * 86_400.0  # judgement: of a log of weeks only what happened near its end, or near the job, is of today


@dataclass(slots=True)
class _Link:
    end: End
    downs: int = 0
    up: bool | None = None
    device: bool = False  # the manager says that the device itself is gone
    flaps: bool = False
    last: FabricEvent | None = None
    reasons: list[Reason] = field(default_factory=list)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    links, weak = _links(evidence)
    lost = {key: link for key, link in links.items() if link.up is False}
    gone = {link.end.switch: link for link in lost.values() if link.end.switch and link.device}
    for switch, link in list(gone.items())[:4]:
        behind = [one for one in lost.values() if one is not link and _together(one, link)]
        yield _switch(switch, [link, *behind], "switch_gone_by_manager")
    by_switch: dict[str, list[_Link]] = {}
    for link in lost.values():
        if link.last is not None and (other := next((end.switch for end in link.last.ends if end.switch), "")):
            by_switch.setdefault(other, []).append(link)
    explained: set[int] = {id(link) for link in lost.values() if any(_together(link, one) for one in gone.values())}
    for switch, some in by_switch.items():
        near = [one for one in some if _together(one, some[-1])]
        if (
            switch not in gone
            and len(near) >= TOGETHER
            and len({one.end.node or one.end.port for one in near}) >= TOGETHER
        ):
            explained |= {id(one) for one in near}
            yield _switch(switch, near, "links_lost_by_manager")
    rails: dict[str, list[_Link]] = {}
    for link in lost.values():
        if link.end.node and link.end.hca and link.last is not None and not any(end.switch for end in link.last.ends):
            rails.setdefault(link.end.hca, []).append(link)
    for hca, some in rails.items():
        near = [one for one in some if _together(one, some[-1])]
        if len({one.end.node for one in near}) >= TOGETHER and len(rails) == 1:
            explained |= {id(one) for one in near}
            yield _rail(hca, near)
    alone: dict[str, list[_Link]] = {}
    for link in lost.values():
        if id(link) not in explained and (link.end.node or len(lost) == 1):
            alone.setdefault(link.end.node, []).append(link)
    for node, some in alone.items():
        together = [one for one in some if _together(one, some[-1])]
        if node and len(together) > 1:
            yield _node(node, together)
        else:
            yield from (_lost(evidence, link) for link in some)
    yield from _flapping(links)
    yield from _weak(weak)


def lost_switches(evidence: Evidence) -> tuple[str, ...]:
    """Switches that a manager says are gone, or that lost several links together."""
    found = (one.subject.get("switch") for one in judge(evidence) if one.cause == SWITCH)
    return tuple(dict.fromkeys(str(name) for name in found if name))


def _links(evidence: Evidence) -> tuple[dict[tuple[str, str, int], _Link], list[tuple[FabricEvent, str]]]:
    links: dict[tuple[str, str, int], _Link] = {}
    weak: list[tuple[FabricEvent, str]] = []
    for seen in evidence.of("ib.events"):
        latest = max((at for one in seen.facts.events if (at := local(one.stamp)) is not None), default=None)
        for event in seen.facts.events:
            at = local(event.stamp)
            if times_of(evidence).over("", None, event.stamp):
                continue
            if at is not None and latest is not None and apart(latest, at) > DAYS_S:
                continue
            if event.what in ("errors", "congested", "slow"):
                weak.append((event, seen.ref))
                continue
            if not event.ends[0].node and event.ends[0].hca and seen.node:
                event = replace(event, ends=(replace(event.ends[0], node=seen.node), *event.ends[1:]))
            _take(links, event, seen.ref)
    return links, weak


def _take(links: dict[tuple[str, str, int], _Link], event: FabricEvent, ref: str) -> None:
    end = event.ends[0]
    key = (end.node or end.switch, end.hca, end.port or 0 if not end.node else 1)
    link = links.setdefault(key, _Link(end))
    if event.what == "flaps":
        link.flaps = True
    elif event.what in ("down", "gone"):
        link.downs += event.what == "down" or link.up is not False
        link.up = False
        link.device = link.device or event.what == "gone"
        link.last = event if link.last is None or len(event.ends) >= len(link.last.ends) else link.last
    else:
        link.up, link.device = True, False
    link.reasons.append(Reason(event.text, ref))


def _together(one: _Link, other: _Link) -> bool:
    if one.last is None or other.last is None:
        return False
    a, b = local(one.last.stamp), local(other.last.stamp)
    return a is None or b is None or abs(a - b) <= TOGETHER_S


def _switch(switch: str, links: list[_Link], signal: str) -> Hypothesis:
    nodes = frozenset(link.end.node for link in links if link.end.node)
    more = f", with {len(links) - 1} links" if len(links) > 1 else ""
    return Hypothesis(
        SWITCH, {"switch": switch}, f"{switch} is lost{more}, says the fabric's manager",
        tuple(link.reasons[-1] for link in links[:6]), (signal,),
        would_change=("the switch seen again in a new sweep", "ports of it that stayed up"), nodes=nodes,
    )  # fmt: skip


def _rail(hca: str, links: list[_Link]) -> Hypothesis:
    """The same adapter of several nodes: their cables lead into one switch, which no event names."""
    nodes = frozenset(link.end.node for link in links)
    return Hypothesis(
        SWITCH, {"hca": hca, "port": 1},
        f"The switch of {hca} is lost: its links on {len(nodes)} nodes went down at once",
        tuple(link.reasons[-1] for link in links[:6]), ("links_lost_on_rail",),
        would_change=("that the cables lead into different switches", "other ports of this switch that stayed up"),
        nodes=nodes,
    )  # fmt: skip


def _node(node: str, links: list[_Link]) -> Hypothesis:
    """All at once: more likely the node itself than its cables."""
    return Hypothesis(
        LINK, {"node": node}, f"{len(links)} links of {node} went down together and did not come back",
        tuple(link.reasons[-1] for link in links[:4]), ("node_lost_by_manager",),
        would_change=(f"whether {node} answers: it may be off or starting again",), nodes=frozenset({node}),
    )  # fmt: skip


def _lost(evidence: Evidence, link: _Link) -> Hypothesis:
    end = link.end
    wrote = {str(event.more["host"]) for event, _, _ in evidence.job.events if "host" in event.more}
    short = {node.partition(".")[0] for node in (*evidence.nodes, *wrote) if node}
    elsewhere = len(short) > 1 and bool(end.node) and end.node.partition(".")[0] not in short
    signal = "link_lost_elsewhere" if elsewhere else "link_lost_by_manager" if end.node else "switch_link_lost"
    subject = _subject(end)
    other = next((one.called for one in (link.last.ends if link.last else ()) if one != end and one.switch), "")
    cable = f" (its cable goes to {other})" if other else ""
    return Hypothesis(
        LINK, subject, f"The link of {end.called} went down and did not come back{cable}",
        tuple(link.reasons[-4:]), (signal,),
        would_change=("the port's state now: ibstat, or a new sweep",),
        nodes=frozenset({end.node} if end.node else ()),
    )  # fmt: skip


def _subject(end: End) -> dict[str, str | int]:
    if end.node:
        return dict({"node": end.node}, **({"hca": end.hca} if end.hca else {}))
    if end.hca and not end.switch:
        return {"hca": end.hca}
    return {"switch": end.switch} | ({"port": end.port} if end.port is not None else {})


def _flapping(links: dict[tuple[str, str, int], _Link]) -> Iterator[Hypothesis]:
    for link in links.values():
        again = link.downs > 1 and link.up is True
        if not again and not link.flaps:
            continue
        end = link.end
        subject = _subject(end)
        times = f" {link.downs} times" if again else ""
        yield Hypothesis(
            FLAPS, subject, f"The link of {end.called} went down and came back{times}, says the fabric's manager",
            tuple(link.reasons[-4:]), ("link_flaps_by_manager" if end.node else "switch_port_flaps",),
            would_change=("the count of downs, unchanged",), nodes=frozenset({end.node} if end.node else ()),
        )  # fmt: skip


_WORDS = {
    "slow": "links that are slower or narrower than they can be", "errors": "more bit errors than allowed",
    "congested": "ports that wait to send",
}  # fmt: skip


def _weak(weak: list[tuple[FabricEvent, str]]) -> Iterator[Hypothesis]:
    for what, cause, signal in (
        ("slow", DEGRADED, "slow_by_manager"),
        ("errors", DEGRADED, "errors_by_manager"),
        ("congested", CONGESTED, "congested_by_manager"),
    ):
        some = [(event, ref) for event, ref in weak if event.what == what and "clear" not in event.text.lower()]
        if not some:
            continue
        ends = {event.ends[0] for event, _ in some}
        if what == "congested" and len(ends) > 1 and len(some) > MANY_EVENTS:
            signal = "congested_by_manager_often"
        end = next(iter(ends))
        subject = _subject(end) if len(ends) == 1 else {}
        says = _WORDS[what]
        yield Hypothesis(
            cause, subject,
            f"The fabric's manager tells of {says}" + (f" on {end.called}" if subject else ""),
            tuple(Reason(event.text, ref) for event, ref in some[-3:]), (signal,),
            would_change=("counters of these ports, twice",), nodes=frozenset({end.node} if subject else ()) - {""},
        )  # fmt: skip


RULE = Rule((LINK, SWITCH, FLAPS, DEGRADED, CONGESTED), judge)
