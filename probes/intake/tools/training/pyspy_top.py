"""Screens of py-spy top: in which functions a process spends its time, those below each other counted in %Total.

    GIL: 99.00%, Active: 203.00%, Threads: 31
      %Own   %Total  OwnTime  TotalTime  Function (filename)
     61.00%  61.00%   35.91s    35.91s   _reduce_ex_internal (torch/_tensor.py)

Its screen has no stacks: whatever is below a thread's bootstrap is beside the main thread. Of several screens the last.
Source: py-spy 0.4 (src/console_viewer.rs)
"""

from __future__ import annotations

import re

from probes.catalog.stacks.profile import LOADER, SYNC, THREAD, Profile, findings, is_of_lock
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

_HEAD = re.compile(r"^\s{0,6}%Own\s{1,6}%Total\s{1,6}OwnTime\s{1,6}TotalTime\s{1,6}Function", re.M)
_ROW = re.compile(
    r"^\s{0,6}(\d{1,3}(?:\.\d{1,2})?)%\s{1,8}(\d{1,3}(?:\.\d{1,2})?)%\s{1,8}(\d{1,9}(?:\.\d{1,3})?)s\s{1,8}(\d{1,9}(?:\.\d{1,3})?)s\s{1,8}(\S.{0,300})$"
)
_STATE = re.compile(r"GIL: (\d{1,4}(?:\.\d{1,2})?)%, Active: (\d{1,6}(?:\.\d{1,2})?)%, Threads: (\d{1,5})")
_SAMPLES = re.compile(r"Total Samples (\d{1,9})")
_THREADS_OWN = ("_pin_memory_loop", "do_one_step (torch/utils/data")  # what only the pin thread runs
SATURATED, SEVERAL = 90.0, 150.0  # percent: the lock is never free, and more than one thread wants to run; judgement


def fits(head: str, name: str) -> bool:
    return bool(_HEAD.search(head) and _STATE.search(head))


def read(text: str) -> Profile:
    """Counts are of a hundred: shares of the last screen."""
    screen = text[[one.start() for one in _HEAD.finditer(text)][-1] :] if _HEAD.search(text) else ""
    rows = [(float(one[1]), float(one[2]), one[5]) for line in lines_of(screen, 600) if (one := _ROW.match(line))]
    state = _STATE.findall(text)
    if not rows or not state:
        raise refuse("a screen of py-spy top", text)
    samples = int(told[-1]) if (told := _SAMPLES.findall(text)) else 100

    def count(marks: tuple[str, ...]) -> int:
        share = max((total for _, total, name in rows if any(mark in name for mark in marks)), default=0.0)
        return round(samples * min(share, 100.0) / 100)

    beside = count((*THREAD, "run (threading.py", *_THREADS_OWN))
    lock = is_of_lock(text) or (float(state[-1][0]) >= SATURATED and float(state[-1][1]) >= SEVERAL)
    busiest = max(rows, key=lambda row: row[0])[2] if rows else ""
    return Profile(
        samples, len(rows), count(SYNC), "", (), "", False,
        beside, clean(busiest.strip())[:120] if beside else "", lock, count((LOADER,)),
    )  # fmt: skip


TOOL = Tool("py-spy top", "rank.profile", fits, read, findings, host_in)
