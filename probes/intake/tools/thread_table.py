"""Tables of threads that people make of /proc/PID/task: where each may run, how long it ran, and waited for a CPU.

A heading names the columns, of which the thread's number and one of waiting time, switches or allowed CPUs are needed:

    == tasks: tid comm state psr vol/invol ctx run_ns wait_ns slices Cpus_allowed_list
    61803 NCCL Progress 0 R(running) 1 64332/2329 887900000000 106000000 46616 0-23

The name is the only column with spaces: those after it are counted from the end of the line.
Source: proc_pid_status(5), Documentation/scheduler/sched-stats.rst of Linux
"""

from __future__ import annotations

import re

from probes.catalog._load_facts import Load, Process
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._load import load, process
from probes.intake.tools._text import host_in, number, refuse, whole

MOST = 20_000
_COLUMNS = (
    ("tid", re.compile(r"tid|lwp|spid|thread_?id|task", re.I)),
    ("pid", re.compile(r"t?gid|pid", re.I)),
    ("comm", re.compile(r"comm(?:and)?|name|thread", re.I)),
    ("state", re.compile(r"state|stat|s", re.I)),
    ("psr", re.compile(r"psr|cpu|last_?cpu|processor|on", re.I)),
    ("ran", re.compile(r"(?:run|ran|exec|cpu|on_?cpu)(?:_?time)?(?:_?(ns|us|ms|s))?|sum_exec_runtime", re.I)),
    ("waited", re.compile(r"(?:wait(?:ed)?|run_?delay|rq_?wait|delay)(?:_?time)?(?:_?(ns|us|ms|s))?", re.I)),
    ("mask", re.compile(r"cpus_allowed(?:_list)?|affinity|mask|allowed|cpuset", re.I)),
)
_UNIT = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9, None: 1}
_MASK = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,256}")
_OF = re.compile(r"\bpid[ =:]{1,3}(\d{1,10})\b")


def heads_of(line: str) -> dict[str, tuple[int, int]] | None:
    """Column -> (place, nanoseconds of its unit). A word that is part of the column before it, as in `vol/invol ctx`,
    counts as none."""
    words = line.strip().strip("#=* ").removeprefix("tasks:").split()
    words = [
        word
        for place, word in enumerate(words)
        if not (place and word in ("ctx", "switches") and "/" in words[place - 1])
    ]
    if not 3 <= len(words) <= 24:
        return None
    found: dict[str, tuple[int, int]] = {}
    for place, word in enumerate(words):
        for name, pattern in _COLUMNS:
            if name not in found and (match := pattern.fullmatch(word)):
                found[name] = (place, _UNIT.get((match[1] or "ns").lower() if pattern.groups else None, 1))
                break
    tells = ("mask" in found or ("waited" in found and "ran" in found)) and ("tid" in found or "pid" in found)
    return found | {"": (len(words), 0)} if tells and "comm" in found else None


def fits(head: str, name: str) -> bool:
    return any(heads_of(line) is not None for line in list(lines_of(head, 400))[:20])


def read(text: str) -> Load:
    heads: dict[str, tuple[int, int]] | None = None
    owner = 0
    found: dict[int, Process] = {}
    for line in lines_of(text, 1000):
        if (new := heads_of(line)) is not None:
            heads = new
        elif heads is not None and len(found) < MOST and (one := _row(line, heads, owner)) is not None:
            found[one.pid] = one
        elif told := _OF.search(line):
            owner = int(told[1])
    if not found:
        raise refuse("rows of a table of threads", text)
    return load(processes=tuple(found.values()))


def _row(line: str, heads: dict[str, tuple[int, int]], owner: int) -> Process | None:
    words = line.split()
    count, at = heads[""][0], heads["comm"][0]
    more = len(words) - count
    if more < 0 or more > 4:
        return None
    cells = [*words[:at], " ".join(words[at : at + more + 1]), *words[at + more + 1 :]]
    cell = {name: cells[place] for name, (place, _) in heads.items() if name}
    thread, above = whole(cell.get("tid", "")), whole(cell.get("pid", "")) or owner
    pid = thread or above
    if not pid:
        return None
    times = [_ns(cell.get(name), heads.get(name, (0, 1))[1]) for name in ("ran", "waited")]
    mask = cell.get("mask", "")
    state = cell.get("state", "")[:1]
    on = whole(cell.get("psr", ""))
    return process(
        pid, clean(cell["comm"].strip("()"))[:64], None, state=state if state.isalpha() else "",
        ppid=above if above != pid else 0, ran_ns=times[0], waited_ns=times[1],
        mask=mask if _MASK.fullmatch(mask) else "",
        seen_on=(on,) if on is not None else (), running=int(state == "R"),
    )  # fmt: skip


def _ns(text: str | None, unit: int) -> int | None:
    value = number(text.rstrip("nmus")) if text else None
    return None if value is None or value < 0 else round(value * unit)


TOOL = Tool("thread table", "host.load", fits, read, host=host_in)
