"""Watchdog lines of several ranks that wait in different things: other operations, sizes or places of one group.

Sequence numbers count within one process group and are never compared across groups. Each rank's first line counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probes.catalog.logs.events import LogEvent
from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said
from probes.diagnosis.suspects import ranks_said

MISMATCH, SHAPE = "fw.collective_mismatch", "fw.collective_shape_mismatch"
# In these every rank passes the same sizes. torch/csrc/distributed/c10d/Types.hpp, OpType
SAME_SIZES = ("ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "REDUCE", "ALLREDUCE_COALESCED",
    "_BROADCAST_OOP", "_REDUCE_OOP")  # fmt: skip
SIGNALS = {"place": "watchdog_other_place", "operation": "watchdog_other_operation", "size": "watchdog_other_size"}
POINT_TO_POINT = ("SEND", "RECV", "COALESCED", "UNKNOWN")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for group, waits in by_group(evidence).items():
        if len(waits) < 2:
            continue
        ops = {rank: one[0].op for rank, one in waits.items()}
        places = {rank: one[0].seq for rank, one in waits.items()}
        sizes = {rank: one[0].sizes for rank, one in waits.items() if one[0].op in SAME_SIZES and one[0].sizes}
        if len(set(places.values())) > 1 and len(set(ops.values())) > 1:
            yield from _differ(evidence, group, waits, {r: (places[r], ops[r]) for r in waits}, MISMATCH, "place")
        elif len(set(places.values())) > 1:
            continue  # each rank tells its oldest work: of one kind it may be another one
        elif len(set(ops.values())) > 1:
            yield from _differ(evidence, group, waits, dict(ops), MISMATCH, "operation")
        elif len(set(sizes.values())) > 1:
            yield from _differ(evidence, group, waits, dict(sizes), SHAPE, "size")


def by_group(evidence: Evidence) -> dict[str, dict[int, Said]]:
    """{group: {rank: its first watchdog time-out}}. Left out: groups of which one place is told by two ranks, as then
    the name stands for several groups, and what sends to one rank only."""
    known = {
        (status.rank, status.seq): status.group
        for status, _, _ in evidence.job.said("watchdog_status")
        if status.rank is not None and status.group
    }
    alike = _named_alike(evidence, known)
    found: dict[str, dict[int, Said]] = {}
    places: dict[tuple[str, object], set[int]] = {}
    for one in evidence.job.said("watchdog_timeout"):
        event = one[0]
        if event.rank is None or event.seq is None or event.op in POINT_TO_POINT:
            continue
        # Up to torch 2.4 the time-out does not name its group, the account that the rank gives after it does.
        group = _group(event, known) or alike.get(_call(event), "")
        there = found.setdefault(group, {})
        if event.rank not in there or _earlier(event.seq, there[event.rank][0].seq):
            there[event.rank] = one
        if "group_rank" in event.more:
            places.setdefault((group, event.more["group_rank"]), set()).add(event.rank)
    several = {group for (group, _), ranks in places.items() if len(ranks) > 1}
    return {group: waits for group, waits in found.items() if group not in several}


def _call(event: LogEvent) -> tuple[object, ...]:
    return event.seq, event.op, event.sizes


def _group(event: LogEvent, known: Mapping[tuple[int | None, int | None], str]) -> str:
    """By the time-out itself, else by the account that its rank gives after it."""
    return event.group or known.get((event.rank, event.seq), "")


def _named_alike(
    evidence: Evidence, known: Mapping[tuple[int | None, int | None], str]
) -> dict[tuple[object, ...], str]:
    """{call: group} where the accounts of some ranks name one group for it: those of the others were not brought."""
    groups: dict[tuple[object, ...], set[str]] = {}
    for event, _, _ in evidence.job.said("watchdog_timeout"):
        group = _group(event, known)
        if group:
            groups.setdefault(_call(event), set()).add(group)
    return {call: names.pop() for call, names in groups.items() if len(names) == 1}


def _earlier(one: int, other: int | None) -> bool:
    return other is None or one < other


def _differ(
    evidence: Evidence, group: str, waits: dict[int, Said], values: dict[int, object], cause: str, what: str
) -> Iterator[Hypothesis]:
    by_value: dict[object, list[int]] = {}
    for rank, value in values.items():
        by_value.setdefault(value, []).append(rank)
    most = max(by_value.values(), key=len)
    name = f"group {group}" if group else "the group"
    said = "; ".join(f"{ranks_said(list(ranks))}: {_what(waits[ranks[0]])}" for ranks in list(by_value.values())[:3])
    if len(most) * 2 <= len(values):
        yield Hypothesis(
            cause,
            {"group": group} if group else {},
            f"Ranks of {name} wait in different collectives, and no majority tells who is wrong: {said}",
            tuple(quoted(*waits[rank]) for rank in sorted(values)[:4]),
            ("watchdog_draw",),
            would_change=("the watchdog's line of a third rank of this group",),
            ranks=frozenset(values),
            nodes=frozenset(evidence.job.view(rank).node for rank in values),
        )
        return
    for rank in [rank for rank in values if rank not in most][:4]:
        view = evidence.job.view(rank)
        yield Hypothesis(
            cause,
            view.subject,
            f"{view.headline} waits in {_what(waits[rank])} of {name}, where {ranks_said(most)} wait in "
            f"{_what(waits[most[0]])}",
            (quoted(*waits[rank]), *(quoted(*waits[other]) for other in sorted(most)[:2])),
            (SIGNALS[what],),
            would_change=("flight-recorder dumps in which the ranks differ earlier",),
            ranks=frozenset(values),
            nodes=frozenset({view.node}),
        )


def _what(one: Said) -> str:
    event = one[0]
    sizes = f" ({event.sizes[0]} elements in, {event.sizes[-1]} out)" if event.sizes else ""
    return f"{event.op} #{event.seq}{sizes}"


RULE = Rule((MISMATCH, SHAPE), judge)
