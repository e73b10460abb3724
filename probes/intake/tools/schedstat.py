"""/proc/PID/schedstat of processes and threads: nanoseconds on a CPU, nanoseconds waiting for one, turns.

As a file of its own whose path names the process, in lines of grep, and below `==> ... <==` of head. The numbers add up
since the thread started, and what it slept is not in them: the share is of the time that it wanted to run.
Source: Documentation/scheduler/sched-stats.rst of Linux.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog._load_facts import Load, Process
from probes.intake.tools import Tool
from probes.intake.tools._load import load
from probes.intake.tools._text import host_in, refuse

_BARE = re.compile(r"\s{0,8}(\d{1,19}) (\d{1,19}) (\d{1,12})\s{0,8}$")
_NAMED = re.compile(
    r"^(?:==> )?/?(?:proc/)?(?:(?:\d{1,10}|self)/)?(?:task/)?(\d{1,10})/schedstat(?::| <==\n)\s{0,4}"
    r"(\d{1,19}) (\d{1,19}) \d{1,12}$",
    re.M,
)
_PATH = re.compile(r"(?:^|/)(\d{1,10})/schedstat$")
LEAST_NS = 10**9  # of waiting: less is no burden, whatever its share; judgement


def fits(head: str, name: str) -> bool:
    return bool(_NAMED.search(head)) or (name == "schedstat" and bool(_BARE.match(head)))


def read(text: str) -> Load:
    """A bare line has pid 0 until the file's path tells it."""
    bare = _BARE.match(text)
    rows = [("0", bare[1], bare[2])] if bare else _NAMED.findall(text[:4_194_304])
    found = {}
    for pid, ran, waited in rows[:20_000]:
        found[int(pid)] = _process(int(pid), int(ran), int(waited))
    if not found:
        raise refuse("lines such as '/proc/12/schedstat:2205162367 8573391933 1052'", text)
    return load(processes=tuple(found.values()))


def _process(pid: int, ran: int, waited: int) -> Process:
    share = 100 * waited / (ran + waited) if waited >= LEAST_NS else 0.0
    return Process(pid, 0, "", "", None, round(share, 1), False, of_wanted=True)


def named(facts: Load, path: str) -> Load:
    """Whose it is, by the path. Without, nothing is told."""
    found = _PATH.search(path)
    known = [
        replace(one, pid=int(found[1])) if not one.pid and found else one for one in facts.processes if one.pid or found
    ]
    return replace(facts, processes=tuple(known))


TOOL = Tool("schedstat", "host.load", fits, read, host=host_in, named=named)
