"""What straggler detectors print: which rank they find slow, and by how much.

    GPU relative performance:                                   nvidia-resiliency-ext, Megatron Bridge, NeMo
      Rank=76 Node=h100-001 Score=0.62                          the share of the best rank's speed
    ... worse relative performance. Affected ranks: [76]        or {StragglerId(rank=76, node='h100-001')}
    MnRtt/Rnk: 1446.49ms/13 | MxRtt/Rnk: 1570.32ms/30 | ...     Megatron-LM --log-straggler
    (min, max) time across ranks (ms):                          Megatron-LM timers: that one is late, not which
        forward-compute ......: (1327.67, 1876.75)

Source   Megatron-LM core/README_STRAGGLER.md and core/timers.py; NeMo and Megatron Bridge straggler call-backs
Units    permille of the usual; microseconds
Shape    Stragglers: fed one line after the other, gives LogEvents of kind "slow_rank" at the end
Errors   none
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.lines import Line
from probes.catalog.logs.shapes import event
from probes.core import clean

MANY = 4096
SLOW = 0.85  # judgement: of the usual speed; NVRx itself warns below 0.7
LEAST = 3  # reports of extremes; fewer are no pattern
_HEAD = re.compile(r"(?i:gpu|section|kernel)\w{0,3} (?i:relative|individual) performance\b")
_SCORE = re.compile(r"Rank=(\d{1,7})(?: Node=([\w.-]{1,80}))? Score=(\d(?:\.\d{1,4})?)")
_AFFECTED = re.compile(
    r"(?i:performance)\b[^\n\[{]{0,80}[Aa]ffected ranks: ?"
    r"[\[{]((?:[\d, ]|StragglerId\([\w='\". ,-]{1,160}\)){1,400})[\]}]"
)
_ONE = re.compile(r"rank=(\d{1,7})(?:, ?node=['\"]?([\w.-]{1,80}))?|(?<![\w=.-])(\d{1,7})(?=[\s,]|$)")
_RTT = re.compile(r"MnRtt/Rnk: (\d{1,9}\.\d{1,4})ms/(\d{1,7}) \| MxRtt/Rnk: (\d{1,9}\.\d{1,4})ms/(\d{1,7})")
_EXTREMES = re.compile(r"\(min, max\) time across ranks \((ms|s)\):")
_TIMER = re.compile(
    r"\s{0,8}([a-z][\w/-]{2,60}) \.{0,60}: ?\((?:min: )?(\d{1,9}(?:\.\d{1,6})?), (?:max: )?(\d{1,9}(?:\.\d{1,6})?)\)"
)


class Stragglers:
    """`part_of` as in _log_timings: the part of a step that a timer is of."""

    def __init__(self, part_of: Callable[[str], str]) -> None:
        self._part_of = part_of
        self._relative = True
        self._scores: dict[int, list[float]] = {}
        self._nodes: dict[int, str] = {}
        self._affected: dict[int, int] = {}
        self._slowest: dict[int, list[float]] = {}  # Megatron's: how much longer than the quickest, as a share
        self._unit = 0.0  # of the open table of extremes, in seconds
        self._extremes: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.longest: tuple[str, str, float] | None = None  # part, timer and seconds, where the line told extremes
        self._line: Line | None = None

    def take(self, line: Line) -> bool:
        """Whether it is a line of a detector."""
        text, self.longest = line.text, None
        if self._unit and (timer := _TIMER.match(text)):
            if part := self._part_of(timer[1]):
                pair = (float(timer[2]) * self._unit, float(timer[3]) * self._unit)
                self._extremes.setdefault((part, timer[1]), []).append(pair)
                self._line, self.longest = line, (part, timer[1], pair[1])
            return True
        self._unit = 0.0
        if "erformance" in text and (head := _HEAD.search(text)):
            self._relative = "elative" in head[0]
        if "Score=" in text:
            return self._score(line)
        if "ffected ranks" in text and (told := _AFFECTED.search(text)):
            for one in _ONE.finditer(told[1]):
                rank = int(one[1] or one[3])
                if len(self._affected) < MANY:
                    self._affected[rank] = self._affected.get(rank, 0) + 1
                    self._nodes |= {rank: clean(one[2])} if one[2] else {}
            self._line = line
            return True
        if "MxRtt/Rnk" in text and (rtt := _RTT.search(text)) and float(rtt[1]) > 0:
            self._slowest.setdefault(int(rtt[4]), []).append(float(rtt[3]) / float(rtt[1]) - 1)
            self._line = line
            return True
        if "across ranks" in text and (table := _EXTREMES.search(text)):
            self._unit = 0.001 if table[1] == "ms" else 1.0
            return True
        return False

    def _score(self, line: Line) -> bool:
        found = _SCORE.findall(line.text)
        for rank, node, score in found if self._relative else ():
            if len(self._scores) < MANY or int(rank) in self._scores:
                self._scores.setdefault(int(rank), []).append(float(score))
                self._nodes |= {int(rank): clean(node)} if node else {}
                self._line = line
        return bool(found)

    def end(self) -> list[LogEvent]:
        if self._line is None:
            return []
        found = self._by_score() or self._by_slowest() or self._by_extremes()
        return [
            dataclasses.replace(event("slow_rank", dataclasses.replace(self._line, rank=rank), words), count=count)
            for rank, words, count in found
        ]

    def _by_score(self) -> list[tuple[int | None, dict[str, str], int]]:
        medians = {rank: statistics.median(scores) for rank, scores in self._scores.items()}
        usual = statistics.median(medians.values()) if len(medians) > 2 else 1.0
        slow = {rank: score / usual for rank, score in medians.items() if usual and score < SLOW * usual}
        for rank in self._affected:
            if rank not in medians:
                slow[rank] = 0.7
        return [
            (rank, {"speed_permille": str(round(1000 * share)), "peer": self._nodes.get(rank, "")},
                max(len(self._scores.get(rank, ())), self._affected.get(rank, 0)))
            for rank, share in sorted(slow.items(), key=lambda one: one[1])[:64]
        ]  # fmt: skip

    def _by_slowest(self) -> list[tuple[int | None, dict[str, str], int]]:
        reports = sum(map(len, self._slowest.values()))
        if reports < LEAST:
            return []
        rank, longer = max(self._slowest.items(), key=lambda one: len(one[1]))
        share = statistics.median(longer)
        if len(longer) < 0.8 * reports or 1 / (1 + share) > SLOW:
            return []
        return [(rank, {"speed_permille": str(round(1000 / (1 + share)))}, len(longer))]

    def _by_extremes(self) -> list[tuple[int | None, dict[str, str], int]]:
        """Some rank computes for longer, and some wait for as long: which one the extremes do not say."""
        apart: dict[str, float] = {}
        own = 0.0
        for (part, _), pairs in self._extremes.items():
            if len(pairs) < LEAST:
                continue
            gap = statistics.median(high - low for low, high in pairs)
            if gap > apart.get(part, 0.0):
                apart[part] = gap
                own = statistics.median(low for low, _ in pairs) if part == "own" else own
        gap = apart.get("own", 0.0)
        if not own or own / (own + gap) > SLOW or apart.get("wait", 0.0) < gap / 2:
            return []
        return [(None, {"speed_permille": str(round(1000 * own / (own + gap)))}, LEAST)]
