"""When something was seen, by words anywhere in a line: `# r1 21 Jan 2026 09:00:00`, `[10:15:00]`, `t=1748436000`.

Units    seconds since the epoch; of a time without a date seconds of its day, for only differences are made of these
Shape    moment_in(line) -> seconds, None without one; seconds_in(line) -> the length of "in 30 s"
Errors   none
"""

from __future__ import annotations

import contextlib
import re
from datetime import UTC, datetime

_CLOCK = r"([0-2]\d):([0-5]\d):([0-5]\d)(?:[.,](\d{1,9}))?"
_ISO = re.compile(rf"(?<!\d)(20\d\d)[-/]([01]\d)[-/]([0-3]\d)[T _]{_CLOCK}")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAMES = "|".join(_MONTHS)
_FIRST = re.compile(
    rf"\b({_NAMES})[a-z]{{0,6}} {{1,2}}(\d{{1,2}}),? {{1,2}}{_CLOCK}(?: [AP]M)?(?: [A-Z]{{2,5}})?(?: (20\d\d))?", re.I
)
_DAY = re.compile(
    rf"\b(\d{{1,2}}) ({_NAMES})[a-z]{{0,6}}(?: (20\d\d))?,? {{1,2}}{_CLOCK}(?: [A-Z]{{2,5}}(?: (20\d\d))?)?", re.I
)
_EPOCH = re.compile(r"(?<![\d.:])(1[5-9]\d{8})(?:\.(\d{1,9}))?(?![\d:])")
_ONLY = re.compile(rf"(?<![\d:.]){_CLOCK}(?![\d:])")
_LONG = re.compile(
    r"(?:\b(?:in|over|within|after|every|for|interval|dt|delta_t|Δt)|[+Δ~(,])\s{0,2}[=:]?\s{0,2}(\d{1,5}(?:\.\d{1,3})?)"
    r"\s{0,2}(s|sec|secs|seconds?|min|mins|minutes?|m|h|hours?)\b(?: (?:apart|later|interval))?"
    r"|\b(\d{1,5}(?:\.\d{1,3})?)\s{0,2}(s|sec|secs|seconds?|min|mins|minutes?)\b (?:apart|later|interval|between)",
    re.I,
)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def moment_in(line: str) -> float | None:
    line = line[:400]
    with contextlib.suppress(ValueError):
        if found := _ISO.search(line):
            return _at(int(found[1]), int(found[2]), int(found[3]), *_clock(found, 4), part=found[7])
        if (found := _FIRST.search(line)) and found[7]:
            return _at(int(found[7]), _month(found[1]), int(found[2]), *_clock(found, 3), part=found[6])
        if (found := _DAY.search(line)) and (found[3] or found[8]):
            year = int(found[3] or found[8])
            return _at(year, _month(found[2]), int(found[1]), *_clock(found, 4), part=found[7])
        if found := _EPOCH.search(line):
            return float(f"{found[1]}.{found[2] or 0}")
        if found := _ONLY.search(line):
            hour, minute, second = _clock(found, 1)
            return hour * 3600.0 + minute * 60 + second + _part(found[4]) if hour < 24 else None
    return None


def seconds_in(line: str) -> float | None:
    found = _LONG.search(line[:1000])
    if found is None:
        return None
    return float(found[1] or found[3]) * _UNITS[(found[2] or found[4])[0].lower()] or None


def _clock(found: re.Match[str], first: int) -> tuple[int, int, int]:
    return int(found[first]), int(found[first + 1]), int(found[first + 2])


def _month(name: str) -> int:
    return _MONTHS.index(name[:3].lower()) + 1


def _part(text: str | None) -> float:
    return float(f"0.{text}") if text else 0.0


def _at(year: int, month: int, day: int, hour: int, minute: int, second: int, part: str | None = None) -> float:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp() + _part(part)
