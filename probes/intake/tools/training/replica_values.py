"""Values that should be equal on all ranks, in any text: hashes, checksums and norms of parameters, step by step.

    rank 1 | step 2 |w|=0.901189 sha1(w)=fd2a7ded012d       one rank's log, or a log of all
    step 50: ema_hash r0=ade0 r1=4c4a r2=4e07  MISMATCH      all ranks in a line
    param norm per rank: [81.22, 81.22, 81.19]               a list in the order of ranks
    {"step": 9, "rank": 3, "param_norm": 81.2}               one object a line; also tables with these heads
    rank 5 vs full: max abs diff 0.0305                      a comparison with one copy
    | CUDA_LAUNCH_BLOCKING=1 | 0.0 |                         of a table of two runs, how far replicas part

Gradients before they are reduced, losses and batches differ as they should: they are passed over. A line that tells
CUDA_LAUNCH_BLOCKING=1 heads a run in which the host waits for each kernel.
Errors  ParseError where no such value stands in it
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from probes.catalog.logs.lines import Zone, pieces
from probes.catalog.logs.python import step_of
from probes.catalog.ranks.replica_facts import Replicas, Value
from probes.core import Finding, lines_of
from probes.intake.names import named as by_name
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse

MOST_VALUES, MOST_LINE = 20_000, 4_000
_HASH = (
    r"[\w./|]{0,40}(?:hash|sha\d{0,3}|md5|crc\d{0,2}|checksum|chksum|digest|fingerprint)(?:sum)?"
    r"(?:\([\w. ]{1,40}\))?[\w.]{0,20}"
)
_NORM = (
    r"\|{1,2}(?:w|p|theta|params?|weights?)\|{1,2}"
    r"|(?:params?|weights?|model|ema|master|replica|theta|w|p)(?:[_ ./-](?:[a-z0-9]{1,12}[_ ./-]){0,2})?"
    r"(?:norm|l2|sum|abs_?mean|mean)(?:_l2)?"
)
NAME = re.compile(rf"(?<![\w|])(?P<name>{_HASH}|{_NORM})(?![\w(])", re.I)
# What is quick, before the pattern is tried.
_HASHES = ("hash", "sha", "md5", "crc", "sum", "digest", "fingerprint")
_NORMS, _OF = ("norm", "l2", "mean"), ("param", "weight", "model", "ema", "master", "replica", "theta", "|w|", "|p|")
_VALUE = r"(?:-?\d{1,20}\.\d{1,20}(?:[eE][+-]?\d{1,3})?\b|[0-9a-fA-F]{6,64}\b|0x[0-9a-fA-F]{1,32}\b|-?\d{4,20}\b)"
_ONE = re.compile(rf"['\"]?\s{{0,4}}[=: ]\s{{0,4}}['\"]?(?P<value>{_VALUE})", re.I)
_EACH = re.compile(rf"\b(?:r|rank[ _]?)(?P<rank>\d{{1,6}})['\"]?\s{{0,3}}[=: ]\s{{0,3}}['\"]?(?P<value>{_VALUE})", re.I)
_LIST = re.compile(rf"^[^\[\n]{{0,40}}\[(?P<list>\s?{_VALUE}(?:,? {{1,3}}['\"]?{_VALUE}['\"]?){{1,4096}})")
_IN_LIST = re.compile(_VALUE)
_DIFF = re.compile(
    r"\brank[ _]?(?P<rank>\d{1,6})\b[^\n]{0,60}?\b(?P<name>max[ _](?:abs[ _])?(?:diff\w{0,8}|err\w{0,4}|delta)"
    r"|(?:abs[ _])?diff\w{0,8})[ =:]{1,3}(?P<value>\d{1,12}(?:\.\d{1,12})?(?:e[+-]?\d{1,3})?)\b",
    re.I,
)
_RANK = re.compile(r"(?<![\w-])rank['\"]?[ _:=#]{0,3}(\d{1,6})(?![\d.])", re.I)
# What differs between ranks as it should: gradients before they are reduced, data, and what is no tensor at all.
_LOCAL = re.compile(
    r"grad|batch|data|input|sampl|shard|local|loss|rng|seed|token|commit|git|config|file|image|activ|logit", re.I
)
_SAYS = re.compile(
    r"\b(?:(MISMATCH(?:ED)?|DIFFER(?:S|ENT)?|DIVERGED?|NOT EQUAL)|(OK|EQUAL|MATCH(?:ES)?|SAME|IDENTICAL))\b"
)
BLOCKING = re.compile(r"CUDA_LAUNCH_BLOCKING(?:_|\s?=\s?)1")
_ADVICE = re.compile(r"consider passing|For debugging")
# Somebody tells that it does not happen in such a run: "never with CUDA_LAUNCH_BLOCKING=1".
_CURED = r"\b(?:never|not|no longer|goes? away|gone|disappears?|vanish\w{0,4}|fine|clean|correct|equal|match\w{0,3})\b"
_GONE = re.compile(
    rf"{_CURED}[^.\n]{{0,80}}CUDA_LAUNCH_BLOCKING\s?=\s?1|CUDA_LAUNCH_BLOCKING\s?=\s?1[^.\n]{{0,80}}{_CURED}", re.I
)
_PARTS = re.compile(
    r"(?i)\b(?:diff\w{0,8}|mismatch\w{0,2}|drift|diverge\w{0,4})\b[^\n]{0,80}\b(?:rank|replica|cop(?:y|ies))"
)
_RUN = re.compile(
    r"\W{0,4}(?P<run>[A-Za-z][^|:,\n]{1,80}?)\s{0,20}[|:,\s]\s{0,20}(?P<value>\d{1,9}(?:\.\d{1,12})?(?:e[+-]?\d{1,3})?)\s{0,8}\|?$"
)
_AS_IS = re.compile(r"(?i)\b(?:as (?:is|usual)|default|normal\w{0,2}|without|off|baseline|unset|plain)\b|=\s?0$")
_ALSO = re.compile(r"\b(?:still|also|even|neither|too|same)\b", re.I)
_SECTION = re.compile(r"[#=*>$-]{2,80}|\[?run\b|CUDA_LAUNCH_BLOCKING=0", re.I)


def fits(head: str, name: str) -> bool:
    if "CUDA_LAUNCH_BLOCKING" in head and (any(map(is_cured, lines_of(head, MOST_LINE))) or _compared(head)):
        return True
    if not (mentions(head, _HASHES) or (mentions(head, _NORMS) and mentions(head, _OF)) or mentions(head, ("diff",))):
        return False
    if not NAME.search(head) and not _DIFF.search(head):
        return False
    try:
        return len(_values(head[:65_536])) > 1
    except ValueError:
        return False


def read(text: str) -> Replicas:
    values, said = _values(text), tuple(dict.fromkeys([*_said(text), *_compared(text)]))
    if not values and not said:
        raise refuse("values of replicas with their ranks: hashes, checksums or norms of parameters", text)
    return Replicas(tuple(values), said)


def _said(text: str) -> Iterator[tuple[bool, bool]]:
    for blocking, line in _runs(text):
        if is_cured(line):
            yield False, True
        elif NAME.search(line) and (one := _SAYS.search(line)):
            yield bool(one[1]), blocking


def _compared(text: str) -> list[tuple[bool, bool]]:
    """Two runs side by side: how far the replicas part as it is, and where the host waits for each kernel."""
    if not _PARTS.search(text[:MOST_LINE]) or not BLOCKING.search(text):
        return []
    found = {}
    for line in lines_of(text, 400):
        told = _RUN.match(line)
        if told is not None and (blocking := bool(BLOCKING.search(told["run"]))) | bool(_AS_IS.search(told["run"])):
            found[blocking] = float(told["value"]) > 0
    return [(True, False), (False, True)] if found == {False: True, True: False} else []


def is_cured(line: str) -> bool:
    """Whether a line tells that the fault is gone where the host waits for each kernel."""
    return bool(_GONE.search(line)) and not _ALSO.search(line)


def named(facts: Replicas, path: str) -> Replicas:
    """The rank of a file, and whether its command made the host wait."""
    rank = by_name(PurePosixPath(path)).rank
    blocking = bool(BLOCKING.search(path))
    values = tuple(
        dataclasses.replace(one, rank=rank if one.rank is None else one.rank, blocking=one.blocking or blocking)
        for one in facts.values
    )
    return Replicas(values, tuple((differ, told or blocking) for differ, told in facts.said))


def _runs(text: str) -> Iterator[tuple[bool, str]]:
    """(whether the host waits for each kernel, line)."""
    blocking = False
    for line in lines_of(text, MOST_LINE):
        if BLOCKING.search(line) and not _ADVICE.search(line) and not _GONE.search(line):
            blocking = True
        elif blocking and _SECTION.match(line.strip()):
            blocking = False
        yield blocking, line


def _values(text: str) -> list[Value]:
    found: list[Value] = []
    columns: list[str] = []
    for blocking, line in _runs(text):
        if len(found) >= MOST_VALUES:
            break
        cells = [cell.strip(" \"'") for cell in re.split(r"[,;\t|]| {2,40}", line.strip()) if cell.strip()]
        if columns and len(cells) == len(columns) and cells[0][:1].isdigit():
            found += _row(columns, cells, blocking)
            continue
        heads = [cell.lower() for cell in cells]
        columns = heads if len(heads) > 2 and "rank" in heads and any(map(NAME.fullmatch, heads)) else []
        if one := _DIFF.search(line):
            found.append(Value("difference", None, int(one["rank"]), one["value"], blocking))
        elif NAME.search(line):
            found += _line(line, blocking)
    return found


def _row(columns: list[str], cells: list[str], blocking: bool) -> Iterator[Value]:
    told = dict(zip(columns, cells, strict=True))
    rank, step = told["rank"], next((told[name] for name in ("step", "iteration", "iter") if name in told), "")
    if not rank.isdecimal() or len(rank) > 6:
        return
    for name, value in told.items():
        if NAME.fullmatch(name) and not _LOCAL.search(name) and _IN_LIST.fullmatch(value):
            yield Value(
                name[:60], int(step) if step.isdecimal() and len(step) < 13 else None, int(rank), value, blocking
            )


def _line(line: str, blocking: bool) -> Iterator[Value]:
    step: int | None = None
    first = True
    rank: int | None = None
    for found in NAME.finditer(line):
        name = found["name"].strip("_. ")[:60]
        rest = line[found.end() :]
        if _LOCAL.search(name) or _LOCAL.search(line[max(0, found.start() - 12) : found.start()]):
            continue
        if first:
            step, rank, first = step_of(line.replace('"', " ")), _rank(line), False
        before = NAME.search(rest)
        each = list(_EACH.finditer(rest[: before.start() if before else None]))
        if len(each) > 1:
            yield from (Value(name, step, int(one["rank"]), one["value"], blocking) for one in each)
        elif listed := _LIST.match(rest):
            values = _IN_LIST.findall(listed["list"])
            yield from (Value(name, step, at, value, blocking) for at, value in enumerate(values))
        elif one := _ONE.match(rest):
            yield Value(name, step, rank, one["value"], blocking)


def _rank(line: str) -> int | None:
    said = [one.rank for one in pieces(line[:1000], Zone()) if one.rank is not None]
    if said:
        return said[0]
    return int(found[1]) if (found := _RANK.search(line)) else None


def findings(facts: Replicas) -> list[Finding]:
    return []


TOOL = Tool("values of replicas", "rank.replicas", fits, read, findings, host_in, named, beside=True)
