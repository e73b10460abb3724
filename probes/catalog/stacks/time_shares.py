"""Where the time of steps goes, by a table that a profiler or a program printed: which of it is fetching data.

Units    seconds
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeShares:
    """`data`: the row that fetches data and takes longest; `whole`: what its time is a share of. `share` is 0 to 1."""

    rows: int
    data: str
    data_s: float | None
    whole: str
    whole_s: float | None
    share: float
    calls: int | None
    rank: int | None = None  # where the text itself tells it
