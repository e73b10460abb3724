"""How long each rank was in each part of its steps, as programs print it, step by step or in Megatron's tables.

Source   Megatron-LM (core/timers.py): "times across ranks (ms)", "(min, max) time across ranks (ms)", "time (ms) |";
         step lines that name their parts: "step 5: 0.42 s (data 0.37 compute 0.00 allreduce 0.05)"; meters of timm
         ("Time: 2.461s (2.502s) Data: 2.104 (2.168)"), torchvision ("time: 0.52 data: 0.40"), PyTorch's ImageNet
         example ("Time  0.523 ( 1.402)"), mmengine and detectron2 ("time: 0.42 data_time: 0.30"), tqdm ("7.09s/it"),
         and lines of JSON with such keys
Units    microseconds in `more`; a number without a unit counts as seconds, unless its name ends in _ms
Shape    Timings: fed one line after the other, gives at the end one LogEvent of kind "step_times" per rank
Errors   none: a line that names no parts is passed over

Medians over the last STEPS steps count: the first ones warm up, and single slow ones are no pattern.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections import deque

from probes.catalog._log_events import LogEvent
from probes.catalog._log_lines import Line
from probes.catalog._log_shapes import event

STEPS = 64
RANKS = 1024
LEAST = 3  # steps; fewer are no pattern
# The part of a step that a word names. "wait": for other ranks. "own": what the rank computes by itself.
_OF = r"(?:[-_ ]?(?:time|wait|load\w{0,4}|fetch|gen\w{0,8}|s|ms|sec))*"
PARTS = (
    ("data", re.compile(rf"(?:data|dataset|loader|load|fetch|batch|input){_OF}")),
    (
        "wait",
        re.compile(rf"(?:\w{{1,12}}[-_])?(?:all[-_]?reduce|reduce[-_]?scatter|all[-_]?gather|comm|sync|barrier){_OF}"),
    ),
    (
        "own",
        re.compile(rf"(?:comput\w{{0,4}}|forward|backward|fwd|bwd)(?:[-_/](?:comput\w{{0,4}}|backward|bwd))?{_OF}"),
    ),
    ("total", re.compile(rf"total{_OF}|(?:step|iter|iteration)[-_ ]?time{_OF}|time|elapsed")),
)
_PAIR = re.compile(
    r"([A-Za-z][\w/-]{1,30})\"?(?:[=:]\s{0,4}|\s{1,4})(\d{1,6}\.\d{1,6}|\d{1,7}(?= ?ms)) ?(ms|s)?(?![\w.%/])"
)
_TABLE = re.compile(r"times across ranks \((ms|s)\):")
_TIMER = re.compile(r" {0,4}([a-z][\w /-]{2,60}):$")
_ROW = re.compile(r" {0,8}rank {1,6}(\d{1,7}): (\d{1,9}(?:\.\d{1,6})?)$")
_PER_STEP = re.compile(
    r"(?<![\w.])(\d{1,5}\.\d{1,6}) ?(ms|s) ?/ ?(?:it|iter|step|batch)\b"
)  # tqdm, where a step takes long
_RANGE = re.compile(r" {0,8}([a-z][\w /-]{2,60}?) ?\.{2,80}: \((\d{1,9}\.\d{1,6}), (\d{1,9}\.\d{1,6})\)$")
_MEANT = re.compile(r"(?i:step|iter|epoch|train|batch|s/it)")


class Timings:
    def __init__(self) -> None:
        self._times: dict[int | None, dict[str, deque[float]]] = {}
        self._lines: dict[int | None, Line] = {}
        self._unit = ""  # of the table that is open
        self._part = ""  # that its open timer is
        self._timers: dict[str, str] = {}  # of several timers of one part the first counts: others lie within it

    def take(self, line: Line) -> None:
        text = line.text
        if self._unit and self._row(line):
            return
        if "times across ranks" in text and (table := _TABLE.search(text)):
            self._unit, self._part = table[1], ""
        elif (row := _RANGE.match(text)) and (part := _part(row[1])):
            if self._timers.setdefault(part, row[1]) == row[1]:
                self._add(line.rank, part, float(row[3]) / 1000, line)  # the slowest rank's: the others wait for it
        elif "." in text and len(text) < 2000 and _MEANT.search(text):
            self._step(line)

    def _row(self, line: Line) -> bool:
        """Whether the line is of the table that is open."""
        if row := _ROW.match(line.text):
            if self._part:
                self._add(int(row[1]), self._part, _seconds(row[2], self._unit), line)
            return True
        if timer := _TIMER.match(line.text):
            part = _part(timer[1])
            self._part = part if part and self._timers.setdefault(part, timer[1]) == timer[1] else ""
            return True
        self._unit = ""
        return False

    def _step(self, line: Line) -> None:
        found: dict[str, float] = {}
        usual = "ms" if "time (ms)" in line.text else "s"
        for pair in _PAIR.finditer(line.text):
            name = pair[1].lower()
            part = _part(name)
            if part and (part != "total" or part not in found):  # the time of a step, then its mean
                unit = pair[3] or ("ms" if name.endswith(("_ms", "-ms", "/ms")) else usual)
                found[part] = found.get(part, 0.0) + _seconds(pair[2], unit)
        if "total" not in found and (told := _PER_STEP.search(line.text)):
            found["total"] = _seconds(told[1], told[2])
        if len(found) > 1:
            for part, seconds in found.items():
                self._add(line.rank, part, seconds, line)

    def _add(self, rank: int | None, part: str, seconds: float, line: Line) -> None:
        if rank not in self._times and len(self._times) >= RANKS:
            return
        self._times.setdefault(rank, {}).setdefault(part, deque(maxlen=STEPS)).append(seconds)
        self._lines[rank] = line

    def end(self) -> list[LogEvent]:
        found = []
        for rank, parts in self._times.items():
            line = dataclasses.replace(self._lines[rank], rank=rank)
            words = {f"{part}_us": str(round(1e6 * statistics.median(times))) for part, times in parts.items()}
            count = max(map(len, parts.values()))
            if count < LEAST:
                continue
            found.append(dataclasses.replace(event("step_times", line, words), count=count))
        return found


def _part(name: str) -> str:
    return next((part for part, words in PARTS if words.fullmatch(name)), "")


def _seconds(number: str, unit: str) -> float:
    return float(number) / (1000 if unit == "ms" else 1)
