"""Ranks whose limits ran out in different groups, each of which needs ranks that wait in another: a circle, by logs.

Source   torch's watchdog names the group and the rank's place in it. Where that place is the rank's own number, the
         group holds every rank below it too: so it is known for whom the group waits
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.circles import circle
from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said
from probes.diagnosis.log_suspects import spans_job
from probes.diagnosis.rules.watchdog_mismatch import by_group
from probes.diagnosis.suspects import ranks_said, shared

CAUSE = "fw.group_order_cycle"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    if evidence.stalls.all:
        return  # recorders tell it better
    # A group without a name may be any of the others: no circle is made of it.
    named = {
        group: waiting
        for group, waiting in by_group(evidence).items()
        if group and spans_job(waiting) and all("group_rank" in event.more for event, _, _ in waiting.values())
    }
    groups, places = list(named), list(named.values())
    blocked: dict[int, list[int]] = {}
    for at, waiting in enumerate(places):
        for rank in waiting:
            blocked.setdefault(rank, []).append(at)
    awaited = {at: set(range(max(waiting))) - set(waiting) for at, waiting in enumerate(places)}
    ranks, crossed = circle(blocked, awaited)
    if len(crossed) < 2:
        yield from _each_alone(evidence)
        return
    sides = sorted((set(places[at]) & ranks for at in crossed), key=len)
    odd = sorted(sides[0]) if len(sides[0]) < len(sides[1]) else []
    views = [evidence.job.view(rank) for rank in odd]
    said = [places[at][min(places[at])] for at in sorted(crossed)]
    listed = "; ".join(
        f"{ranks_said(sorted(places[at]))} in {_called(groups[at], places[at])}" for at in sorted(crossed)
    )
    who = f", {ranks_said(odd)} in an order of {'its' if len(odd) == 1 else 'their'} own" if odd else ""
    yield Hypothesis(
        CAUSE,
        shared(views)[0] if views else {},
        f"Ranks wait for each other in a circle across groups{who}: {listed}",
        tuple(quoted(*one) for one in said[:4]),
        ("groups_crossed_in_log",),
        would_change=("flight-recorder dumps in which one of these groups goes on",),
        ranks=frozenset(ranks),
        nodes=frozenset(evidence.job.view(rank).node for rank in ranks),
    )


def _each_alone(evidence: Evidence) -> Iterator[Hypothesis]:
    """Every rank waits, and each in a group in which nobody else does: whoever it waits for waits elsewhere, and that
    has no end but in a circle."""
    alone = {group: waiting for group, waiting in by_group(evidence).items() if group}
    ranks = [rank for waiting in alone.values() for rank in waiting]
    gave_up = {event.rank for event, _, _ in evidence.job.said("watchdog_timeout")}
    world = evidence.job.world_size or len(gave_up)
    if len(alone) < 2 or len(alone) != len(ranks) or sorted(ranks) != list(range(world)) or gave_up != set(ranks):
        return
    said = [next(iter(waiting.values())) for waiting in alone.values()]
    listed = "; ".join(f"rank {one[0].rank} in {_called(group, waiting)}"
        for (group, waiting), one in zip(list(alone.items())[:4], said, strict=False))  # fmt: skip
    yield Hypothesis(
        CAUSE,
        {},
        f"Every rank waits in a group in which no other does, so they wait for each other: {listed}",
        tuple(quoted(*one) for one in said[:4]),
        ("groups_crossed_in_log",),
        would_change=("a rank that waits nowhere", "flight-recorder dumps in which one of these groups goes on"),
        ranks=frozenset(ranks),
        nodes=frozenset(evidence.job.view(rank).node for rank in ranks),
    )


def _called(group: str, waiting: dict[int, Said]) -> str:
    event = waiting[min(waiting)][0]
    return f"{event.op} #{event.seq} of group {event.more.get('group_name') or group}"


RULE = Rule((CAUSE,), judge)
