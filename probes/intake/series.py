"""One series of values with its labels, whatever printed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Point = tuple[float | None, float]  # seconds since the epoch, value


@dataclass(frozen=True, slots=True)
class Series:
    """`name` is "" for the result of an expression; `points` are in the order of time."""

    name: str
    labels: Mapping[str, str]
    points: tuple[Point, ...]


def time_of(text: str) -> float | None:
    """Seconds since the epoch, of seconds, of milliseconds or of an ISO time, which is taken for UTC."""
    if (value := number(text)) is not None:
        return value / 1000 if value > 1e11 else value
    try:
        return datetime.fromisoformat(text.strip().replace("Z", "+00:00")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def number(value: Any) -> float | None:
    """None for what is no number, or none that anything counts."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        found = float(str(value)[:40])
    except ValueError:
        return None
    return found if -1e18 < found < 1e18 else None
