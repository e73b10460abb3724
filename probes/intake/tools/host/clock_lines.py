"""What time it is on each node, a line a node, as a loop over open connections prints it.

    w-01  local_ms=1775461845000  rtt_ms=0.3
    gpu-017 1775461845.123                     `date +%s.%N`; also milliseconds, microseconds or nanoseconds
    node,epoch                                 CSV and tables with such a heading are the same
    gpu-017: offset -251.870 s                 by how much it is off, in words with a unit; also without the node
    host=gpu-017 rtt=1(0)ms/1ms delta=-251871ms/-251871ms      clockdiff, of the node that it asked

Source: date(1), clock_gettime(2), clockdiff(8) of iputils
Units   seconds since the epoch
"""

from __future__ import annotations

import re

from probes.catalog.host_clock import Clock
from probes.core import lines_of
from probes.intake.names import is_address, is_host
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

MOST = 4096
_NODE = r"\s{0,8}(?:(?:node|host|hostname|server)[=:] ?)?([A-Za-z0-9][\w.-]{0,80})[\s,;|:]{1,8}"
_OF_TIME = r"(?:local|utc|now|epoch|unix|time|date|clock|ts|ns|us|ms|s|stamp|remote|wall|system|is|[_ ()-]){1,6}"
_LINE = re.compile(
    rf"{_NODE}(?:{_OF_TIME}[=:\s]{{1,4}})?(1\d{{9}})(\d{{3}}|\d{{6}}|\d{{9}})?(\.\d{{1,9}})?(?=[\s,;|]|$)", re.I
)
_OFFSET = re.compile(
    rf"{_NODE}(?:clock[ _-]?)?(?:offset|skew|drift)(?:_(s|ms|us))?[\s=:]{{1,4}}"
    r"([+-]?\d{1,9}(?:\.\d{1,9})?)\s{0,2}(s|sec|seconds|ms|us)?(?=[\s,;|]|$)",
    re.I,
)
_ALONE = re.compile(
    r"\s{0,8}(?:clock[ _-]?)?(?:offset|skew|drift)(?:_(s|ms|us))?[\s=:]{1,4}"
    r"([+-]?\d{1,9}(?:\.\d{1,9})?)\s{0,2}(s|sec|seconds|ms|us)?\s{0,8}",
    re.I,
)
_CLOCKDIFF = re.compile(r"host=(\S{1,80}) rtt=\d{1,9}\(\d{1,9}\)ms/\d{1,9}ms delta=(-?\d{1,12})ms/-?\d{1,12}ms")
_SCALE = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6}


def fits(head: str, name: str) -> bool:
    lines = [line for line in lines_of(head, 200) if line.strip() and not line.lstrip().startswith("#")][:200]
    told = [node for line in lines if (node := _told(line)) is not None]
    if told and all(_CLOCKDIFF.search(line) or line.strip(" .")[:2] in ("", "$ ") for line in lines):
        return True
    if _titled(head):
        return True
    if len(lines) == 1 and _alone(lines[0]) is not None:
        return True
    return len(told) > 1 and len({node for node, _ in told}) == len(told) and 2 * len(told) > len(lines)


_TITLE = re.compile(r"[^\n]{0,80}\b(?:offset|skew|drift)\b[^\n]{0,40}?\b(ms|us|s|sec|seconds)\b[^\n]{0,40}", re.I)
_VALUE = re.compile(rf"{_NODE}([+-]?\d{{1,9}}(?:\.\d{{1,9}})?)\s{{0,8}}", re.I)


def _titled(text: str) -> dict[str, Clock]:
    """A title that says what is in which unit, and a line a node below it."""
    lines = [line for line in lines_of(text[:65_536], 200) if line.strip()]
    title = _TITLE.fullmatch(lines[0].strip()) if len(lines) > 2 and not _told(lines[0]) else None
    rows = [_VALUE.fullmatch(line) for line in lines[1:MOST]]
    if title is None or not all(row and (is_host(row[1]) or is_address(row[1])) for row in rows):
        return {}
    return {row[1]: _off(row[2], title[1]) for row in rows if row}


def by_node(text: str) -> dict[str, Clock]:
    if titled := _titled(text):
        return titled
    found: dict[str, Clock] = {}
    for line in lines_of(text[:1_048_576], 200):
        if (told := _told(line)) is not None and len(found) < MOST:
            found.setdefault(*told)
    if not found and (alone := _alone(text.strip())) is not None:
        return {"": alone}
    if not found:
        raise refuse("lines such as 'gpu-017 1775461845.123'", text)
    return found


def _off(value: str, unit: str) -> Clock:
    return Clock(None, None, None, "a table of clocks", None, float(value) * _SCALE[unit.lower()])


def _alone(line: str) -> Clock | None:
    found = _ALONE.fullmatch(line)
    unit = found and (found[1] or found[3])
    return _off(found[2], unit) if found and unit else None


def _told(line: str) -> tuple[str, Clock] | None:
    if found := _CLOCKDIFF.search(line):
        clock = _off(found[2], "ms")
    elif found := _LINE.match(line):
        digits = found[3] or ""
        at = float(found[2]) + (float(f"0.{digits}") if digits else 0.0) + float(found[4] or 0.0) / 10 ** len(digits)
        clock = Clock(None, None, None, "", None, None, at)
    elif found := _OFFSET.match(line):
        if not (unit := found[2] or found[4]):
            return None
        clock = _off(found[3], unit)
    else:
        return None
    return (found[1], clock) if is_host(found[1]) or is_address(found[1]) else None


def read(text: str) -> Clock:
    return next(iter(by_node(text).values()))


TOOL = Tool("clocks of a loop", "host.clock", fits, read, by_node=by_node)
