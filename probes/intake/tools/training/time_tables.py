"""Tables of where the time of a program goes, a row for each part: which of it is fetching data.

Lightning's SimpleProfiler, torch.profiler's key_averages, cProfile and Lightning's AdvancedProfiler, line_profiler,
NVTX ranges of nsys stats, TensorBoard's execution summary, and tables that people make themselves:

    |  Action                   |  Mean duration (s)  |  Num calls  |  Total time (s)  |  Percentage %  |
    ncalls  tottime  percall  cumtime  percall filename:lineno(function)
    Line #      Hits         Time  Per Hit   % Time  Line Contents

A heading counts where it names a column of names beside one of times or of shares.
Source: lightning/pytorch/profilers/simple.py, torch/autograd/profiler_util.py, Python's pstats, line_profiler 4,
        NVIDIA Nsight Systems user guide (nvtx_sum)
Units   seconds
Errors  ParseError where no row is of fetching data
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from probes.catalog.stacks.time_shares import TimeShares
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse

MOST_ROWS, LONGEST = 5000, 2000
CALLS = 3  # fewer are no pattern: a loader is built once
_NAME = re.compile(
    r"(?i)(?:name|action|range|category|function|operation|phase|section|stage|component|region|event|timer|part"
    r"|filename:lineno\(function\)|line contents|what|where|span)"
)
_UNIT = r"(?: ?[(\[](?P<unit>ns|us|µs|ms|s|sec|seconds)[)\]]|[_ ](?P<bare>ns|us|ms|s|sec|seconds))?"
_TIMES = tuple(
    re.compile(rf"(?i){words}{_UNIT}")
    for words in (
        r"(?:cpu total|total(?:[ _]?(?:time|duration))?|cum(?:time|ulative(?: time)?)|sum)",
        r"(?:time(?: duration)?|duration|elapsed|seconds|spent)",
        r"(?:self cpu|mean(?:[ _]?(?:time|duration))?|avg|average)",
    )
)
_SHARE = re.compile(
    r"(?i)(?:cpu total %|% ?time|(?:time|share|percent(?:age)?|pct)?[ _]?(?:\(?%\)?|share|percent(?:age)?|pct))"
)
_CALLS = re.compile(r"(?i)(?:num(?:ber of)?[ _]?calls|# of calls|n?calls|instances|count|hits)")
_VALUE = re.compile(r"(\d{1,16}(?:\.\d{1,9})?) ?(ns|us|µs|μs|ms|s|sec|seconds|%)?")
_SCALE = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3}
DATA = re.compile(
    r"(?i)data_?load(?:er|ing)|(?:^|[^a-z])(?:load|fetch|wait|get|next|read)[-_ ]?(?:for[-_ ])?(?:the[-_ ])?"
    r"(?:train[-_ ]|next[-_ ])?(?:data|batch|input|sample)s?(?![a-z]|[-_ ]?(?:size|to[-_ ]))"
    r"|(?:^|[^a-z])(?:data|batch|input)[-_ ]?(?:load\w{0,4}|wait\w{0,3}|fetch\w{0,3}|time|gen\w{0,8}|next)(?![a-z])"
    r"|^:?(?:data|input)$"
    r"|\bin [\w.]{0,40}(?:loader|dataset)\w{0,12}\b|next\([\w.]{0,40}(?:iter|loader)"
)
_NOT_DATA = re.compile(
    r"(?i)to[-_ ]device|transfer|val(?:id\w{0,6})?[-_ .\]]|eval|test[-_ ]|h2d|__init__|setup|prepare_data"
)
WHOLE = re.compile(
    r"(?i):?(?:total|ProfilerStep\*?(?:#\d{1,9})?|run_training_epoch|(?:train(?:ing)?[-_ ])?"
    r"(?:step|iter(?:ation)?|loop)(?:[-_ ]total)?|whole step|step[-_ ]time|sum|all)"
)
_SELF_TOTAL = re.compile(r"Self CPU time total: (\d{1,9}(?:\.\d{1,6})?)(ns|us|μs|ms|s)")
_PSTATS = re.compile(r"function calls(?: \([^)\n]{0,60}\))? in (\d{1,9}(?:\.\d{1,6})?) (?:CPU )?seconds")
_LINE_HEAD = re.compile(r"Line #\s{1,40}Hits\s{1,40}Time\s{1,40}Per Hit\s{1,40}% Time\s{1,40}Line Contents")
_LINES = re.compile(r"^Total time: (\d{1,9}(?:\.\d{1,6})?(?:e[+-]?\d{1,3})?) s$", re.M)


_DIGIT, DIGITS = re.compile(r"\d"), 8  # a heading has words


@dataclass(frozen=True, slots=True)
class _Head:
    split: str
    width: int
    name: int
    time: int | None
    scale: float
    share: int | None
    calls: int | None


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    seconds: float | None
    share: float | None  # 0 to 1
    calls: int | None


def cells_of(line: str, split: str) -> list[str]:
    if split == "pstats":
        return line.split(None, 5)
    if split:
        return [cell.strip(" \"'") for cell in line.strip().strip("|" if split == "|" else "").split(split)]
    return re.split(r"\s{2,40}", line.strip())


def head_of(line: str) -> _Head | None:
    """The heading of such a table. None for any other line."""
    if len(line) > LONGEST or len(line.strip()) < 9 or len(_DIGIT.findall(line)) > DIGITS:
        return None
    split = next((mark for mark in ("|", "\t", ",") if line.count(mark) > 1), "")
    if line.rstrip().endswith("filename:lineno(function)"):
        split = "pstats"
    if _LINE_HEAD.fullmatch(line.strip()):
        return _Head("pstats", 6, 5, 2, 1e-6, 4, 1)  # its time is in units that are microseconds unless told
    cells = cells_of(line, split)
    if not 2 <= len(cells) <= 24:
        return None
    name = next((at for at, cell in enumerate(cells) if _NAME.fullmatch(cell)), None)
    share = next((at for at, cell in enumerate(cells) if _SHARE.fullmatch(cell)), None)
    calls = next((at for at, cell in enumerate(cells) if _CALLS.fullmatch(cell)), None)
    time, scale = None, 1.0
    for pattern in _TIMES:
        found = next(((at, one) for at, cell in enumerate(cells) if (one := pattern.fullmatch(cell))), None)
        if found is not None:
            time = found[0]
            scale = _SCALE.get((found[1]["unit"] or found[1]["bare"] or "s").lower(), 1.0)
            break
    if name is None or (time is None and share is None):
        return None
    return _Head(split, len(cells), name, time, scale, share, calls)


def rows_of(text: str) -> Iterator[_Row]:
    head: _Head | None = None
    for line in lines_of(text, LONGEST):
        if (new := head_of(line)) is not None:
            head = new
        elif head is not None and (row := _row(head, line)) is not None:
            yield row


def _row(head: _Head, line: str) -> _Row | None:
    cells = cells_of(line, head.split)
    if len(cells) != head.width or not cells[head.name].strip(" -=+"):
        return None
    time = _value(cells[head.time], head.scale) if head.time is not None else None
    share = _value(cells[head.share], 1.0) if head.share is not None else None
    if time is None and share is None:
        return None
    calls = number(cells[head.calls].partition("/")[0].replace(",", "")) if head.calls is not None else None
    return _Row(cells[head.name], time, share / 100 if share is not None else None, int(calls) if calls else None)


def _value(cell: str, scale: float) -> float | None:
    found = _VALUE.fullmatch(cell.replace(",", ""))
    if found is None:
        return None
    return float(found[1]) * (_SCALE.get(found[2], 1.0) if found[2] else scale)


def is_data(row: _Row) -> bool:
    """Whether a row is of fetching data, again and again."""
    often = row.calls is None or row.calls >= CALLS
    return often and bool(DATA.search(row.name[:300])) and not _NOT_DATA.search(row.name[:300])


def fits(head: str, name: str) -> bool:
    lines = [line for line in lines_of(head, LONGEST) if len(line) < LONGEST]
    if not any(head_of(line) is not None for line in lines[:2000]):
        return False
    return any(is_data(row) for row in rows_of(head))


def read(text: str) -> TimeShares:
    rows = [row for _, row in zip(range(MOST_ROWS), rows_of(text[:4_194_304]), strict=False)]
    data = max((row for row in rows if is_data(row)), key=_size, default=None)
    if data is None:
        raise refuse("a row that tells the time of fetching data", text)
    wholes = {clean(row.name)[:80]: row.seconds for row in rows if row.seconds and WHOLE.fullmatch(row.name)}
    wholes |= {f"the whole {at}": seconds for at, seconds in enumerate(_totals(text)) if seconds}
    whole, whole_s = max(wholes.items(), key=lambda one: one[1] or 0.0, default=("", None))
    share = data.share or 0.0
    if data.seconds is not None and whole_s:
        # What is told beside it, and is less, does not hold it.
        share = data.seconds / (whole_s if whole_s >= data.seconds else whole_s + data.seconds)
    return TimeShares(
        len(rows), clean(data.name)[:80], data.seconds, whole, whole_s, round(min(share, 1.0), 4), data.calls
    )


def _size(row: _Row) -> tuple[float, float]:
    return (row.seconds or 0.0, row.share or 0.0)


def _totals(text: str) -> Iterator[float]:
    for found in list(_SELF_TOTAL.finditer(text[:4_194_304]))[:16]:
        yield float(found[1]) * _SCALE.get(found[2], 1.0)
    for pattern in (_PSTATS, _LINES):
        yield from (float(one) for one in pattern.findall(text[:4_194_304])[:16])


def findings(facts: TimeShares) -> list[Finding]:
    if not facts.data:
        return []
    return [Finding("rank.time_shares", "info", f"{100 * facts.share:.0f} % of the time is {facts.data}", {})]


TOOL = Tool("time table", "rank.time_shares", fits, read, findings, host_in, log=True)
