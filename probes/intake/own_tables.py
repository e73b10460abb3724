"""Tables that people make themselves, in whatever form: the cells of each row by what its column is called.

    | node | uptime | driver |        Markdown; also with | only between the cells
    node,uptime,driver                CSV; also with tabs or ;
    node   uptime   driver            words in columns
    gpu-1 uptime=41d driver=550.1     keys and values; also with the node before them
    [{"host": "gpu-1", ...}]          JSON, a list of objects or one a line

Shape    table_in(text) -> Table | None, when rows make up most of the text
Errors   none: what is no such table gives None
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from probes.core import lines_of
from probes.intake.names import is_address, is_host

MOST_ROWS, MOST_COLUMNS, LONGEST = 4096, 40, 2000
LEAST = 0.6  # of the lines are rows or their heading; judgement
_RULE = re.compile(r"[\s|:+=-]{3,2000}")
_PAIR = re.compile(r"([A-Za-z%][\w.%/()-]{0,60})[=:]\s{0,4}(\"[^\"\n]{0,80}\"|[^\s=,;|]{1,80})(?:[\s,;|]{1,8}|$)")
_LEAD = re.compile(r"[\s*>-]{0,8}([A-Za-z0-9][\w.-]{0,62})[\s:,;|]{1,8}")
_PATH = re.compile(r"(/\S{0,120})[\s:,;|]{1,8}")
_UNIT = re.compile(r"\s{0,4}[(\[]([^)\]]{1,24})[)\]]")
_WORDS = re.compile(r"[A-Za-z%#/][^\d\n]{0,60}|[^\n]{0,30}[A-Za-z_%]{2}[^\n]{0,30}")


@dataclass(frozen=True, slots=True)
class Table:
    """`names`: what its columns are called, as written but for units; `units` of them. `above`: what stood there."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    above: str = ""

    def cells(self, at: int) -> tuple[str, ...]:
        return tuple(row[at] for row in self.rows)


def table_in(text: str) -> Table | None:
    body = text[:1_048_576].lstrip("\ufeff \t\r\n")
    if body[:1] in "[{":
        return _of_json(body)
    lines = [line.rstrip() for line in lines_of(body, LONGEST) if line.strip()][: MOST_ROWS + 40]
    bare = [line for line in lines if not _RULE.fullmatch(line)]
    return _by_cells(bare) or _by_keys(bare)


_WITH_UNIT = re.compile(r"([+-]?\d{1,12}(?:\.\d{1,9})?) ?(ns|us|µs|ms|s|sec)")


def as_csv(table: Table) -> str:
    """With the unit of its cells in a column's name, where they have one and the same."""
    names, columns = [], []
    for at, name in enumerate(table.names):
        found = [_WITH_UNIT.fullmatch(cell) for cell in table.cells(at)]
        units = {one[2] if one else "" for one in found}
        unit = next(iter(units)) if len(units) == 1 else ""
        columns.append(
            [
                one[1] if one and unit else cell.replace(",", " ")
                for one, cell in zip(found, table.cells(at), strict=True)
            ]
        )
        bare = re.sub(r"\W+", "_", name.lower()).strip("_")
        names.append("_".join(part for part in (bare, unit or table.units[at]) if part))
    rows = zip(*columns, strict=True)
    return "\n".join(",".join(row) for row in (names, *rows)) + "\n"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], above: Sequence[str] = ()) -> Table | None:
    if not 2 <= len(names) <= MOST_COLUMNS or not rows:
        return None
    units = tuple(found[1] if (found := _UNIT.search(name)) else "" for name in names)
    plain = tuple(" ".join(_UNIT.sub("", name).strip(" `*\"'").split()) for name in names)
    kept = tuple(tuple(cell.strip(" `*\"'") for cell in row) for row in rows[:MOST_ROWS])
    return Table(plain, units, kept, "\n".join(above)[:2000])


def _by_cells(lines: list[str]) -> Table | None:
    """A heading of words, and rows of as many cells below it."""
    for at, line in enumerate(lines[:12]):
        for split in _splits(line):
            names = _cells(line, split)
            if len(names) < 2 or len(set(names)) < len(names) or not all(_WORDS.fullmatch(name) for name in names):
                continue
            if any("=" in name for name in names):  # keys and values
                continue
            rows = [cells for row in lines[at + 1 :] if len(cells := _cells(row, split)) == len(names)]
            if rows and (len(rows) > 1 or split == "|") and len(rows) + 1 >= LEAST * len(lines):
                return _table(names, rows, lines[:at])
    return None


def _splits(line: str) -> list[str]:
    marks = [mark for mark in ("|", "\t", ";", ",") if mark in line]
    return marks[:1] or ["  ", " "]


def _cells(line: str, split: str) -> list[str]:
    if split == "  ":
        return re.split(r"\s{2,80}", line.strip())
    if split == " ":
        return line.split()
    return [cell.strip() for cell in line.strip().strip("|" if split == "|" else "").split(split)]


def _by_keys(lines: list[str]) -> Table | None:
    """Keys and values in every line, perhaps behind the node and a path."""
    found: list[dict[str, str]] = []
    other: list[str] = []
    for line in lines:
        row = _pairs(line)
        if row:
            found.append(row)
        else:
            other.append(line)
    if len(found) < 2 or len(found) < LEAST * len(lines):
        return None
    if len(found) > 2 and not set(found[0]) & set(found[1]) and set(found[1]) & set(found[2]):
        found.pop(0)  # what all have in common, above them
        other.insert(0, lines[0])
    names = list(dict.fromkeys(key for row in found for key in row))[:MOST_COLUMNS]
    return _table(names, [[row.get(name, "") for name in names] for row in found], other[:12])


def _pairs(line: str) -> dict[str, str]:
    told: dict[str, str] = {}
    rest = line
    lead = _LEAD.match(line)
    if lead is not None and (is_host(lead[1]) or is_address(lead[1])) and not _PAIR.match(line.lstrip(" *>-")):
        told["node"] = lead[1]
        rest = line[lead.end() :]
    rest = rest.lstrip(" *>-")
    if path := _PATH.match(rest):
        told["mount"] = path[1]
        rest = rest[path.end() :]
    at = pairs = 0
    while at < len(rest) and pairs < MOST_COLUMNS and (pair := _PAIR.match(rest, at)):
        told[pair[1]] = pair[2]
        pairs += 1
        at = pair.end()
    return told if pairs and at == len(rest) and len(told) > 1 else {}


def _of_json(body: str) -> Table | None:
    rows: list[object] = []
    try:
        said = json.loads(body)
        rows = said if isinstance(said, list) else next((one for one in said.values() if isinstance(one, list)), [])
    except (ValueError, RecursionError):
        for line in list(lines_of(body, LONGEST))[:MOST_ROWS]:
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError):
                return None
    flat = [row for row in rows[:MOST_ROWS] if isinstance(row, dict)]
    if len(flat) < 2 or len(flat) < len(rows[:MOST_ROWS]):
        return None
    names = list(dict.fromkeys(str(key)[:80] for row in flat for key in row))[:MOST_COLUMNS]
    return _table(names, [[_said(row.get(name)) for name in names] for row in flat])


def _said(value: object) -> str:
    return "" if value is None else str(value)[:200] if isinstance(value, str | int | float) else ""
