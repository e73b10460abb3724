"""Tables of how each rank ended, as people and small launchers print them.

    rank  pid    exit            | rank | exit code |        rank,host,rc
    9     4109   -11 (SIGSEGV)   | 9    | 139       |        9,n1,-11

Shape    Exits.take(line) -> a LogEvent of kind "torchrun_failure" for a rank that did not end by itself, else None
Errors   none
"""

from __future__ import annotations

import dataclasses
import re

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.lines import Line
from probes.catalog.logs.shapes import event

_EXIT = re.compile(r"(?i)(?:exit(?:[ _-]?(?:code|status))?|rc|return[ _-]?code|exitcode)")
_CODE = re.compile(r"(-?\d{1,3})(?: ?\((SIG\w{2,8})\))?")
SIGTERM = -15


class Exits:
    def __init__(self) -> None:
        self._head: tuple[str, int, int, int] | None = None  # between cells, cells, those of the rank and of the code

    def take(self, line: Line) -> LogEvent | None:
        text = line.text.strip()
        if not text or len(text) > 400 or set(text) <= set("|-+=: "):
            return None
        if "ank" in text.lower()[:80] and (head := _head(text)) is not None:
            self._head = head
            return None
        found = self._row(text) if self._head is not None else None
        if found is None:
            self._head = None
            return None
        rank, code = found
        if code == 0:
            return None
        told = event("torchrun_failure", line, {"about": rank, "code": str(code)}, code == SIGTERM)
        return dataclasses.replace(told, rank=None)

    def _row(self, text: str) -> tuple[str, int] | None:
        assert self._head is not None
        mark, width, at, code = self._head
        cells = _cells(text, mark)
        if len(cells) != width or not (cells[at].isdecimal() and len(cells[at]) < 7):
            return None
        told = _CODE.fullmatch(cells[code])
        if told is None:
            return None
        number = int(told[1])
        return cells[at], 128 - number if number > 128 else number


def _head(text: str) -> tuple[str, int, int, int] | None:
    for mark in ("|", "\t", ",", "  ", " "):
        cells = [cell.lower() for cell in _cells(text, mark)]
        codes = [at for at, cell in enumerate(cells) if _EXIT.fullmatch(cell)]
        if "rank" in cells and codes:
            return mark, len(cells), cells.index("rank"), codes[0]
    return None


def _cells(text: str, mark: str) -> list[str]:
    if mark == "  ":
        return re.split(r" {2,40}", text)
    return [cell.strip() for cell in (text.strip("| ") if mark == "|" else text).split(mark if mark != " " else None)]
