"""What a small script measured of every GPU of several nodes, as lines of numbers under a word that tells which.

    h2d copy GB/s                                 GEMM TFLOPS                          SM clock under load, MHz
    n13 gpu0 54.9 gpu1 55.0 gpu2 54.8             n13: 610 612 608 611 609             n13  1755 1755 1740
    n14 gpu0 55.0 gpu1 54.9 gpu2  6.6             n14: 611 610 609 214 610             n14  1755  615 1755

    rank  local  H2D GB/s                         One row for each GPU of a node: the first columns say whose it is
       8      0      54.1
       9      1       6.6

Units    none are needed: what was measured alike is compared
Source   judgement: GPUs of one job are of one kind, and differ by a few percent
Shape    facts gpu.verdicts, of each node with a GPU far below all others
Errors   ParseError where none is
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from probes.core import ParseError, Severity, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._told_of import leading
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings

LOW, ALIKE = 0.6, 0.8  # of the median, judgement: one GPU of a kind is never that far below the others by itself
FEWEST = 4  # values that are compared
MOST = 4_096
# Words of the title or of the line -> code, how bad, our words.
_KINDS: tuple[tuple[re.Pattern[str], str, Severity, str], ...] = (
    (re.compile(r"\b(?:h2d|d2h|htod|dtoh)\b|host.{0,3}(?:to|->|<->).{0,3}device"
                r"|pci-?e.{0,20}(?:bw|band|copy|GB/s)", re.I),
     "gpu.copy_slow", "bad", "copies with the host at"),
    (re.compile(r"\b(?:d2d|p2p|peer|nvlink)\b.{0,30}(?:bw|band|copy|GB/s)|\bnvbandwidth\b", re.I),
     "gpu.nvlink_slow", "bad", "copies with its peers at"),
    (re.compile(r"\b(?:sm |gpu |core |graphics )?clocks?\b.{0,30}(?:load|busy|training|run|100 ?%)", re.I),
     "gpu.throttle_told", "bad", "has under load a clock of"),
    (re.compile(r"\bgemm|\bmatmul|\bt(?:era)?flops?\b|\bgpu[ -]?burn", re.I),
     "gpu.throttle_told", "warn", "computes at"),
)  # fmt: skip
_PAIR = re.compile(r"\bgpu ?#?(\d{1,2})\s{0,4}[ :=]\s{0,4}(\d{1,7}(?:\.\d{1,4})?)(?![\w.:])", re.I)
_NUMBERS = re.compile(
    r"[:|,=\s]{0,40}((?:\d{1,7}(?:\.\d{1,4})?[ ,|\t]{1,12}){1,15}\d{1,7}(?:\.\d{1,4})?)\s{0,4}\D{0,40}$"
)


_HEAD = re.compile(
    r"[\s#|]{0,8}(?:global |world )?(rank|local\S{0,6}|gpu\S{0,6}|index|idx|dev\S{0,4})\b(.{0,200})", re.I
)
_LOCAL = re.compile(r"local|gpu|index|idx|dev", re.I)
_CELLS = re.compile(r"[\s|]{0,12}\d{1,6}(?:[\s,|]{1,12}\d{1,6})?[\s,|]{1,16}\d{1,7}(?:\.\d{1,4})?[\s|]{0,8}")


@dataclass(frozen=True, slots=True)
class _Row:
    node: str
    values: tuple[tuple[int, float], ...]


def _row(line: str) -> _Row | None:
    node = leading(line, len(line))
    if not node:
        return None
    rest = line[line.find(node) + len(node) :].lstrip("])")
    if len(pairs := _PAIR.findall(rest)) > 1:
        return _Row(node, tuple((int(gpu), float(value)) for gpu, value in pairs))
    found = _NUMBERS.match(rest)
    values = re.findall(r"[\d.]+", found[1]) if found else []
    return _Row(node, tuple(enumerate(float(value) for value in values))) if len(values) > 1 else None


def _one_each(text: str) -> Iterator[tuple[str, list[_Row]]]:
    """(the heading, a row for each GPU of the node whose file it is)"""
    title, at, rows = "", -1, list[_Row]()
    for line in lines_of(text, 600):
        if _CELLS.fullmatch(line) and title:
            cells = re.findall(r"[\d.]+", line)
            if len(rows) < MOST and at < len(cells) - 1:
                rows.append(_Row("", ((int(cells[at]) if at >= 0 else -1, float(cells[-1])),)))
        elif line.strip(" -=|+\t"):
            if rows:
                yield title, rows
            head = _HEAD.match(line)
            title, rows = line if head else "", []
            second = head is not None and _LOCAL.match(head[2].strip(" |,\t")) is not None
            at = -1 if head is None else 0 if _LOCAL.match(head[1]) else 1 if second else -1
    if rows:
        yield title, rows


def _groups(text: str) -> Iterator[tuple[str, list[_Row]]]:
    """(the title, the rows below it)"""
    title, rows = "", list[_Row]()
    for line in lines_of(text, 600):
        if (row := _row(line)) is not None:
            if len(rows) < MOST:
                rows.append(row)
        elif line.strip() and not re.fullmatch(
            r"[\s\-=|]*(?:(?:node|host|gpu)\s?\d{0,2}[\s|]*){1,40}", line[:300], re.I
        ):
            if rows:
                yield title, rows
            title, rows = line, []
    if rows:
        yield title, rows


def _odd(text: str) -> Iterator[tuple[str, Verdict]]:
    for title, rows in (*_groups(text), *_one_each(text)):
        kind = next((one for one in _KINDS if one[0].search(title)), None)
        values = [value for row in rows for _, value in row.values]
        if kind is None or len(values) < FEWEST or len({len(row.values) for row in rows}) > 1:
            continue
        usual = median(values)
        low = [value for value in values if value < LOW * usual]
        rest = [value for value in values if value >= LOW * usual]
        if not low or len(low) * 4 > len(values) or min(rest) < ALIKE * usual:
            continue
        _, code, how, says = kind
        for row in rows:
            for gpu, value in row.values:
                if value < LOW * usual:
                    told = f"{says} {value:g}, the others at {usual:g} ({title.strip()[:60]})"
                    yield row.node, Verdict(code, how, None if gpu < 0 else gpu, None, told)


def fits(head: str, name: str) -> bool:
    return head.lstrip()[:1] not in "{[" and any(one[0].search(head) for one in _KINDS) and any(_odd(head))


def by_node(text: str) -> dict[str, Verdicts]:
    found: dict[str, list[Verdict]] = {}
    for node, verdict in _odd(text[:1_048_576]):
        found.setdefault(node, []).append(verdict)
    if not found:
        raise ParseError("measurements of GPUs: none is far below the others")
    return {node: Verdicts("a measurement of all", tuple(some[:64])) for node, some in found.items()}


def read(text: str) -> Verdicts:
    return next(iter(by_node(text).values()))


TOOL = Tool("measurements of GPUs by hand", "gpu.verdicts", fits, read, findings, beside=True, by_node=by_node)
