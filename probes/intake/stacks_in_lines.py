"""Stacks that somebody wrote down in a line for each rank, as sections in the form of py-spy.

    rank 3: wait_for_token (hub/lease.py:40) <- on_step_end (callbacks.py:12) <- train (train.py:96)
    ranks 0-2,4-7: all_reduce (distributed_c10d.py:2501) <- sync_grads (train.py:88)
    rank 3  main;train (train.py:96);on_step_end (callbacks.py:12);wait_for_token (lease.py:40)     outermost first
    | 3 | take (lease.py:7) |     below a head whose first column is the rank; {"rank": 3, "top": "take (lease.py:7)"}

Shape    stacks_in_lines(text) -> (rank, "", text of its stack); empty where fewer than two ranks are told so
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.core import lines_of

MOST_RANKS, MOST_FRAMES = 4096, 60
SHARE = 0.6  # judgement: of the lines that are such, and of a line that is frames; a log quotes places too
_LINE = re.compile(
    r"\W{0,8}(?:global[ _])?ranks?[\"']?[ _:=#]{0,3}\[?(\d{1,6}(?:(?: ?[-–,] ?| and )\d{1,6}){0,400})\]?[^\w<]{1,8}",
    re.I,
)
_HEAD = re.compile(r"\W{0,4}(?:global[ _])?rank\s{0,8}[|,\t][^\n]{2,200}$", re.I)
_ROW = re.compile(r"\W{0,4}(\d{1,6})\s{0,8}[|,\t]\W{0,8}")
_FRAME = re.compile(r"([\w.<>]{1,120})(?:\(\))? ?(?:\(|at |@ ?|in )?([\w./-]{1,200}\.py):(\d{1,7})\)?")
_PLACE = re.compile(r"([\w./-]{1,200}\.py):(\d{1,7}):?(?: in)? ([\w.<>]{1,120})")
_PLACED = re.compile(r"[\w.<>]{0,120}(?:\(\))? ?(?:\(|at |@ ?|in )?[\w./-]{1,200}\.py:\d{1,7}\)?|<-|->|[;,>←→| ]")
_INWARDS = re.compile(r"->|→|;| > | >> ")  # from who calls to what is called
_OUTER = ("<module>", "main", "_run_code", "_run_module_as_main")


def stacks_in_lines(text: str) -> list[tuple[int, str, str]]:
    if ".py:" not in text[:65_536]:
        return []
    found: dict[int, str] = {}
    lines = fit = 0
    row = False  # below the head of a table whose first column is the rank
    for line in lines_of(text, 8_000):
        if not line.strip() or line[:1] == "#":
            continue
        lines += 1
        if set(line) <= set("|-: +="):
            continue
        if _HEAD.match(line):
            row = True
            continue
        told = _LINE.match(line) if "ank" in line[:40] or "RANK" in line[:40] else _ROW.match(line) if row else None
        frames = _frames(line[told.end() :]) if told else []
        fit += bool(frames)
        for rank in _ranks(told[1]) if told and frames else ():
            if len(found) < MOST_RANKS:
                found.setdefault(rank, _as_spy(rank, frames))
        if lines > 20 and fit < SHARE * lines:
            return []
    if len(found) < 2 or fit < SHARE * lines:
        return []
    return [(rank, "", body) for rank, body in sorted(found.items())]


def _frames(rest: str) -> list[tuple[str, str, str]]:
    rest = rest.partition('": "')[2] or rest  # of JSON
    if len(_PLACED.sub("", rest)) > (1 - SHARE) * len(rest):
        return []
    frames = [(one[1], one[2], one[3]) for one in _FRAME.finditer(rest)]
    frames = frames or [(one[3], one[1], one[2]) for one in _PLACE.finditer(rest)]
    outer_first = frames and (frames[0][0] in _OUTER or (_INWARDS.search(rest) and frames[-1][0] not in _OUTER))
    return (frames[::-1] if outer_first else frames)[:MOST_FRAMES]


def _ranks(said: str) -> Iterator[int]:
    for first, last in re.findall(r"(\d{1,6})(?: ?[-–] ?(\d{1,6}))?", said):
        yield from range(int(first), min(int(last or first), int(first) + MOST_RANKS) + 1)


def _as_spy(rank: int, frames: list[tuple[str, str, str]]) -> str:
    rows = "".join(f"    {function} ({file}:{row})\n" for function, file, row in frames)
    return f'Thread {0x7F0000000000 + rank:#x} (active): "MainThread"\n{rows}'
