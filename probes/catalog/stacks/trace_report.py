"""What a printed analysis of flight recorders tells: places where a collective was not joined by all, or not alike.

Units    none; `seq` counts within one process group
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """One collective of one group that did not match. `missing`: ranks that have no such call; `odd`: ranks that the
    analysis calls culprits, `error` in what. `expected`: the group's ranks, () where only `size` is told."""

    group: str
    seq: int | None
    op: str
    missing: tuple[int, ...]
    odd: tuple[int, ...]
    error: str
    expected: tuple[int, ...]
    size: int
    state: str
    where: str  # the last frame in the user's code
    told: str = ""  # "table": of ranks with the numbers of their calls, that somebody made

    @property
    def called(self) -> str:
        """`collective #41 (all_reduce) of default_pg`"""
        number = f"collective #{self.seq}" if self.seq is not None else "a collective"
        what = f" ({self.op})" if self.op else ""
        return f"{number}{what}" + (f" of {self.group.rpartition(':')[2] or self.group}" if self.group else "")


@dataclass(frozen=True, slots=True)
class TraceReport:
    """`undumped`: ranks of which the analysis had no dump."""

    places: tuple[Place, ...]
    undumped: tuple[int, ...] = ()
