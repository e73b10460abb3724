"""How the steps of the ranks are made up, by what their logs print of it.

Units    seconds
Shape    step_times(evidence) -> {rank, or None for lines that nothing marks: Parts}
Errors   none
"""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass

from probes.diagnosis.core import Evidence
from probes.diagnosis.log_evidence import Said

LATE_S = 0.005  # judgement: less is how a kernel is launched
LATE = 0.1  # of a step; judgement
STEPS = 3  # fewer are no pattern
RANKS = 3  # with two, nothing tells which is the usual one, unless both tell how long they wait


@dataclass(frozen=True, slots=True)
class Parts:
    """Medians over the steps; None for a part that is not printed. `own` is computing, `wait` waiting for others."""

    said: Said
    data: float | None
    own: float | None
    wait: float | None
    total: float | None

    @property
    def busy(self) -> float | None:
        """All that it does before the others need it."""
        told = [part for part in (self.data, self.own) if part is not None]
        return sum(told) if told else None

    @property
    def step(self) -> float:
        """A whole step: as printed, or the sum of its parts where that is more."""
        return max(self.total or 0.0, sum(part or 0.0 for part in (self.data, self.own, self.wait)))


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that the others wait for in their steps, by `gap_s`; `by_data`: because its data comes late."""

    rank: int
    parts: Parts
    gap_s: float
    by_data: bool
    says: str
    whole: bool = False  # only whole steps are told, not what they are made up of


def step_times(evidence: Evidence, least: int = STEPS) -> dict[int | None, Parts]:
    """`least`: steps, or tables of many steps, that must be told of a rank."""
    found = {}
    for one in evidence.job.said("step_times"):
        if one[0].count < least:
            continue
        parts = [one[0].more.get(f"{name}_us") for name in ("data", "own", "wait", "total")]
        found[one[0].rank] = Parts(one, *(part / 1e6 if isinstance(part, int) else None for part in parts))
    return found


def late_rank(times: dict[int | None, Parts]) -> Late | None:
    """The one rank that is busy for longer than all others, who wait for as long in their collectives."""
    told = {rank: parts for rank, parts in times.items() if rank is not None}
    ranks = {rank: parts for rank, parts in told.items() if parts.busy is not None}
    whole = not ranks and all(parts.wait is None for parts in told.values())
    if whole:  # steps that end in a collective take equally long: where they differ, each ends before it
        ranks = {rank: dataclasses.replace(parts, own=parts.total) for rank, parts in told.items() if parts.total}
    if not ranks and len(told) >= RANKS and all(parts.wait is not None for parts in told.values()):
        return _waits_least({rank: parts for rank, parts in told.items() if parts.wait is not None})
    waits_told = all(parts.wait is not None for parts in ranks.values())
    if len(ranks) < (2 if waits_told else RANKS):
        return None
    by_busy = sorted(ranks, key=lambda rank: -(ranks[rank].busy or 0.0))
    slow, others = by_busy[0], by_busy[1:]
    busy = [ranks[rank].busy or 0.0 for rank in others]
    usual = statistics.median(busy)
    gap = (ranks[slow].busy or 0.0) - usual
    spread = max(busy) - usual
    if gap < max(LATE_S, LATE * ranks[slow].step) or spread > gap / 2:
        return None
    mine, waits = ranks[slow].wait, [parts.wait for rank in others if (parts := ranks[rank]).wait is not None]
    if mine is not None and waits and mine > statistics.median(waits) - gap / 2:
        return None  # it waits as long as the others: it does more, and nobody waits for it
    usual_data = statistics.median([ranks[rank].data or 0.0 for rank in others])
    by_data = (ranks[slow].data or 0.0) - usual_data > gap / 2
    says = f"rank {slow} is busy for {1000 * (usual + gap):.0f} ms of each step, the others for {1000 * usual:.0f} ms"
    if mine is not None and waits:
        says += f"; it waits for {1000 * mine:.0f} ms, they for {1000 * statistics.median(waits):.0f} ms"
    return Late(slow, ranks[slow], gap, by_data, says, whole)


def _waits_least(told: dict[int, Parts]) -> Late | None:
    """Only how long each waits for the others is told: who hardly waits is the one that they wait for."""
    by_wait = sorted(told, key=lambda rank: told[rank].wait or 0.0)
    slow, others = by_wait[0], by_wait[1:]
    mine, waits = told[slow].wait or 0.0, [told[rank].wait or 0.0 for rank in others]
    usual = statistics.median(waits)
    gap = usual - mine
    if gap < LATE_S or mine > usual / 2 or usual - min(waits) > gap / 2 or gap < LATE * told[slow].step:
        return None
    says = f"rank {slow} waits for {1000 * mine:.0f} ms of each step, the others for {1000 * usual:.0f} ms"
    return Late(slow, told[slow], gap, False, says)


def starved(times: dict[int | None, Parts], share: float) -> list[tuple[int | None, Parts]]:
    """Who waits for data for this share of a step or more."""
    return [
        (rank, parts)
        for rank, parts in times.items()
        if parts.data is not None and parts.data >= LATE_S and parts.data >= share * parts.step
    ]
