"""Which process each rank is, where somebody wrote it down: a list of pairs, a legend, a word beside a stack.

    0 18                           # rank -> pid: 0=18, 1=19          rank 0 is pid 18
    1 19                           ranks 0-3 are pids 18 19 20 21     pid 18 = rank 0

Source   none: everybody writes them so, from `pgrep`, `ps` or what the program prints at its start
Shape    ranks_told(text) -> pid -> rank; placed(lists, shown, node_of) -> (where, pid, rank) of what others show.
         A list without the words "rank" and "pid" counts only where half of its numbers are pids of these
Errors   none: what tells nothing is empty
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from probes.core import lines_of

SEARCHED, LONGEST, MOST = 262_144, 400, 4096  # characters of a text, of a line; pairs
_TO = r" {0,3}(?:[=:,;|]|[-=]>|→|\bis\b|\bhas\b|\bare\b)? {0,3}"
_RANK = r"(?<![A-Za-z_])(?<!local )(?<!local_)(?:global[ _])?ranks?"
_OF_RANK = re.compile(
    rf"{_RANK}[ _=:#]{{0,2}}(\d{{1,6}})\b{_TO}(?:\(|\[)?{_TO}(?:[\w.-]{{1,60}},? )?pid[ =:#]{{0,3}}(\d{{2,10}})\b", re.I
)
_OF_PID = re.compile(rf"\bpid[ =:#]{{0,3}}(\d{{2,10}})\b{_TO}(?:\(|\[)?{_RANK}[ _=:#]{{0,2}}(\d{{1,6}})\b", re.I)
# What a legend's pairs are: "rank -> pid", "pid/rank", "pids by rank"
_LEGEND = re.compile(
    r"(?<![A-Za-z_])(?:(?P<rank>(?:global[ _])?ranks?)|pids?)\b[ \d.-]{0,16}"
    r"(?:->|=>|→|[:=,/|-]|\bto\b|\bby\b|\bof\b|\bare\b|\bis\b|\band\b|(?= {1,3}pids))"
    r" {0,3}(?:(?:the|each|main) )?(?:pids?|(?:global[ _])?ranks?)\b",
    re.I,
)  # fmt: skip
_PAIR = re.compile(
    r"(?<![\w.:=-])(?:rank ?|r)?(\d{1,10}) {0,2}(?:->|=>|→|[:=]) {0,2}(?:pid ?)?(\d{1,10})(?![\w.:=-])", re.I
)
_ROW = re.compile(
    r"\s{0,8}(?:rank[ _=]?|r)?(\d{1,10})(?:\s{0,4}(?:[:=,;|]|[-=]>|→)\s{0,4}|\s{1,12})(\d{1,10})\s{0,8}", re.I
)
_BARE = re.compile(r"(?<![\w.])(\d{2,10})(?![\w.])")
_SPAN = re.compile(rf"{_RANK} (\d{{1,6}}) ?(?:-|\.\.|to) ?(\d{{1,6}})\b", re.I)


LEAST = 0.5  # judgement: of the pids of a bare list that other evidence shows


@dataclass(frozen=True, slots=True)
class Told:
    """pid -> rank, of one file. `sure`: it says that these are ranks and pids."""

    ref: str
    inside: PurePosixPath
    pids: Mapping[int, int]
    sure: bool


def ranks_told(text: str) -> tuple[dict[int, int], bool]:
    """({pid: rank}, whether it says that these are ranks and pids)."""
    lines = [line for line in lines_of(text[:SEARCHED], LONGEST) if line.strip()]
    said = _said(lines)
    if said:
        return said, True
    rows = [_ROW.fullmatch(line) for line in lines if not line.lstrip().startswith("#")]
    if 1 < len(rows) <= MOST and all(rows):
        return _sorted_out([(int(row[1]), int(row[2])) for row in rows if row]), False
    return {}, False


def _said(lines: list[str]) -> dict[int, int]:
    """What lines with both words tell."""
    found: dict[int, int] = {}
    torn: set[int] = set()

    def add(pairs: Iterable[tuple[int, int]]) -> None:
        for rank, pid in pairs:
            if len(found) < MOST and found.setdefault(pid, rank) != rank:
                torn.add(pid)  # of two jobs, or of two starts

    for at, line in enumerate(lines):
        low = line.lower()
        if "pid" not in low or "rank" not in low:
            continue
        if low.find("pid") < low.find("rank"):
            pairs = [(int(one[2]), int(one[1])) for one in _OF_PID.finditer(line)]
        else:
            pairs = [(int(one[1]), int(one[2])) for one in _OF_RANK.finditer(line)]
        add(pairs)
        if not pairs and (legend := _LEGEND.search(line)):
            add(_legend(line, legend, lines[at + 1 : at + 65]))
    return {pid: rank for pid, rank in found.items() if pid not in torn}


def _legend(line: str, legend: re.Match[str], below: list[str]) -> list[tuple[int, int]]:
    """Pairs behind a legend or below it; or as many pids as the ranks that it counts."""
    rest = line[legend.end() :]
    pairs = [(int(one[1]), int(one[2])) for one in _PAIR.finditer(rest)]
    for row in below if not pairs else ():
        if (cells := _ROW.fullmatch(row)) is None:
            break
        pairs.append((int(cells[1]), int(cells[2])))
    if pairs:
        return pairs if legend["rank"] and "by" not in legend[0].lower() else _turned(pairs)
    pids = [int(one) for one in _BARE.findall(rest)]
    span = _SPAN.search(line)
    first, last = (int(span[1]), int(span[2])) if span else (0, len(pids) - 1)
    return list(enumerate(pids, first)) if len(pids) > 1 and last - first + 1 == len(pids) else []


def _turned(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """ "pids by rank: 0=18" has the rank first, "pid -> rank: 18=0" the pid: ranks are the small ones without a gap."""
    return [(rank, pid) for pid, rank in _sorted_out(pairs).items()]


def _sorted_out(pairs: list[tuple[int, int]]) -> dict[int, int]:
    """{pid: rank} of pairs in either order: ranks follow each other without a gap, and are below every pid."""
    for ranks, pids in (([a for a, _ in pairs], [b for _, b in pairs]), ([b for _, b in pairs], [a for a, _ in pairs])):
        whole = len(set(ranks)) == len(set(pids)) == len(pairs) > 1
        if whole and max(ranks) - min(ranks) == len(ranks) - 1 and max(ranks) < min(pids):
            return dict(zip(pids, ranks, strict=True))
    return {}


def placed(
    lists: Iterable[Told],
    shown: Mapping[int, Mapping[str, Sequence[PurePosixPath]]],
    node_of: Callable[[PurePosixPath], str],
) -> Iterator[tuple[PurePosixPath, int, int]]:
    """`shown`: pid -> node -> files that show that process. A pid that two nodes have is of the list's own node."""
    for told in lists:
        seen = [pid for pid in told.pids if pid in shown]
        if not seen or (not told.sure and (len(seen) < 2 or len(seen) < LEAST * len(told.pids))):
            continue
        node = node_of(told.inside)
        for pid in seen:
            there = shown[pid]
            alone = len(there.keys() - {""}) < 2
            for name in there if alone else {node, ""} & there.keys() if node in there else ():
                for where in there[name]:
                    yield where, pid, told.pids[pid]
