"""One verdict against the truth, and many verdicts in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.accuracy.cases import NOTHING, Case, Truth

CONFIDENT = 0.8
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Judged:
    """What was said of one case: (cause, subject, probability), most probable first."""

    case: Case
    said: tuple[tuple[str, Mapping[str, Any], float], ...]
    says: str
    seconds: float

    @property
    def right(self) -> bool:
        """The first is right."""
        return self._right(0)

    @property
    def among_three(self) -> bool:
        """One of the first three is right."""
        return any(self._right(place) for place in range(min(3, len(self.said))))

    @property
    def both(self) -> bool:
        """Where there are two faults, both are among the first three."""
        named = [any(fits(truth, *one[:2]) for one in self.said[:3]) for truth in self.case.second]
        return all(named) and any(fits(truth, *one[:2]) for one in self.said[:3] for truth in self.case.accepted)

    @property
    def share(self) -> float:
        return self.said[0][2] if self.said else 0.0

    @property
    def shortfall(self) -> str:
        """How a wrong verdict is wrong."""
        cause = self.said[0][0] if self.said else "unknown"
        if self.case.control:
            return "do not see that all is well" if cause in NOTHING else "find a cause where there is none"
        if any(cause == truth["cause"] for truth in self._truths):
            return "name the cause but another subject"
        if self.among_three:
            return "have the right one second or third"
        return "say that nothing is found" if cause in NOTHING else "name another cause"

    @property
    def confidently_wrong(self) -> bool:
        return not self.right and self.share >= CONFIDENT

    @property
    def finding_in_control(self) -> bool:
        return self.case.control and bool(self.said) and self.said[0][0] not in NOTHING

    @property
    def _truths(self) -> tuple[Truth, ...]:
        return self.case.accepted + self.case.second

    def _right(self, place: int) -> bool:
        """Of two faults each may be named first."""
        return place < len(self.said) and any(fits(truth, *self.said[place][:2]) for truth in self._truths)


def fits(truth: Truth, cause: str, subject: Mapping[str, Any]) -> bool:
    """Whether a hypothesis is this truth: the same cause, and every part of the subject that the truth gives."""
    same = (_told(key, subject.get(key, "")) == _told(key, value) for key, value in truth.items() if key != "cause")
    return cause == truth["cause"] and all(same)


def _told(key: str, value: Any) -> str:
    """The driver leaves the function out of a bus address, 0000:9b:00, lspci does not."""
    word = str(value).lower()
    return word.removesuffix(".0") if key == "bus_id" else word


@dataclass(frozen=True, slots=True)
class Tally:
    n: int
    top1: int
    top3: int
    confidently_wrong: int
    controls: int
    findings_in_controls: int
    of_two: int  # cases with two faults
    both: int


def tally(judged: Sequence[Judged]) -> Tally:
    """Numbers over some cases."""
    return Tally(
        len(judged),
        sum(one.right for one in judged),
        sum(one.among_three for one in judged),
        sum(one.confidently_wrong for one in judged),
        sum(one.case.control for one in judged),
        sum(one.finding_in_control for one in judged),
        sum(bool(one.case.second) for one in judged),
        sum(bool(one.case.second) and one.both for one in judged),
    )


def reliability(judged: Iterable[Judged]) -> list[tuple[float, float, int, float, float]]:
    """(from, to, n, mean share, share of right ones) of the first hypotheses. Calibrated: the last two are equal."""
    rows = []
    for low, high in zip(BINS, BINS[1:], strict=False):
        here = [one for one in judged if low <= one.share < high or (high == 1.0 and one.share == 1.0)]
        if here:
            mean = sum(one.share for one in here) / len(here)
            rows.append((low, high, len(here), mean, sum(one.right for one in here) / len(here)))
    return rows
