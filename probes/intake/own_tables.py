"""The one parser of tables that people make themselves, in whatever form: what columns are called, the cells of each
row, and what stood above. What a table tells, its readers find out by the names of its columns.

    | node | uptime | driver |        Markdown; also with | only between the cells
    node,uptime,driver                CSV; also with tabs or ;
    node   uptime   driver            words in columns
    gpu-1 uptime=41d driver=550.1     keys and values; also with the node before them
    [{"host": "gpu-1", ...}]          JSON, a list of objects or one a line

Shape    table_in(text) -> Table | None, when rows make up most of the text; table_in(text, wanted) -> the first whose
         heading is wanted, whatever stands around it; cells(line, mark), objects(text) for readers of lines
Errors   none: what is no such table gives None
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from probes.core import lines_of
from probes.intake.names import is_address, is_host

MOST_ROWS, MOST_COLUMNS, LONGEST = 4096, 40, 4000
ABOVE = 12  # lines, at most, before the heading
LEAST = 0.6  # of the lines are rows or their heading, where nothing is wanted of it; judgement
MOST_BAD = 1000  # pieces that are no JSON, of a text that began as such
MISFITS = 2  # lines, one after the other, end a table that is wanted
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"[\s,]{0,4000}")
_RULE = re.compile(r"[\s|:+=-]{3,2000}")
_PAIR = re.compile(r"([A-Za-z%][\w.%/()-]{0,60})[=:]\s{0,4}(\"[^\"\n]{0,80}\"|[^\s=,;|]{1,80})(?:[\s,;|]{1,8}|$)")
_LEAD = re.compile(r"[\s*>-]{0,8}([A-Za-z0-9][\w.-]{0,62})[\s:,;|]{1,8}")
_WHEN = re.compile(r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s,\]]{0,16}|\d\d:\d\d:\d\d[^\s,\]]{0,12})\]?[\s,]{1,4}")
_PATH = re.compile(r"(/\S{0,120})[\s:,;|]{1,8}")
_UNIT = re.compile(r"\s{0,4}[(\[]([^)\]]{1,24})[)\]]")
_WORDS = re.compile(r"[A-Za-z%#/][^\d\n]{0,60}|[^\n]{0,30}[A-Za-z_%]{2}[^\n]{0,30}")
# A number and its unit are one cell, also where blanks part the cells.
_OF_NUMBER = re.compile(
    r"(?<=\d) (?=(?:%|W|C|[kMG]?Hz|[KMGT]i?B|[kMG]b(?:it)?(?:/s|ps)|[KMGT]i?B(?:/s|ps)|ms|us)(?:\s|$))"
)
Wanted = Callable[[Sequence[str], str], bool]  # of the names of columns, and what stands above


@dataclass(frozen=True, slots=True)
class Table:
    """`heads`: what its columns are called, as written. `above`: what stood there. `mark`: what parts its cells, "json"
    or "keys"."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    above: str = ""
    mark: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Without their units."""
        return tuple(" ".join(_UNIT.sub("", head).split()) for head in self.heads)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(found[1] if (found := _UNIT.search(head)) else "" for head in self.heads)

    def cells(self, at: int) -> tuple[str, ...]:
        return tuple(row[at] for row in self.rows)

    def at(self, word: re.Pattern[str]) -> int | None:
        """The first column that is called so."""
        return next((at for at, head in enumerate(self.heads) if word.fullmatch(head)), None)

    def dicts(self) -> list[dict[str, str]]:
        return [dict(zip(self.heads, row, strict=True)) for row in self.rows]


def table_in(text: str, wanted: Wanted | None = None, most: int = MOST_ROWS) -> Table | None:
    body = text[: max(1_048_576, 160 * most)].lstrip("\ufeff \t\r\n")
    if body[:1] in ("[", "{"):
        rows, whole = _objects(body, most)
        if rows:
            return _of_objects(rows, wanted) if whole or wanted else None
    lines = [line.rstrip() for line in lines_of(body, LONGEST) if line.strip() and not _RULE.fullmatch(line)]
    del lines[most + 40 :]
    return _by_cells(lines, wanted) or _by_keys(lines, wanted)


def cells(line: str, mark: str) -> list[str]:
    """Two blanks as a mark are two or more."""
    if mark == "  ":
        return [_bare(cell) for cell in re.split(r"\s{2,80}", line.strip().strip("|"))]
    if mark == " ":
        return [_bare(cell) for cell in _OF_NUMBER.sub("", line.strip().strip("|")).split()]
    parts = line.strip(" \r\n" if mark == "\t" else None).strip("|" if mark == "|" else "").split(mark)
    if mark != "|" and '"' in line:
        with contextlib.suppress(csv.Error):  # a quote that nothing closes
            parts = next(csv.reader([line.strip().replace("\0", "")], delimiter=mark, skipinitialspace=True), [])
    return [_bare(cell) for cell in parts]


def objects(text: str, most: int = MOST_ROWS) -> list[dict[str, object]]:
    """Those of a list, of the first list in an object, or one after the other; a text may be cut within one."""
    return _objects(text, most)[0]


def _objects(text: str, most: int) -> tuple[list[dict[str, object]], bool]:
    """(objects, whether nothing else stands between them)"""
    found: list[dict[str, object]] = []
    at, bad, cut = (1 if text[:1] == "[" else 0), 0, False
    while len(found) < most and bad < MOST_BAD:
        at += len(between[0]) if (between := _BETWEEN.match(text, at)) else 0
        begins = text[at : at + 1]
        if begins in ("", "]"):
            break
        if begins == "{":
            try:
                said, at = _DECODER.raw_decode(text, at)
                found.append(said)
                continue
            except (ValueError, RecursionError):
                pass
        bad += 1
        after = text.find("\n{", at) + 1
        if not after:
            cut = begins == "{"
            break
        at = after
    inner = next((one for one in found[0].values() if isinstance(one, list)), None) if len(found) == 1 else None
    rows = [one for one in inner[:most] if isinstance(one, dict)] if inner else found
    return rows, bad == (1 if cut else 0)


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


def _bare(cell: str) -> str:
    return cell.strip(" `*\"'\t\r")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], above: str, mark: str) -> Table | None:
    if not 2 <= len(heads) <= MOST_COLUMNS or not rows:
        return None
    return Table(tuple(" ".join(_bare(head).split()) for head in heads), tuple(map(tuple, rows)), above[:2000], mark)


def _by_cells(lines: list[str], wanted: Wanted | None) -> Table | None:
    """A heading, and rows of as many cells below it."""
    for at, line in enumerate(lines[:ABOVE]):
        above = "\n".join(lines[:at])
        found = []
        for mark in _marks(line):
            heads = cells(line, mark)
            if 2 <= len(heads) <= MOST_COLUMNS and (wanted(heads, above) if wanted else _are_words(heads)):
                rows = _rows(lines[at + 1 :], mark, len(heads), MISFITS if wanted else len(lines))
                if wanted or ((len(rows) > 1 or mark == "|") and len(rows) + 1 >= LEAST * len(lines)):
                    found.append((heads, rows, mark))
        if found:
            heads, rows, mark = max(found, key=lambda one: len(one[1]))
            if rows:
                return _table(heads, rows, above, mark)
    return None


def _rows(lines: Iterable[str], mark: str, width: int, misfits: int) -> list[list[str]]:
    rows: list[list[str]] = []
    missed = 0
    for line in lines:
        row = cells(line, mark)
        missed = 0 if len(row) == width else missed + 1
        if not missed:
            rows.append(row)
        elif rows and missed >= misfits:
            break
    return rows


def _are_words(heads: list[str]) -> bool:
    return (
        len(set(heads)) == len(heads)
        and all(_WORDS.fullmatch(head) for head in heads)
        and not any("=" in head for head in heads)  # keys and values
    )


def _marks(line: str) -> list[str]:
    marks = [mark for mark in ("|", "\t", ";", ",") if mark in line]
    return marks[:1] or ["  ", " "]


def _by_keys(lines: list[str], wanted: Wanted | None) -> Table | None:
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
    heads = list(dict.fromkeys(key for row in found for key in row))[:MOST_COLUMNS]
    above = "\n".join(other[:ABOVE])
    if wanted and not wanted(heads, above):
        return None
    return _table(heads, [[_bare(row.get(head, "")) for head in heads] for row in found], above, "keys")


def _pairs(line: str) -> dict[str, str]:
    told: dict[str, str] = {}
    rest = line.lstrip()
    if when := _WHEN.match(rest):
        told["time"] = when[1]
        rest = rest[when.end() :]
    lead = _LEAD.match(rest)
    if lead is not None and (is_host(lead[1]) or is_address(lead[1])) and not _PAIR.match(rest.lstrip(" *>-")):
        told["node"] = lead[1]
        rest = rest[lead.end() :]
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


def _of_objects(rows: list[dict[str, object]], wanted: Wanted | None) -> Table | None:
    heads = list(dict.fromkeys(str(key)[:80] for row in islice(rows, MOST_ROWS) for key in row))[:MOST_COLUMNS]
    if (wanted is None and len(rows) < 2) or (wanted and not wanted(heads, "")):
        return None
    return _table(heads, [[_said(row.get(head)) for head in heads] for row in rows], "", "json")


def _said(value: object) -> str:
    return "" if value is None else str(value)[:200] if isinstance(value, str | int | float) else ""
