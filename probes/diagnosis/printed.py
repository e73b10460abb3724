"""Whom a printed analysis of flight recorders leaves to blame: torchfrtrace lists places, and no order among them.

A rank that is missing in one place and waits in another is not free to come. Only who waits nowhere is to blame, or
who closes a circle. Of ranks called culprits the smaller side is odd: the analysis takes its first file for the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from probes.catalog.stacks.trace_report import Place, TraceReport
from probes.diagnosis.circles import circle
from probes.diagnosis.core import Evidence, Seen

PROBE = "rank.trace_report"


@dataclass(slots=True)
class Printed:
    """`free`: ranks that others wait for and that wait nowhere, with where. `cycle`: ranks that wait for each other
    across `crossed`. `odd`: places in which calls differ, with who differs (() for a draw)."""

    seen: Seen | None = None
    free: dict[int, Place] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    cycle: tuple[int, ...] = ()
    crossed: tuple[Place, ...] = ()
    odd: list[tuple[Place, tuple[int, ...]]] = field(default_factory=list)
    undumped: tuple[int, ...] = ()


def printed(evidence: Evidence) -> Printed:
    """Of all reports that were brought, one a group perhaps. Dumps themselves tell more: then nothing."""
    reports = list(evidence.of(PROBE))
    if not reports or any(view.dump is not None for view in evidence.job.ranks.values()):
        return Printed()
    places = dict.fromkeys(place for one in reports for place in one.facts.places)
    undumped = {rank for one in reports for rank in one.facts.undumped}
    return _judged(TraceReport(tuple(places), tuple(sorted(undumped))), reports[-1], evidence.job.world_size)


def _judged(report: TraceReport, seen: Seen, world: int | None) -> Printed:
    found = Printed(seen, undumped=report.undumped)
    first: dict[object, Place] = {}
    for place in report.places:  # what follows in one group may be paired wrongly
        if place.state != "completed":
            first.setdefault((place.group, place.expected or place.missing), place)
    places = list(first.values())
    members = [_members(place, world) for place in places]
    found.odd = [
        (place, _odd(place, those))
        for place, those in zip(places, members, strict=True)
        if place.error and not place.missing
    ]
    missed = [(place, those) for place, those in zip(places, members, strict=True) if place.missing]
    held: dict[int, list[int]] = {}
    for at, (place, those) in enumerate(missed):
        for rank in those - set(place.missing):
            held.setdefault(rank, []).append(at)
    if not found.odd:
        for place, _ in missed:
            found.free |= {rank: place for rank in place.missing if rank not in held and rank not in found.free}
    # Of several places the one with the fewest missing tells most of a rank.
    for rank in found.free:
        found.free[rank] = min(
            (place for place, _ in missed if rank in place.missing), key=lambda one: len(one.missing)
        )
    found.waiting = frozenset(held)
    if not found.free and not found.odd:
        ranks, crossed = circle(held, {at: place.missing for at, (place, _) in enumerate(missed)})
        if len(crossed) > 1 and len(ranks) > 1:
            found.cycle, found.crossed = tuple(sorted(ranks)), tuple(missed[at][0] for at in sorted(crossed))
    return found


def _members(place: Place, world: int | None) -> frozenset[int]:
    if place.expected:
        return frozenset(place.expected)
    whole = "default" in place.group or place.group in ("", "0")
    size = place.size or (world or 0)
    return frozenset(range(size)) if whole and size <= 65_536 else frozenset()


def _odd(place: Place, members: frozenset[int]) -> tuple[int, ...]:
    """The smaller side; () where both are as large, or where nothing tells how many there are."""
    others = members - set(place.odd)
    if not place.odd or not members or len(others) == len(place.odd):
        return ()
    return place.odd if len(place.odd) < len(others) else tuple(sorted(others))
