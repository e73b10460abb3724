"""Counters of one port at several times, and what they did in between.

Units    counters raw; seconds
Errors   none: what cannot be compared says why
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from probes.catalog.network.ib_facts import saturated

WEEK_S = 7 * 86_400.0
_FIRST = re.compile(r"(?:^|[^a-z])(?:before|pre|first|start|begin|earlier|baseline|old)(?:[^a-z]|$)", re.I)
_LAST = re.compile(r"(?:^|[^a-z])(?:after|post|end|later|now|new|again|second|repeat)(?:[^a-z]|$)", re.I)
_STAMP = re.compile(
    r"(?<!\d)(20\d\d)[-._]?([01]\d)[-._]?([0-3]\d)[-._ T]?([0-2]\d)[-._:h]?([0-5]\d)[-._:m]?([0-5]\d)(?!\d)"
)
_CLOCK = re.compile(r"(?<![\d.-])([0-2]\d)[-._:h]([0-5]\d)[-._:m]([0-5]\d)(?![\d-])")
_EPOCH = re.compile(r"(?<!\d)(1[6-9]\d{8})(?!\d)")


@dataclass(frozen=True, slots=True)
class Look:
    """Counters of one port at one time. `order` sorts looks whose time is not known: by the names of their files."""

    counters: Mapping[str, int | None]
    at: float | None
    order: tuple[Any, ...]
    ref: str


@dataclass(frozen=True, slots=True)
class Change:
    """Between the first look and the last. `delta` is None where it is not known: `why` is then saturated or reset."""

    delta: int | None
    seconds: float | None
    why: str = ""
    ref: str = ""


def change(name: str, looks: list[Look]) -> Change | None:
    """What one counter did; None where fewer than two looks have it."""
    values = [(one, value) for one in looks if (value := one.counters[name]) is not None]
    if len(values) < 2:
        return None
    (first, a), (last, b) = values[0], values[-1]
    seconds = last.at - first.at if first.at is not None and last.at is not None else None
    if seconds is not None and not 0 < seconds < WEEK_S:
        seconds = None
    if saturated(name, b):
        return Change(None, seconds, "saturated", last.ref)
    if any(later < earlier for (_, earlier), (_, later) in zip(values, values[1:], strict=False)):
        return Change(None, seconds, "reset", last.ref)
    return Change(b - a, seconds, "", last.ref)


def time_of(ref: str) -> float | None:
    """The time that the name of a file, or of its folder, tells; taken as UTC, for only differences are made of it."""
    for name in reversed(ref.split("/")[-2:]):
        if found := _STAMP.search(name):
            year, month, day, hour, minute, second = (int(part) for part in found.groups())
            with contextlib.suppress(ValueError):
                return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
        if found := _EPOCH.search(name):
            return float(found[1])
        if found := _CLOCK.search(name):  # without its day
            return int(found[1]) * 3600.0 + int(found[2]) * 60 + int(found[3])
    return None


def order_of(ref: str, inside: int = 0) -> tuple[Any, ...]:
    """Files before and after something, t0 and t1, t1 and t2, a and b, or with times in their names: in their order."""
    name = ref.rpartition("/")[2] if not re.search(r"(?:before|after|t\d|pre|post)/", ref, re.I) else ref
    stage = 0 if _FIRST.search(name) else 2 if _LAST.search(name) else 1
    ref = re.sub(r"\.(?:txt|log|out|csv|json|dat)(?=$|:)", "\0", ref)  # t0.txt is before t0+10s.txt
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d{1,18})", ref) if part]
    return stage, tuple(parts), inside
