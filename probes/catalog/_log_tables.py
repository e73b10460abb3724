"""Tables of times per rank that people print or save: ranks as columns, ranks as rows, one JSON object per line.

    rank      0      1      2          iteration,rank,host,fwd_ms,wait_ms        {"rank": 3, "step": 9, "fwd_ms": 41.2}
    compute   0.41   0.40   0.75       100,0,gpu-1,1331.1,1684.2

Source   none: everybody names the columns after what they hold; a column counts where its name is one of `part_of`
Units    seconds; the unit is what the name of a column or row ends in (ms, us, s), else seconds
Shape    Tables.take(line) -> cells (rank, part, name, seconds), None when the line is of no table
Errors   none: a row that does not fit the head of its table ends it
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from probes.catalog._log_lines import Line
from probes.core import clean

MOST_COLUMNS, LONGEST = 4096, 65_536
MOST_HOSTS = 4096
LONGEST_TIME = 1e12  # in whatever unit
_RANK = re.compile(r"(?i)(?:global[ _-]?|world[ _-]?|dp[ _-]?)?ranks?(?:[ _-]?(?:id|no))?|global_?rank_?id")
_HOST = re.compile(r"(?i)(?:host|node)(?:[ _-]?name)?|machine|server|hostname")
_UNIT = re.compile(r"(?i)[ _/\[(-]{1,2}(us|usec|ms|msec|millis|milliseconds|s|sec|secs|seconds)[\])]?$")
_SCALE = {"u": 1e-6, "m": 1e-3, "s": 1.0}
_NUMBER = re.compile(r"(-?\d{1,12}(?:\.\d{1,9})?) ?(us|ms|s)?")
_INT = re.compile(r"(?i)(?:rank[ _=:]?|r)?(\d{1,7})")
_NODE = re.compile(r"[A-Za-z][\w.-]{0,62}")
Cell = tuple[int, str, str, float]


@dataclass(frozen=True, slots=True)
class _Head:
    split: str
    width: int
    rank: int | None  # the column of the rank; None: the ranks are columns
    ranks: tuple[int, ...]
    columns: tuple[tuple[int, str, str, float], ...]  # (column, part, name, scale)
    host: int | None = None


class Tables:
    """`part_of` gives the part of a step that a name (without its unit) is of, "" for any other."""

    def __init__(self, part_of: Callable[[str], str]) -> None:
        self._part_of = part_of
        self._head: _Head | None = None
        self.hosts: dict[int, str] = {}

    def take(self, line: Line) -> list[Cell] | None:
        text = line.text.strip()
        if not text or len(text) > LONGEST:
            return None
        if text[0] == "{":
            return self._object(text) if "ank" in text else None
        if self._head is not None:
            cells = self._row(self._head, text)
            if cells is not None:
                return cells
        if ("ank" in text or "ANK" in text) and (head := self._headed(text)) is not None:
            self._head = head
            return []
        if not set(text) <= set("-=+|: "):  # a rule between head and rows
            self._head = None
        return None

    def _headed(self, text: str) -> _Head | None:
        split = next((mark for mark in ("|", "\t", ",", ";") if text.count(mark) > 1), "")
        names = _cells(text, split)
        if not 1 < len(names) <= MOST_COLUMNS:
            return None
        rank = next((at for at, name in enumerate(names) if _RANK.fullmatch(name)), None)
        if rank is None:
            return None
        ranks = [_INT.fullmatch(name) for name in names[rank + 1 :]]
        if rank == 0 and all(ranks):
            numbers = tuple(int(found[1]) for found in ranks if found)
            return _Head(split, len(names), None, numbers, ()) if len(set(numbers)) == len(numbers) else None
        if any(_NUMBER.fullmatch(name) for name in names):
            return None
        columns = []
        for at, name in enumerate(names):
            bare, scale = unit_of(name)
            if at != rank and (part := self._part_of(bare)):
                columns.append((at, part, bare, scale))
        host = next((at for at, name in enumerate(names) if _HOST.fullmatch(name)), None)
        return _Head(split, len(names), rank, (), tuple(columns), host) if columns else None

    def _row(self, head: _Head, text: str) -> list[Cell] | None:
        cells = _cells(text, head.split)
        if head.rank is None:
            return self._of_columns(head, cells)
        if len(cells) != head.width or not (mine := _INT.fullmatch(cells[head.rank])):
            return None
        rank = int(mine[1])
        if head.host is not None and _NODE.fullmatch(cells[head.host]) and len(self.hosts) < MOST_HOSTS:
            self.hosts.setdefault(rank, clean(cells[head.host]))
        found = []
        for at, part, name, scale in head.columns:
            if (seconds := _seconds(cells[at], scale)) is not None:
                found.append((rank, part, name, seconds))
        return found

    def _of_columns(self, head: _Head, cells: list[str]) -> list[Cell] | None:
        values = cells[-len(head.ranks) :]
        label = " ".join(cells[: -len(head.ranks)]).strip(" :")
        if len(cells) <= len(head.ranks) or not all(_NUMBER.fullmatch(value) for value in values):
            return None
        bare, scale = unit_of(label)
        part = self._part_of(bare)
        if not part:
            return []
        seconds = [_seconds(value, scale) for value in values]
        return [(rank, part, bare, one) for rank, one in zip(head.ranks, seconds, strict=True) if one is not None]

    def _object(self, text: str) -> list[Cell] | None:
        try:
            said = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict):
            return None
        rank = next((value for key, value in said.items() if _RANK.fullmatch(key)), None)
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < 10_000_000:
            return None
        found = []
        for key, value in list(said.items())[:64]:
            bare, scale = unit_of(key)
            if _is_time(value) and (part := self._part_of(bare)):
                found.append((rank, part, bare, float(value) * scale))
            elif isinstance(value, str) and _HOST.fullmatch(key) and _NODE.fullmatch(value):
                self.hosts.setdefault(rank, clean(value))
        return found or None


def _is_time(value: object) -> bool:
    """Whether it is a number that may be a time: JSON of others holds Infinity and integers of any length."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LONGEST_TIME


def _cells(text: str, split: str) -> list[str]:
    if not split:
        return text.split()
    return [cell.strip(" \"'") for cell in text.strip("| " if split == "|" else " ").split(split)]


def unit_of(name: str) -> tuple[str, float]:
    """`fwd_ms` is (fwd, 0.001), `compute (s)` is (compute, 1)."""
    found = _UNIT.search(name)
    if found is None:
        return name.strip().lower(), 1.0
    return name[: found.start()].strip().lower(), _SCALE[found[1][0].lower()]


def _seconds(cell: str, scale: float) -> float | None:
    found = _NUMBER.fullmatch(cell)
    if found is None:
        return None
    return float(found[1]) * (_SCALE[found[2][0]] if found[2] else scale)
