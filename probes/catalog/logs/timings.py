"""How long each rank was in each part of its steps, as programs print it, step by step or in Megatron's tables.

Source   tables of ranks (_log_tables.py); Megatron-LM (core/timers.py): "times across ranks (ms)", "(min, max) time
         across ranks (ms)", "time (ms) |"; step lines that name their parts: "step 5: 0.42 s (data 0.37 compute 0.00
         allreduce 0.05)", "data=2.36s fwd_bwd=0.52s total=2.91s"; meters of timm ("Time: 2.461s (2.502s) Data: 2.104
         (2.168)"), torchvision ("time: 0.52 data: 0.40"), PyTorch's ImageNet example ("Time  0.523 ( 1.402)"), mmengine
         and detectron2 ("time: 0.42 data_time: 0.30"), tqdm ("7.09s/it"), and lines of JSON with such keys
Units    microseconds in `more`; a number without a unit counts as seconds; `peer`: the node that a table names
Shape    Timings: fed one line after the other, gives at the end one LogEvent of kind "step_times" per rank
Errors   none: a line that names no parts is passed over

Medians over the last STEPS steps count: the first ones warm up, and single slow ones are no pattern.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.legends import unit_of
from probes.catalog.logs.lines import Line
from probes.catalog.logs.shapes import event
from probes.catalog.logs.step_words import parts_in
from probes.catalog.logs.stragglers import Stragglers
from probes.catalog.logs.tables import Tables

STEPS = 64
RANKS = 4096
TIMERS, LONGEST_NAME, HEAD_LINES = 16, 40, 40
LEAST = 3  # steps; fewer are no pattern
# The part of a step that a word names. "wait": for other ranks. "own": what the rank computes by itself. "until": from
# the step's begin to the moment at which it comes to where it waits, told beside or in place of what it computes.
_OF = r"(?:[-_ ]?(?:time|wait\w{0,3}|load\w{0,4}|fetch\w{0,3}|gen\w{0,8}|iter\w{0,4}|ms|sec|s))*"
_COMM = (
    r"(?:all[-_]?reduce|reduce[-_]?scatter|all[-_]?gather|all[-_]?to[-_]?all|gather|broadcast|comms?|communication|"
    r"nccl|collectives?|sync\w{0,11}|barrier)"
)
_OWN = r"(?:comp|comput\w{0,4}|forward|backward|fwd|bwd|gpu|kernels?|model)"
PARTS = (
    (
        "data",
        re.compile(
            rf"(?:wait(?:ing)?[-_ ](?:for[-_ ]|on[-_ ])?)?"
            rf"(?:data|dataset|data[-_ ]?load\w{{0,4}}|loader|load|fetch|batch|input){_OF}"
        ),
    ),
    (
        "until",
        re.compile(
            r"(?!.{0,24}(?:wait|idle|block|stall))(?:\w{1,12}[-_]){0,2}"
            r"(?:enter|arriv|reach|ready|before|until)\w{0,4}(?:[-_ ]\w{1,12}){0,4}"
        ),
    ),
    (
        "wait",
        re.compile(
            rf"(?:\w{{1,12}}[-_]){{0,3}}{_COMM}{_OF}"
            r"|(?!io|cpu|disk|lock|sched|run|queue|gil|file)(?:\w{1,12}[-_]){1,3}(?:wait|bubble)"
            r"|(?:wait\w{0,3}|blocked|idle|stall\w{0,3})(?:[-_ ]\w{1,12}){0,4}"
        ),
    ),
    ("own", re.compile(rf"{_OWN}(?:[-_/+ ]{_OWN})?{_OF}")),
    (
        "total",
        re.compile(
            rf"total{_OF}|(?:wall|step|iter|iteration)[-_ /]?(?:time|step|total|dur\w{{0,5}}){_OF}|time|elapsed"
        ),
    ),
)
_PAIR = re.compile(
    r"([A-Za-z][\w/+-]{1,30})[\"']?(?:[=:]\s{0,4}|\s{1,4})(\d{1,7}(?:\.\d{1,6})?) ?(us|ms|s)?(?![\w.%/])"
)
_PER_STEP = re.compile(  # tqdm, where a step takes long
    r"(?<![\w.])(\d{1,5}\.\d{1,6}) ?(ms|s) ?/ ?(?:it|iter|step|batch)\b"
)
_RANK = re.compile(r"(?i)(?:\b(?<!local )(?<!local_)rank[ =:#]{0,2}|^\W{0,8}r ?)(\d{1,7})\b")
_R = re.compile(r"\W{0,4}[rR] ?\d{1,7}\b")
_TABLE = re.compile(r"times across ranks \((ms|s)\):")
_TIMER = re.compile(r" {0,4}([a-z][\w /-]{2,60}):$")
_ROW = re.compile(r" {0,8}rank {1,6}(\d{1,7}): (\d{1,9}(?:\.\d{1,6})?)$")
_MEANT = re.compile(r"(?i:step|iter|epoch|train|batch|s/it|\bit[ :=])")
_BOTH = re.compile(r"(?:forward|fwd)[-_/+ ]?(?:backward|bwd)")
_SCALE = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class _Report:
    """What somebody's lines tell of the steps of one rank, and the last of them."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.steps: deque[Mapping[str, float]] = deque(maxlen=STEPS)

    def add(self, step: Mapping[str, float], line: Line) -> None:
        self.line = line
        self.steps.append(step)


