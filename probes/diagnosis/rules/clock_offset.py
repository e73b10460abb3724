"""Clocks apart hang no collective; beyond about 15 s they break elastic rendezvous, beyond 300 s tickets, and they
mislead readers of logs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from statistics import median

from probes.catalog.host_clock import ELASTIC_S
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, address, node_called, node_of
from probes.diagnosis.times import times_of

TICKETS = ("munge", "Munge", "clock skew", "Clock skew", "Rewound credential", "Expired credential", "not yet valid")
# Refused because of the time alone: other credentials are refused for other reasons as well.
BY_TIME = ("Rewound credential", "Clock skew too great", "Ticket not yet valid")
DROPPED = ("keep-alive", "dead", "no heartbeat")  # names of the rendezvous' lines of a member that is lost
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(h|ms|m|s)")
DAY_S = 86_400.0
TIGHT_S = 2.0  # judgement: one loop over nodes prints their times within it
TOGETHER_S = 60.0  # judgement: pdsh and clush ask many nodes within seconds, one that is slow later


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    said = list(evidence.job.said("rendezvous", "store_timeout", "store_closed"))
    said += [one for one in evidence.job.said("traceback") if "endezvous" in one[0].name + one[0].text]
    tickets = list(evidence.job.said("credential"))
    tickets += [one for one in evidence.job.events if any(words in one[0].text for words in TICKETS)]
    by_time = [one for one in tickets if one[0].name in BY_TIME]
    found = next(iter([*by_time, *tickets, *said]), None)
    hit = frozenset(event.rank for event, _, _ in (*tickets, *said) if event.rank is not None)
    named: set[str] = set()
    refused = _refusing(evidence, tickets)
    for seen, says, far in _off(evidence):
        if not seen.node and len(refused) == 1:  # one file tells how far, and another whose
            seen = dataclasses.replace(seen, node=next(iter(refused)))
        because = [Reason(says, seen.ref)]
        named.add(seen.node)
        if far and found is not None:
            because.append(quoted(*found))
        # One node's clock breaks the meeting of all, also on those whose logs tell of it; "": lines of no known node.
        meeting = {node_of(evidence, one) for one in (*tickets, *said)}
        where = {seen.node, "", *meeting} if far and found is not None else set()
        yield Hypothesis(
            "host.clock_offset",
            {"node": seen.node} if seen.node else {},
            f"The clock of {seen.node or 'a node'} is off: {says}",
            tuple(because),
            _signals(far, bool(by_time), found is not None),
            against=()
            if found
            else (Reason("no collective waits on clocks, and no log speaks of a rendezvous or a ticket", seen.ref),),
            would_change=("a rendezvous error in the logs of a rank",),
            ranks=hit if far and found is not None else frozenset(),
            nodes=frozenset(where),
        )
    yield from _dropped(evidence, said, named)
    if tickets and not named:
        yield _refused(evidence, [*by_time, *tickets], bool(by_time))


def _signals(far: bool, by_time: bool, found: bool) -> tuple[str, ...]:
    if far and by_time:
        return ("clock_refused_ticket",)
    return ("clock_over_rendezvous",) if far and found else ("clock_apart",)


def _off(evidence: Evidence) -> Iterator[tuple[Seen, str, bool]]:
    """(reading, what it says, whether it is far): by the node's time service, by our exchange, or against others."""
    told: set[str] = set()
    for seen, finding in evidence.findings("host.clock_offset"):
        told.add(seen.node)
        yield seen, finding.says, finding.severity == "bad"
    for node, seen, says in _services(evidence):
        if node not in told:
            told.add(node)
            yield dataclasses.replace(seen, node=node), says, True
    yield from _two(evidence, told)
    for some, unkept_only in _asked_together(evidence):
        usual = median(seen.facts.told_at for seen in some)
        far = [seen for seen in some if abs(_apart(seen.facts.told_at, usual)) > TIGHT_S]
        limit = ELASTIC_S if len(far) == 1 else TOGETHER_S
        if unkept_only and not (len(far) == 1 and far[0].node in unkept_only):
            continue
        for seen in far:
            apart = _apart(seen.facts.told_at, usual)
            if abs(apart) > limit and seen.node not in told:
                told.add(seen.node)
                where = "ahead of" if apart > 0 else "behind"
                says = f"its clock is {abs(apart):.0f} s {where} the other nodes', which were asked with it"
                yield seen, f"{says}: elastic rendezvous fails beyond {ELASTIC_S:g} s", True


def _two(evidence: Evidence, told: set[str]) -> Iterator[tuple[Seen, str, bool]]:
    """Of two nodes that were asked together none is the odd one: it is the one that the rendezvous drops, or whose
    clock follows no source, or it is not known."""
    unkept = {seen.node for seen, _ in evidence.findings("host.clock_unsynchronised")}
    lost = {
        node_called(evidence, host) or host
        for one in evidence.job.said("rendezvous")
        if one[0].name in DROPPED and (host := address(one[0].peer))
    }
    for some in _loops(evidence):
        if len(some) != 2 or told & some.keys():
            continue
        first, second = some.values()
        apart = abs(_apart(first.facts.told_at, second.facts.told_at))
        if apart <= (ELASTIC_S if first.ref == second.ref else TOGETHER_S):
            continue
        odd = (lost & some.keys()) or (unkept & some.keys())
        node = next(iter(odd)) if len(odd) == 1 else ""
        told |= some.keys()
        says = f"the clocks of {' and '.join(some)}, which were asked together, are {apart:.0f} s apart"
        yield dataclasses.replace(some[node] if node else first, node=node), says, True


