"""Values that are no number, in tables and rows of JSON: histories of a loss or a norm, and checks of each rank.

    step,rank,grad_norm            Wall time,Step,Value          {"_step": 15, "train/loss": NaN}
    12,2,nan                       1796000.1,15,nan              rank 2: isnan(grad)=True  layers.11.w2
    non-finite elements before the all-reduce, by rank:    a heading, below it `rank 2: 4096`

Logs are read as logs: their lines tell it too, see _log_python.py. Errors: ParseError where nothing is NaN or infinite
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from probes.catalog.logs.python import step_of
from probes.catalog.ranks.replica_facts import NanValue, NanValues
from probes.core import Finding, clean, lines_of
from probes.intake.names import named as by_name
from probes.intake.own_tables import cells, objects
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse

MOST_ROWS, MOST_VALUES = 200_000, 512
_VALUE = re.compile(
    r"(?:train|eval|val|valid|mean|total|global|local|reduced|lm|_|/|-|\.| ){0,8}"
    r"(?:loss|grad(?:ient)?s?(?:_norm)?|norm|value|ppl)(?:[_/ .-]\w{1,20}){0,3}",
    re.I,
)
_STEP = re.compile(r"_?(?:global_?)?(?:step|iter|iteration|epoch)s?", re.I)
_RANK = re.compile(r"(?:global_?)?rank", re.I)
_NAN = re.compile(r"[\"']?[-+]?(?:nan|inf(?:inity)?)[\"']?", re.I)
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?", re.I)
_CHECK = re.compile(
    r"\brank[ _:=#]{0,3}(?P<rank>\d{1,6})\b[^\n]{0,80}?\b(?:is_?nan|has_?nan|has_?inf|nan_?found|found_?(?:nan|inf)"
    r"|is_?finite)\b(?:\([\w.\[\] ]{0,80}\))?[ =:]{1,3}(?P<value>True|False|yes|no|1|0)\b",
    re.I,
)
# A line of a log that names its rank: only these are compared rank by rank.
_LINE = re.compile(
    r"\brank[ _:=#]{0,3}(?P<rank>\d{1,6})\b[^\n]{0,120}?\b(?P<name>\w{0,20}(?:loss|grad_?norm|gnorm|norm))[ =:]{1,3}"
    r"(?P<value>[-+]?(?:nan|inf)\b|-?\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?)",
    re.I,
)
# Of a heading, below which each rank tells how many such values it has
_NONE = r"\b(?:nans?|infs?|non-?finite)\b"
_COUNTED = re.compile(
    rf"(?i){_NONE}[^\n]{{0,80}}\b(?:per|by|of each) rank"
    rf"|\b(?:count|number|elements|values|entries)\b[^\n]{{0,40}}{_NONE}"
    rf"|{_NONE} (?:count|elements|values|entries|grad\w{{0,6}})"
)
_COUNT = re.compile(
    r"\W{0,8}(?i:rank)[ _:=#]{0,3}(?P<rank>\d{1,6})\s{0,4}[:=|, \t]\s{0,8}(?P<count>\d{1,18})\s{0,4}\|?$"
)
_FINITE = re.compile(r"is_?finite", re.I)
_HINT = re.compile(r"non-?finite|\bnan\b|is_?nan|\binf(?:inity)?\b|is_?finite|has_?(?:nan|inf)", re.I)
_INFINITE = re.compile(r"(?i)\binf(?:inity)?\b")
_LIST = re.compile(r"\[\s{0,40}\{")  # of objects: "[rank0]: ..." begins like one


def fits(head: str, name: str) -> bool:
    if not (mentions(head, ("nan", "finite")) or _INFINITE.search(head)) or not _HINT.search(head):
        return False
    return any(one.bad for one in _values(head))


def read(text: str) -> NanValues:
    told: dict[tuple[str, int | None], list[NanValue]] = {}
    for one in _values(text):
        told.setdefault((one.name, one.rank), []).append(one)
    found = []
    for some in told.values():
        some.sort(key=lambda one: one.step if one.step is not None else -1)
        first = next((at for at, one in enumerate(some) if one.bad), None)
        if first is None:
            found.append(dataclasses.replace(some[-1], stays=False))
            continue
        found.append(dataclasses.replace(some[first], stays=all(one.bad for one in some[first:])
            and len(some) - first > 2, finite_before=first))  # fmt: skip
    if not any(one.bad for one in found):
        raise refuse("values of a loss or norm of which some are no number", text)
    return NanValues(tuple(found[:MOST_VALUES]))


def named(facts: NanValues, path: str) -> NanValues:
    rank = by_name(PurePosixPath(path)).rank
    return NanValues(
        tuple(dataclasses.replace(one, rank=rank if one.rank is None else one.rank) for one in facts.values)
    )


def _values(text: str) -> Iterator[NanValue]:
    body = text.lstrip()
    if body[:1] == "{" or _LIST.match(body):
        for said in objects(body, MOST_ROWS):  # transformers' trainer_state.json has a list of them: log_history
            yield from _row({key: str(value) for key, value in list(said.items())[:200]})
        return
    heads: list[str] = []
    mark = ""
    counted = False
    for number, line in enumerate(lines_of(text, 2_000)):
        if number > MOST_ROWS:
            return
        if counted and (count := _COUNT.match(line)):
            yield NanValue("count", None, int(count["rank"]), int(count["count"]) > 0)
            continue
        counted = bool(_COUNTED.search(line)) or (counted and not line.strip())
        if check := _CHECK.search(line):
            true = check["value"].lower() in ("true", "yes", "1")
            bad = true != bool(_FINITE.search(check[0]))
            yield NanValue("check", None, int(check["rank"]), bad)
            continue
        if told := _LINE.search(line):
            bad = bool(_NAN.fullmatch(told["value"]))
            yield NanValue(told["name"].lower()[:60], step_of(line), int(told["rank"]), bad)
            continue
        found = next(((names, sep) for sep in (",", "\t", "|", ";", "  ", " ") if (names := _head(line, sep))), None)
        if found is not None:
            heads, mark = found
        elif heads and len(row := cells(line, mark)) == len(heads):
            yield from _row(dict(zip(heads, row, strict=True)))


def _head(line: str, mark: str) -> list[str]:
    if mark not in line or not re.search("step|iter|epoch|rank", line, re.I) or _HINT.search(line):
        return []
    heads = cells(line, mark)
    where = any(_STEP.fullmatch(head) or _RANK.fullmatch(head) for head in heads)
    return heads if where and len(heads) > 1 and any(_VALUE.fullmatch(head) for head in heads) else []


def _row(told: dict[str, str]) -> Iterator[NanValue]:
    step = next((value for key, value in told.items() if _STEP.fullmatch(key)), "")
    rank = next((value for key, value in told.items() if _RANK.fullmatch(key)), "")
    for key, value in told.items():
        if not _VALUE.fullmatch(key):
            continue
        bad = bool(_NAN.fullmatch(value))
        if bad or _NUMBER.fullmatch(value):
            yield NanValue(clean(key)[:60], _whole(step), _whole(rank), bad)


def _whole(text: str) -> int | None:
    text = text.strip().removesuffix(".0")
    return int(text) if text.isdecimal() and len(text) < 13 else None


def findings(facts: NanValues) -> list[Finding]:
    return []


TOOL = Tool("values that are no number", "job.nan_values", fits, read, findings, host_in, named, beside=True)
