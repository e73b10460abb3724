"""Who waits where, and who is to blame: what a merge of flight recorders finds.

A rank that waits in one place is not free to come to another. Blamed is who waits nowhere, or who closes a circle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from probes.catalog.recorder.facts import Entry, Signature
from probes.diagnosis.circles import circle


@dataclass(frozen=True, slots=True)
class Waiting:
    """One rank's oldest operation in a group that has not ended. `age_s`: how long it is in it, None if not known.

    `on_device`: True once its kernel runs, False while it is only enqueued, None where the recorder cannot tell (gloo,
    and NCCL without TORCH_NCCL_ENABLE_TIMING).
    """

    rank: int
    seq: int
    what: Signature
    entry: Entry
    age_s: float | None
    on_device: bool | None = None


@dataclass(slots=True)
class Stall:
    """One group, or one pair of a point-to-point operation, in which somebody waits, at the lowest such place.

    `late`: members that have not enqueued `seq` (with how far each is), `silent`: members without a dump,
    `unknown`: members of whom nothing can be told, `odd`: ranks that run another collective there than most, with what
    they run; empty where it is a draw and `draw` says so. `behind`: members that have enqueued it, while the kernel of
    most others already runs; `queued`: while that of any does. `sure`: the dumps say who belongs to the group; where
    they do not (gloo leaves sub-groups out), `perhaps` are ranks that wait in another such group and not here.
    """

    group: str
    desc: str
    seq: int
    what: Signature
    members: frozenset[int]
    waiting: dict[int, Waiting]
    late: dict[int, int] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()
    odd: dict[int, Signature] = field(default_factory=dict)
    draw: dict[int, Signature] = field(default_factory=dict)
    behind: frozenset[int] = frozenset()
    queued: frozenset[int] = frozenset()
    p2p: bool = False
    sure: bool = True
    perhaps: frozenset[int] = frozenset()

    @property
    def called(self) -> str:
        """`collective #41 (all_reduce [1024] Float) of default_pg`, `recv 0<-1 [1024] Float of pp`"""
        name = self.desc or f"group {self.group}"
        return f"{self.what} of {name}" if self.p2p else f"collective #{self.seq} ({self.what}) of {name}"

    @property
    def age_s(self) -> float | None:
        """How long the first one waits; None where no dump tells."""
        return max((one.age_s for one in self.waiting.values() if one.age_s is not None), default=None)

    @property
    def agreed(self) -> bool:
        """Nobody differs and nobody is known to be late."""
        return not (self.late or self.silent or self.odd or self.draw)

    @property
    def complete(self) -> bool:
        """Everybody is in it, with the same operation: it was launched everywhere and does not end."""
        return self.sure and self.agreed and not self.unknown and set(self.waiting) == self.members


@dataclass(slots=True)
class Stalls:
    """`all`: every group that stands. `culprits`: ranks that others wait for and that wait for nobody. `cycle`: ranks
    that wait for each other across groups, `crossed` those groups. `behind`: ranks whose device has not come to what
    the others run. `silent`: the few members without a dump where nobody waits. `uncollected`: members without a dump,
    where so many are missing that it means nothing. `moving`: work ended a moment ago, and no group stands;
    `stepped`: the reading of a log that tells so, by steps after it was asked for the dumps."""

    all: list[Stall] = field(default_factory=list)
    culprits: dict[int, Stall] = field(default_factory=dict)
    cycle: tuple[int, ...] = ()
    crossed: list[Stall] = field(default_factory=list)
    behind: dict[int, Stall] = field(default_factory=dict)
    silent: tuple[int, ...] = ()
    uncollected: frozenset[int] = frozenset()
    moving: bool | None = None
    stepped: str = ""


# Whom to blame ------------------------------------------------------------------------------------------------------


def blame(found: Stalls) -> None:
    """Whoever waits in a group that stands is not free to come to another, whatever that group waits for."""
    runs = _places(found.all, running=True)
    held = {rank: runs.get(rank) or places for rank, places in _places(found.all, running=False).items()}
    awaited = {at: [*stall.late, *stall.silent, *stall.queued, *stall.perhaps] for at, stall in enumerate(found.all)}
    for at, stall in enumerate(found.all):
        for rank in sorted({*stall.late, *stall.silent}):
            if not held.get(rank):
                found.culprits.setdefault(rank, stall)
        for rank in sorted(stall.behind):
            if not runs.get(rank, set()) - {at}:
                found.behind.setdefault(rank, stall)
    if found.culprits or any(stall.odd or stall.draw for stall in found.all):
        return
    ranks, places = circle(held, awaited)
    if len(places) > 1 and len(ranks) > 1:
        found.cycle = tuple(sorted(ranks))
        found.crossed = [stall for at, stall in enumerate(found.all) if at in places]
        found.behind = {rank: stall for rank, stall in found.behind.items() if rank not in ranks}


def _places(stalls: list[Stall], running: bool) -> dict[int, set[int]]:
    """Rank -> the stalls in which it waits; with `running` only those whose kernel runs. A device runs what it has
    started: what is only enqueued behind it does not hold the rank."""
    found: dict[int, set[int]] = {}
    for at, stall in enumerate(stalls):
        for rank, one in stall.waiting.items():
            if one.on_device is True or not running:
                found.setdefault(rank, set()).add(at)
    return found