def _services(evidence: Evidence) -> Iterator[tuple[str, Seen, str]]:
    """(node, reading, what it says): time services that wrote how wrong the clock was, since the job began."""
    times = times_of(evidence)
    for event, log, seen in evidence.job.said("clock_wrong"):
        seconds = _seconds(event.more)
        if abs(seconds) > ELASTIC_S and not times.over(seen.node, event.last_at, event.stamp):
            host = address(event.peer) or str(event.more.get("host", ""))
            says = quoted(event, log, seen, f"its clock was {abs(seconds):.0f} s wrong, says its time service").says
            yield node_called(evidence, host) or host or seen.node, seen, says
    for seen in evidence.of("host.kernel_log"):
        for notice in seen.facts.notices:
            if abs(notice.seconds) > ELASTIC_S and not times.over(seen.node, notice.last_at, notice.last):
                says = f"its clock was {abs(notice.seconds):.0f} s wrong at {notice.last}, says its time service"
                yield seen.node, seen, says


def _seconds(more: Mapping[str, str | int]) -> float:
    """`-903.881`, `15m3.5s`."""
    if (span := str(more.get("span", ""))) != "":
        return sum(float(number) * {"h": 3600.0, "m": 60.0}.get(unit, 1.0) for number, unit in _SPAN.findall(span))
    try:
        return float(more.get("seconds", 0))
    except ValueError:
        return 0.0


def _loops(evidence: Evidence) -> list[dict[str, Seen]]:
    """Readings of nodes that one file tells, in which one loop or session asked them."""
    together: dict[str, dict[str, Seen]] = {}
    for seen in evidence.of("host.clock"):
        if seen.facts.told_at is None:
            continue
        # Of a part of a file, `FILE: gpu-017 part`, the file; one that tells of several nodes is the same for all.
        whole = seen.ref.rpartition(": ")[0] if ": " in seen.ref else seen.ref
        together.setdefault(whole, {}).setdefault(seen.node, seen)
    return list(together.values())


def _apart(one: float, other: float) -> float:
    """Of times of the day the shorter way round midnight."""
    if max(one, other) < DAY_S:
        return (one - other + DAY_S / 2) % DAY_S - DAY_S / 2
    return one - other if min(one, other) >= DAY_S else 0.0  # one with its day and one without do not compare


def _asked_together(evidence: Evidence) -> Iterator[tuple[list[Seen], set[str]]]:
    """(readings of nodes that printed their time at one moment, nodes that alone may be blamed by it): one file of
    several nodes; or files of each node of which all but one tell the same moment, when that one's clock follows no
    source. It may also have been asked later, and then its clock would be kept."""
    apart: dict[str, Seen] = {}
    for seen in evidence.of("host.clock"):
        if seen.facts.told_at is None or seen.facts.told_at < DAY_S:
            continue
        if seen.node:
            apart.setdefault(seen.node, seen)
    yield from ((list(some.values()), set()) for some in _loops(evidence) if len(some) > 2)
    unkept = {seen.node for seen, _ in evidence.findings("host.clock_unsynchronised")}
    if len(apart) > 2 and unkept:
        yield list(apart.values()), unkept


def _dropped(evidence: Evidence, said: list[Said], named: set[str]) -> Iterator[Hypothesis]:
    """The rendezvous drops a member whose heartbeats look too old, by the clocks of both; and this member's clock
    follows no source."""
    dropped = {
        node_called(evidence, host) or host: one
        for one in said
        if (host := address(one[0].peer)) and one[0].name in DROPPED
    }
    for seen, _ in evidence.findings("host.clock_unsynchronised"):
        if seen.node in dropped and seen.node not in named:
            named.add(seen.node)
            yield Hypothesis(
                "host.clock_offset",
                {"node": seen.node},
                f"The rendezvous drops {seen.node}, whose clock follows no source",
                (quoted(*dropped[seen.node]), Reason("its clock is not synchronised to any source", seen.ref)),
                ("unkept_clock_dropped",),
                would_change=(f"the clock of {seen.node} within {ELASTIC_S:g} s of the others",),
                nodes=frozenset({seen.node}),
            )


def _refusing(evidence: Evidence, tickets: list[Said]) -> set[str]:
    """Nodes that a scheduler names as those that refused."""
    return {node_called(evidence, host) or host for event, _, _ in tickets if (host := address(event.peer))}


def _refused(evidence: Evidence, tickets: list[Said], by_time: bool) -> Hypothesis:
    """Credentials were refused, and nobody looked at the clocks, or only at whether they are kept."""
    unkept = {seen.node: seen for seen, _ in evidence.findings("host.clock_unsynchronised")}
    node = next(iter(unkept)) if len(unkept) == 1 else ""
    # A scheduler's words name the node that refused: one of several has the clock that is off.
    refused = _refusing(evidence, tickets)
    node = node or (refused.pop() if len(refused) == 1 else "")
    because = [quoted(*tickets[0])]
    expired = bool(node) and any(event.name == "Expired credential" for event, _, _ in tickets)
    signals = ["ticket_refused_by_time" if by_time else "ticket_expired" if expired else "ticket_refused"]
    if node in unkept:
        because.append(Reason(f"the clock of {node or 'a node'} is not synchronised to any source", unkept[node].ref))
        signals.append("clock_not_kept")
    return Hypothesis(
        "host.clock_offset",
        {"node": node} if node else {},
        f"Credentials are refused{f' on {node}' if node else ''}: clocks of nodes are apart",
        tuple(because),
        tuple(signals),
        would_change=("the clocks of all nodes within 300 s of each other",),
        nodes=frozenset({node}) if node else frozenset(),
    )


RULE = Rule(("host.clock_offset",), judge)
