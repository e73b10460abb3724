"""One series of values with its labels, whatever printed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Point = tuple[float | None, float]  # seconds since the epoch, value


@dataclass(frozen=True, slots=True)
class Series:
    """`name` is "" for the result of an expression; `points` are in the order of time."""

    name: str
    labels: Mapping[str, str]
    points: tuple[Point, ...]
