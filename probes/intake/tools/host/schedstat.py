"""/proc/PID/schedstat of processes and threads: nanoseconds on a CPU, nanoseconds waiting for one, turns.

As a file of its own whose path names the process, in lines of grep, below `==> ... <==` of head, and behind the number
of the process, as a loop over several prints them, with how many threads it has where the loop counts them. The numbers
add up since the thread started, and what it slept is not in them: the share is of the time that it wanted to run.
Source: Documentation/scheduler/sched-stats.rst of Linux.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.host.load_facts import Load, Process
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host._load import load, process

_BARE = re.compile(r"\s{0,8}(\d{1,19}) (\d{1,19}) (\d{1,12})\s{0,8}$")
_AMONG = re.compile(r"^(\d{9,19}) (\d{6,19})(?: (\d{1,12}))?$", re.M)  # below a command, with its turns or cut off
_NAMED = re.compile(
    r"^(?:==> )?/?(?:proc/)?(?:(?:\d{1,10}|self)/)?(?:task/)?(\d{1,10})/schedstat(?::| <==\n)\s{0,4}"
    r"(\d{1,19}) (\d{1,19}) \d{1,12}$",
    re.M,
)
_PATH = re.compile(r"(?:^|[/_])(?:(\d{1,10})[/_]task[/_])?(\d{1,10})[/_]schedstat")
_LOOPED = re.compile(
    r"^\s{0,8}(?:pid[ =:]{1,2})?(\d{2,10})[:,]?\s{1,8}(?:\(?([A-Za-z][\w.:+-]{0,30})\)?\s{1,8})?(?:(\d{1,6})\s{1,8})?"
    r"(\d{8,19}) (\d{6,19}) \d{1,12}\s{0,4}$",
    re.M,
)
_COUNTS_THREADS = re.compile(r"task.{0,20}wc|NLWP|nlwp|Threads")
_OF = re.compile(r"(?:pgrep|pidof)(?:[_ ]-\w{1,3})*[_ ]([A-Za-z][\w.]{0,30}?)(?=_|\s|$|\))")
LEAST_NS = 10**9  # of waiting: less is no burden, whatever its share; judgement


def fits(head: str, name: str) -> bool:
    return bool(_NAMED.search(head)) or (
        "schedstat" in name and bool(_AMONG.search(head) or _BARE.match(head) or _LOOPED.search(head))
    )


def read(text: str) -> Load:
    """A bare line has pid 0 until the file's path tells it: several are looks at one, or at several in their order."""
    bare = _BARE.match(text)
    rows = [("0", bare[1], bare[2])] if bare else _NAMED.findall(text[:4_194_304])
    found: dict[int, Process] = {}
    if not rows and (looped := _LOOPED.findall(text[:4_194_304])):
        return load(
            processes=tuple(
                process(
                    int(pid), comm, None, ran_ns=int(ran), waited_ns=int(waited), threads=int(many) if many else None
                )
                for pid, comm, many, ran, waited in looped[:20_000]
            )
        )
    if not rows:
        among = [(int(one[0]), int(one[1])) for one in _AMONG.findall(text[:262_144])[:64]]
        if among:
            return load(processes=tuple(process(0, "", None, ran_ns=ran, waited_ns=waited) for ran, waited in among))
    for pid, ran, waited in rows[:20_000]:
        found[int(pid)] = _process(int(pid), int(ran), int(waited))
    if not found:
        raise refuse("lines such as '/proc/12/schedstat:2205162367 8573391933 1052'", text)
    return load(processes=tuple(found.values()))


def _process(pid: int, ran: int, waited: int) -> Process:
    share = 100 * waited / (ran + waited) if waited >= LEAST_NS else 0.0
    return Process(pid, 0, "", "", None, round(share, 1), False, of_wanted=True)


def named(facts: Load, path: str) -> Load:
    """Whose it is, by the path or command. Without, nothing is told. A number beside it is of threads where the command
    counts them."""
    if any(one.pid and one.ran_ns for one in facts.processes):
        called = _OF.search(path)
        threads = bool(_COUNTS_THREADS.search(path))
        return replace(
            facts,
            processes=tuple(
                replace(one, comm=one.comm or (called[1] if called else ""), threads=one.threads if threads else None)
                for one in facts.processes
            ),
        )
    told = list(dict.fromkeys((int(one[2]), int(one[1] or 0)) for one in _PATH.finditer(path)))
    known, place = [], 0
    for one in facts.processes:
        if not one.pid and told:
            pid, above = told[place % len(told)]
            one = replace(one, pid=pid, ppid=above if above != pid else 0)
            place += 1
        known += [one] if one.pid else []
    return replace(facts, processes=tuple(known))


TOOL = Tool("schedstat", "host.load", fits, read, host=host_in, named=named)
