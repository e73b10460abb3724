"""What somebody tried: the same job with a setting and without it, and how fast it was each time, or that it hung.

    OMP_NUM_THREADS=128: 41 samples/s        as is: busbw 22.4 GB/s
    OMP_NUM_THREADS=16: 310 samples/s        after modprobe nvidia_peermem: 182 GB/s
    with loss.item() 0.91 s/step, without: 0.52        NCCL_P2P_DISABLE=1: ok / =0: hangs in the first all_reduce

Source   none: people's own words; the settings are those of probes/catalog/_levers.py
Shape    facts evidence.trials: of each lever the worse and the better run, and how many times better it was
Units    as told; only two values with the same unit are compared
Errors   ParseError where no two runs differ in one setting
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from probes.catalog._levers import LEVERS, Lever
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools._told_of import leading, node_in, placed

LEAST, MOST_CLAUSES, LONGEST_TEXT, LONGEST = 1.4, 200, 16_384, 240  # times better; judgement
_PER = r"\s{0,2}(?:/|per |a )\s{0,2}"
_RATE = re.compile(
    r"(?<![\w.])(\d{1,9}(?:[.,]\d{1,6})?)\s{0,2}(k ?)?("
    rf"(?:(?:samples?|imgs?|images?|tok(?:en)?s?|it(?:er(?:ation)?)?s?|steps?|seqs?|sequences|rows|batch(?:es)?|examples"
    rf"|frames){_PER}s(?:ec(?:ond)?)?|[GM](?:B|iB|b|bit)/s|Gbps|TFLOPS?)\b)", re.I,
)  # fmt: skip
_TIME = re.compile(
    rf"(?<![\w.])(\d{{1,9}}(?:[.,]\d{{1,6}})?)\s{{0,2}}(ms|s|sec|seconds|min){_PER}(?:step|it(?:er(?:ation)?)?|batch)\b"
    r"|\b(?:steps?|iter(?:ation)?s?)(?:[ _]time)?(?: (?:is|was|takes?|took|of))?[:= ]{1,3}"
    r"(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|sec)\b", re.I,
)  # fmt: skip
_BARE = re.compile(r"[:=]?\s{1,4}~?(\d{1,9}(?:\.\d{1,6})?)\s{0,2}(ms|s|sec)?\s{0,4}\.?$")
_SECONDS = {"ms": 1e-3, "min": 60.0}
_CUT = re.compile(
    r";|\s/\s(?!s)|(?<=\w)\.\s(?=[A-Za-z])|,? (?:vs\b\.?|versus|against) "
    r"|, (?=(?:with|without|no|after|before|same|but|when|default)\b)"
)
_ARROW = re.compile(r" {1,4}(?:->|=>|→) {1,4}")
_OFF = re.compile(
    r"\b(?:without|no|off|removed?|disabled?|unset|default|false|none|unlimited|stopp?ed|killed|kill|killing|gone|dropped"
    r"|commented out|instead of|not)\b|=\s?(?:0|None|False|false|max|-1)(?![\w.])", re.I,
)  # fmt: skip
_CONTRAST = re.compile(
    r"\b(?:without|with|default|unset|not set|otherwise|before|after|as is|baseline|stock|instead)\b|=[01]\b", re.I
)
_AS_IT_WAS = re.compile(r"\b(?:as is|as it (?:is|was)|baseline|before|stock|default|unchanged)\b", re.I)
_NUMBER = re.compile(r"[=: ]{1,3}(\d{1,6})(?![\d.]|\s?(?:samples|s/|ms|it/|img))")
_GIVEN = re.compile(r"\s?=\s?([\w-]{1,40})")
_NONE = re.compile(r"0|none|no|off|false|-1|max", re.I)
_VALUE = re.compile(r"[\w./=-]{0,80}(?: \d{1,8}(?=\s{0,2}(?:[:,;)|]|$)))?")
_BADLY = re.compile(
    r"\b(?:hang(?:s|ing)?|hung|stuck|tim(?:es|ed) out|never (?:finishes|ends|returns)|fail(?:s|ed)?|crash(?:es|ed)?"
    r"|NaNs?|corrupt\w{0,3}|wrong (?:data|results?|numbers?)|illegal|no (?:output|progress))\b", re.I,
)  # fmt: skip
_NOT_BADLY = re.compile(r"\bno hang", re.I)
_WELL = re.compile(
    r"\b(?:runs?|works?|trains?|fine|pass(?:es|ed)|no hang|completes?|finish(?:es|ed)|success\w{0,5}|init in|ok)\b",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Trial:
    """`times` better; None where one run hung or failed and the other did not."""

    lever: str
    worse: str  # as it was written
    better: str
    times: float | None
    node: str = ""


@dataclass(frozen=True, slots=True)
class Trials:
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    says: str
    place: int  # which clause of the text it is
    pace: float | None  # the larger, the better; None where nothing was measured
    unit: str
    ended: str  # "well", "badly", or "" for not told


def _runs(text: str) -> list[_Run]:
    """The clauses that tell how a run went; one without a unit has that of the one before in its line."""
    found: list[_Run] = []
    place = 0
    for line in (line for line in lines_of(text[:LONGEST_TEXT], 1000) if line.strip()):
        unit = ""
        for part in _clauses(line):
            place += 1
            if place > MOST_CLAUSES:
                return found
            if len(part) <= LONGEST and (run := _run(part, unit, place)) is not None:
                found.append(run)
                unit = run.unit or unit
    return found


def _clauses(line: str) -> Iterator[str]:
    """An arrow stands between two runs where both were measured, else between a run and what was measured of it."""
    for part in _CUT.split(line):
        sides = _ARROW.split(part)
        yield from sides if len(sides) == 2 and all(_measured(side, "")[0] for side in sides) else (part,)


def _run(part: str, unit: str, place: int) -> _Run | None:
    says = clean(part.strip(" -*|\t"))[:160]
    pace, unit = _measured(part, unit)
    badly = _BADLY.search(part) is not None and _NOT_BADLY.search(part) is None
    ended = "badly" if badly else "well" if pace is not None or _WELL.search(part) else ""
    return _Run(says, place, pace, unit, ended) if ended else None


def _measured(part: str, unit: str) -> tuple[float | None, str]:
    """(pace, unit) of what was measured; times are of unit "time" and their pace is in steps a second."""
    if rate := _RATE.search(part):
        value = float(rate[1].replace(",", ".")) * (1000 if rate[2] else 1)
        return (value or None), re.sub(r"\s|per|ec(?:ond)?$|s(?=/)", "", rate[3].lower())
    if took := _TIME.search(part):
        value = float((took[1] or took[3]).replace(",", ".")) * _SECONDS.get((took[2] or took[4]).lower(), 1.0)
        return (1 / value if value else None), "time"
    if bare := _BARE.search(part):
        value = float(bare[1]) * _SECONDS.get(bare[2] or "", 1.0)
        if value and unit and unit != "time" and not bare[2]:
            return value, unit
        if value and (unit == "time" or (not unit and bare[2] and _OFF.search(part))):
            return 1 / value, "time"
    return None, unit


def _weight(lever: Lever, run: _Run) -> float | None:
    """How much of the setting a run has: the less, the lighter. None where it tells nothing of it."""
    if lever.lacks is not None and lever.lacks.search(run.says):
        return 1.0 if lever.lighter == "with" else float("-inf")
    found, off = lever.words.search(run.says), _OFF.search(run.says)
    as_it_was = _AS_IT_WAS.search(run.says)
    if lever.lighter == "with":
        return 0.0 if found else 1.0 if lever.lacks is None or off or as_it_was else None
    if found is None and as_it_was:
        return None if lever.name == "quota" else float("inf")
    if found is None:
        return 0.0 if off and lever.lighter == "without" else None
    if lever.lighter == "without":
        given = _GIVEN.match(run.says, found.end())
        return 0.0 if (_NONE.fullmatch(given[1]) if given else off) else 1.0
    number = _NUMBER.match(run.says, found.end())
    if number is not None:
        return float(number[1]) * (-1.0 if lever.lighter == "more" else 1.0)
    return None if off is None else float("-inf") if lever.name == "quota" else float("inf")


def _pairs(lever: Lever, runs: list[_Run]) -> Iterator[tuple[_Run, _Run]]:
    """(heavier, lighter); of a lever of which either side may be the better, both orders of neighbours."""
    if lever.lighter == "either":
        for one, two in pairwise(runs):
            if two.place - one.place == 1 and _changed(lever.words, one.says, two.says):
                yield one, two
                yield two, one
        return
    told = [(weight, run) for run in runs if (weight := _weight(lever, run)) is not None]
    for unit in dict.fromkeys(run.unit for _, run in told):
        alike = [(weight, run) for weight, run in told if run.unit == unit or run.pace is None]
        heavy, light = max(alike, key=lambda one: one[0]), min(alike, key=lambda one: one[0])
        if heavy[0] != light[0]:
            yield heavy[1], light[1]


def _changed(words: re.Pattern[str], one: str, two: str) -> bool:
    """Both name it with another value, or a word says that one is the run with or without it."""
    said = [_value(text, found) if (found := words.search(text)) else "" for text in (one, two)]
    told = [{word.lower() for word in _CONTRAST.findall(text)} for text in (one, two)]
    return (all(said) and said[0] != said[1]) or (any(said) and told[0] != told[1])


def _value(text: str, found: re.Match[str]) -> str:
    rest = _VALUE.match(text, found.end())
    return (found[0] + (rest[0] if rest else "")).rstrip(".").lower()


def _times(lever: Lever, worse: _Run, better: _Run) -> float | None:
    """How many times better; infinity where one ended badly, None where it is not better."""
    if lever.hangs and worse.ended == "badly":
        return float("inf") if better.ended == "well" else None
    if worse.pace and better.pace and worse.unit == better.unit and "badly" not in (worse.ended, better.ended):
        return better.pace / worse.pace
    return None


def trials(text: str) -> list[Trial]:
    found: list[Trial] = []
    levers = [lever for lever in LEVERS if lever.words.search(text[:LONGEST_TEXT])]
    runs = _runs(text) if levers else []
    for lever in levers:
        tried = [
            (times, worse, better)
            for worse, better in _pairs(lever, runs)
            if lever.words.search(worse.says) or lever.words.search(better.says)
            if (times := _times(lever, worse, better)) is not None and times >= LEAST
        ]
        if tried:
            times, worse, better = max(tried, key=lambda one: one[0])
            told = None if times == float("inf") else round(times, 1)
            found.append(Trial(lever.name, worse.says, better.says, told, _node(text) if lever.of_node else ""))
    return found


def _node(text: str) -> str:
    """The one node that lines begin with, or that one names."""
    lines = list(lines_of(text[:LONGEST_TEXT], 1000))
    for of in (leading, node_in):
        named = {node for line in lines if (node := of(line, len(line)))}
        if named:
            return named.pop() if len(named) == 1 else ""
    named = {node for line in lines if (node := placed(line))}
    return named.pop() if len(named) == 1 else ""


def fits(head: str, name: str) -> bool:
    if len(head) > LONGEST_TEXT or head.lstrip()[:1] in "[{" or " NCCL INFO " in head:
        return False
    return bool(trials(head))


def read(text: str) -> Trials:
    found = trials(text)
    if not found:
        raise refuse("two runs that differ in one setting, and how each went", text)
    return Trials(tuple(found[:16]))


def findings(facts: Trials) -> Iterable[Finding]:
    for one in facts.trials:
        better = "ended well" if one.times is None else f"{one.times:g} times as fast"
        yield Finding("evidence.trials", "info", f"{better}: '{one.better}' beside '{one.worse}'")


TOOL = Tool("two runs that differ in one setting", "evidence.trials", fits, read, findings, host_in, log=True)
