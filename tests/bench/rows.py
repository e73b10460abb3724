"""One line of the table."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.measure import Cost


@dataclass(frozen=True, slots=True)
class Row:
    """`against`: seconds of CPU of the peer in the same run, for the same work; None for the peer itself."""

    what: str
    who: str
    cost: Cost
    goal: str = ""
    against: float | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        wall = f"{self.cost.wall_s:.2f}" if self.cost.wall_s else ""
        peak = f"{self.cost.peak_mb:.0f}" if self.cost.peak_mb else ""
        ratio = f"1 : {self.against / max(self.cost.cpu_s, 1e-6):.1f}" if self.against else ""
        return self.what, self.who, f"{self.cost.cpu_s:.2f}", wall, peak, self.goal, ratio