class Timings:
    def __init__(self) -> None:
        # rank -> (part, timer) -> times: the timers of one part follow each other, and are added
        self._times: dict[int | None, dict[tuple[str, str], deque[float]]] = {}
        self._lines: dict[int | None, Line] = {}
        self._unit = ""  # of Megatron's table that is open
        self._part = ""  # that its open timer is
        self._timers: dict[str, str] = {}  # of several timers of one part the first counts: others lie within it
        self._tables = Tables(part_of)
        self._in_tables: set[int | None] = set()
        # (writer, rank that its lines name) -> what they tell of it. Who names a single rank means itself, perhaps by a
        # local rank; who names several reports for them.
        self._reported: dict[tuple[int, int], _Report] = {}
        self._stragglers = Stragglers(part_of)

    def take(self, line: Line) -> None:
        text = line.text
        if self._unit and self._row(line):
            return
        if self._stragglers.take(line):
            if self._stragglers.longest is not None:
                part, timer, seconds = self._stragglers.longest
                if self._timers.setdefault(part, timer) == timer:
                    self._add(line.rank, part, seconds, line)  # the slowest rank's: the others wait for it
            return
        if "times across ranks" in text and (table := _TABLE.search(text)):
            self._unit, self._part = table[1], ""
            return
        cells = self._tables.take(line)
        for of, part, timer, seconds in cells or ():
            rank = line.rank if of is None else of
            self._in_tables.add(rank)
            self._add(rank, part, seconds, line, timer)
        if (
            cells is None
            and len(text) < 2000
            and (line.rank is not None or _MEANT.search(text) or "ank" in text or _R.match(text))
        ):
            self._step(line)

    def _row(self, line: Line) -> bool:
        """Whether the line is of Megatron's table that is open."""
        if row := _ROW.match(line.text):
            if self._part:
                self._add(int(row[1]), self._part, float(row[2]) / (1000 if self._unit == "ms" else 1), line)
            return True
        if timer := _TIMER.match(line.text):
            part = part_of(timer[1])
            self._part = part if part and self._timers.setdefault(part, timer[1]) == timer[1] else ""
            return True
        self._unit = ""
        return False

    def _step(self, line: Line) -> None:
        found: dict[str, float] = {}
        usual = _SCALE["ms" if "time (ms)" in line.text else "s"]
        for pair in _PAIR.finditer(line.text):
            bare, scale = unit_of(pair[1])
            told = bool(pair[3]) or bare != pair[1].lower()
            part = part_of(bare) if told or "." in pair[2] else ""
            if part and (part != "total" or part not in found):  # the time of a step, then its mean
                scale = _SCALE[pair[3]] if pair[3] else scale if bare != pair[1].lower() else usual
                found[part] = found.get(part, 0.0) + float(pair[2]) * scale
        if "total" not in found and (each := _PER_STEP.search(line.text)):
            found["total"] = float(each[1]) * _SCALE[each[2]]
        if "data" not in found or len(found) < 2:  # in words of its own
            more = parts_in(line.text)
            if "data" in more:
                found = {part: seconds for part, seconds in found.items() if part != "wait"} | more
        if len(found) > 1:
            marked = {int(number) for number in _RANK.findall(line.text)}
            one = marked.pop() if len(marked) == 1 else None
            if line.rank is not None and one is not None:
                key = line.rank, one
                if key in self._reported or len(self._reported) < RANKS:
                    self._reported.setdefault(key, _Report(line)).add(found, line)
                return
            self._add_all(line.rank if one is None else one, found, line)

    def _add_all(self, rank: int | None, found: Mapping[str, float], line: Line) -> None:
        for part, seconds in found.items():
            self._add(rank, part, seconds, line)

    def _add(self, rank: int | None, part: str, seconds: float, line: Line, timer: str = "") -> None:
        if rank not in self._times and len(self._times) >= RANKS:
            return
        times = self._times.setdefault(rank, {})
        if (part, timer) in times or len(times) < TIMERS:
            times.setdefault((part, timer), deque(maxlen=STEPS)).append(seconds)
            self._lines[rank] = line

    def _within(self) -> bool:
        """Whether Megatron's timers are told, of which forward-backward holds batch-generator (pretrain_gpt.py)."""
        return bool(_BOTH.search(self._timers.get("own", ""))) and self._timers.get("data") == "batch-generator"

    def end(self) -> list[LogEvent]:
        found = self._stragglers.end()
        named = Counter(writer for writer, _ in self._reported)
        for (writer, rank), report in self._reported.items():
            for step in report.steps:
                self._add_all(rank if named[writer] > 1 else writer, step, report.line)
        once = {rank for rank, times in self._times.items() if max(map(len, times.values())) == 1}
        listed = len(once) >= LEAST and None not in once and len(once) == len(self._times)  # a line for each rank
        for of, times in self._times.items():
            count = max(map(len, times.values()))
            if count < LEAST and of not in self._in_tables and not listed:
                continue
            line = dataclasses.replace(self._lines[of], rank=of)
            parts = _parts(times)
            if self._within() and parts.get("own", 0.0) >= parts.get("data", 0.0):
                parts["own"] -= parts.get("data", 0.0)
            words = {f"{part}_us": str(round(1e6 * seconds)) for part, seconds in parts.items()}
            words |= {"peer": self._tables.hosts[of]} if of in self._tables.hosts else {}
            found.append(dataclasses.replace(event("step_times", line, words), count=count))
        return found


def _parts(times: Mapping[tuple[str, str], Iterable[float]]) -> dict[str, float]:
    """The medians of each part: of its timers together, or of the one that holds the others."""
    found: dict[str, float] = {}
    whole = {part for part, timer in times if _BOTH.search(timer)}
    for (part, timer), some in times.items():
        if part in whole and not _BOTH.search(timer):
            continue
        found[part] = found.get(part, 0.0) + statistics.median(some)
    until = found.pop("until", None)
    if until is not None and "own" not in found and "data" not in found:
        found["own"] = until
    return found


def part_of(name: str) -> str:
    """The part of a step that a name, without its unit, stands for; "" for none."""
    if len(name) > LONGEST_NAME:
        return ""
    found = next((part for part, words in PARTS if words.fullmatch(name)), "")
    group, _, last = name.rpartition("/")  # train/data_time, as loggers group their values
    return found or (part_of(last) if group and "_time" in last else "")


def tells_times(head: str) -> bool:
    """Whether a table of times per rank begins here: what makes a file of values the log of a job."""
    tables = Tables(part_of)
    return any(tables.take(Line(line)) for line in head.split("\n", HEAD_LINES)[:HEAD_LINES])
