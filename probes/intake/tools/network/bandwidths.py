"""Bandwidths between pairs of nodes: tables `n1 n2 391.7` and `n1-n2: 361 GB/s` of loops over perftest or nccl-tests,
and single outputs of ib_write_bw whose file's name, or prompt, tells the two ends.

Shape    Bandwidths: pairs with what they reached; units are not needed, for pairs of one text are compared
"""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Bandwidth, Bandwidths
from probes.core import Finding, clean, lines_of
from probes.intake.hosts import alike
from probes.intake.tools import Tool
from probes.intake.tools._text import mentions, number, refuse
from probes.intake.tools.network._counter_sets import candidates

_WORD = re.compile(
    r"\bbw\b|BW|busbw|algbw|bandwidth|G[Bb](?:it)?_?(?:per_s|ps|_s)|Gb(?:/s|ps|it)|GB/s|MB/s|ib_(?:write|read|send)|all_?reduce|sendrecv|nccl|iperf",
    re.I,
)
_WORDS = ("bw", "gb_", "gbps", "bandwidth", "gb/s", "gbp", "gbit", "mb/s", "ib_", "reduce", "sendrecv", "nccl", "iperf")
_PAIR = re.compile(
    r"^\s{0,8}[\[(|]?\s{0,4}([A-Za-z][\w.]{0,40}(?:-\d{1,6})?)\s{0,4}(?:<?-{1,2}>|<->|->|→|↔|\.\.|/|,|\||:|-|\s|\bto\b|\bvs\b){1,4}\s{0,4}"
    r"([A-Za-z][\w.]{0,40}(?:-\d{1,6})?)[\])]?\s{0,4}"
    r"(?:[:,|=;]\s{0,40}|\s{1,40})(?:\w{2,12}[ =:]{1,3})?(\d{1,6}(?:\.\d{1,4})?)\b"
)
_PERFTEST = re.compile(r"^\s{0,4}\d{1,12}\s{1,20}\d{1,12}\s{1,30}(\d{1,6}\.\d{1,4})\s{1,30}(\d{1,6}\.\d{1,4})\s", re.M)
_HEAD = re.compile(r"#bytes\s{1,8}#iterations\s{1,8}BW peak")
LOOKED_AT = 8_192
FEWEST = 3  # pairs


def fits(head: str, name: str) -> bool:
    if _HEAD.search(head) and _PERFTEST.search(head):
        return bool(_ends(name))
    told = f"{head}\n{name.replace('_', ' ')} {name}"  # of a paste the command is its part's name
    return mentions(told, _WORDS) and bool(_WORD.search(told)) and len(_pairs(head[:LOOKED_AT])) >= FEWEST


def read(text: str) -> Bandwidths:
    found = _pairs(text)
    if not found and (rows := _PERFTEST.findall(text[:1_048_576])):
        best = max(float(average) for _, average in rows)
        found = [Bandwidth("", "", best)]
    if not found:
        raise refuse("bandwidths between pairs of nodes", text)
    return Bandwidths(tuple(found[:20_000]))


def named(facts: Bandwidths, path: str) -> Bandwidths:
    """The two ends by the file's name, where the text does not tell them."""
    ends = _ends(path.rpartition("/")[2])
    return Bandwidths(tuple(one if one.a or not ends else Bandwidth(*ends, one.value) for one in facts.tests))


def _ends(name: str) -> tuple[str, str] | None:
    words = re.split(r"[._+,@ ]+|-to-|--", name)
    some = [word for word in words if word in alike(candidates(words))]
    return (some[0], some[1]) if len(some) == 2 else None


def _pairs(text: str) -> list[Bandwidth]:
    rows = []
    for line in lines_of(text[:1_048_576], 300):
        if (found := _PAIR.match(line)) and found[1] != found[2] and (value := number(found[3])) is not None:
            rows.append(Bandwidth(clean(found[1]), clean(found[2]), value))
    rows = rows or _matrix(text)
    hosts = alike(candidates({one.a for one in rows} | {one.b for one in rows}))
    return [one for one in rows if one.a in hosts and one.b in hosts]


def _matrix(text: str) -> list[Bandwidth]:
    """A table with a row and a column a node."""
    rows: list[Bandwidth] = []
    columns: list[str] = []
    for line in lines_of(text[:1_048_576], 8_000):
        cells = [cell for cell in re.split(r"[\s,;|]+", line.strip()) if cell][:1025]
        names = [cell for cell in cells if re.fullmatch(r"[A-Za-z][\w.-]{0,40}", cell)]
        if len(cells) > 2 and len(names) == len(cells):
            columns = cells if len(alike(cells)) == len(cells) else cells[1:]
        elif columns and len(cells) == len(columns) + 1 and cells[0] in columns:
            for other, cell in zip(columns, cells[1:], strict=True):
                if other != cells[0] and (value := number(cell)) is not None:
                    rows.append(Bandwidth(clean(cells[0]), clean(other), value))
    return rows[:20_000]


def quiet(facts: Bandwidths) -> tuple[Finding, ...]:
    """One pair says nothing by itself: a rule compares all."""
    return ()


TOOL = Tool("bandwidths", "net.bandwidths", fits, read, quiet, named=named)
