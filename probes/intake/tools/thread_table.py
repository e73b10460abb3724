"""Tables of threads that people make of /proc/PID/task: where each may run, how long it ran, and waited for a CPU.

A heading names the columns, of which the thread's number and one of waiting time, switches or allowed CPUs are needed:

    == tasks: tid comm state psr vol/invol ctx run_ns wait_ns slices Cpus_allowed_list
    61803 NCCL Progress 0 R(running) 1 64332/2329 887900000000 106000000 46616 0-23

Columns may be of some seconds instead of since the start: RUN_DELAY_ms/10s, nvcswch/s, or any below "per 10 s".
The name is the only column with spaces: those after it are counted from the end of the line.
Source: proc_pid_status(5), Documentation/scheduler/sched-stats.rst of Linux
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    ("waited", re.compile(
        r"(?:(?:cpu_?|sched_?|rq_?)?wait(?:ed)?|(?:run_?q?_?|sched_?|rq_?)?(?:delay|lat(?:ency)?))(?:_?time)?(?:_?(ns|us|ms|s))?",
        re.I,
    )),
    ("late", re.compile(r"%wait|(?:(?:run_?|sched_?)?delay|(?:cpu_?)?wait(?:ed)?)_?(?:%|pct|percent)", re.I)),
    ("preempted", re.compile(
        r"(?:non_?vol(?:untary)?|invol(?:untary)?|preempt\w{0,4})(?:_?(?:ctxt?|cs|csw|switch(?:es)?|ctxt?_?switch(?:es)?|context_switches))?"
        r"|nvcswch|nv_?ctxt?|nivcsw", re.I,
    )),
    ("mask", re.compile(r"cpus_allowed(?:_list)?|affinity|mask|allowed|cpuset", re.I)),
)  # fmt: skip
_UNIT = {"ns": 1, "us": 1000, "ms": 10**6, "s": 10**9, None: 1}
_EACH = re.compile(r"(?:/|_per_)(\d{0,4})_?s(?:ec)?$", re.I)  # RUN_DELAY_ms/10s, nvcswch/s
_PERIOD = re.compile(
    r"\b(?:per|over|in|within|during|after|of)\s{1,3}(?:the )?(?:last )?(\d{1,4}(?:\.\d)?)\s?-?s(?:ec(?:onds?)?)?\b",
    re.I,
)
_MASK = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,256}")
_OF = re.compile(r"\bpid[ =:]{1,3}(\d{1,10})\b|/proc/(\d{1,10})/task\b")


@dataclass(frozen=True, slots=True)
class _Column:
    place: int
    unit: int  # ns
    each: float | None = None  # seconds that its values are of; None for since the start, or not told


def heads_of(line: str) -> dict[str, _Column] | None:
    """Name -> column; "" -> how many there are. A word that is part of the column before it, as in `vol/invol ctx`,
    counts as none."""
    words = line.strip().strip("#=* ").removeprefix("tasks:").split()
    words = [
        word
        for place, word in enumerate(words)
        if not (place and word in ("ctx", "switches") and "/" in words[place - 1])
    ]
    if not 3 <= len(words) <= 24:
        return None
    found: dict[str, _Column] = {}
    for place, word in enumerate(words):
        each = _EACH.search(word)
        bare = word[: each.start()] if each else word
        for name, pattern in _COLUMNS:
            if name not in found and (match := pattern.fullmatch(bare)):
                unit = _UNIT.get((match[1] or "ns").lower() if pattern.groups else None, 1)
                found[name] = _Column(place, unit, float(each[1] or 1) or None if each else None)
                break
    waits = "late" in found or ("waited" in found and ("ran" in found or found["waited"].each is not None))
    tells = ("mask" in found or waits) and ("tid" in found or "pid" in found)
    return found | {"": _Column(len(words), 0)} if tells and "comm" in found else None


def fits(head: str, name: str) -> bool:
    return any(heads_of(line) is not None for line in list(lines_of(head, 400))[:20])


def read(text: str) -> Load:
    heads: dict[str, _Column] | None = None
    owner, period = 0, None
    found: dict[int, Process] = {}
    for line in lines_of(text, 1000):
        if (new := heads_of(line)) is not None:
            heads = new
        elif heads is not None and len(found) < MOST and (one := _row(line, heads, owner, period)) is not None:
            found[one.pid] = one
        elif told := _OF.search(line):
            owner = int(told[1] or told[2])
        if new is None and len(line) < 400 and (said := _PERIOD.search(line)):
            period = float(said[1]) or None
    if not found:
        raise refuse("rows of a table of threads", text)
    return load(processes=tuple(found.values()))


def _row(line: str, heads: dict[str, _Column], owner: int, period: float | None) -> Process | None:
    words = line.split()
    count, at = heads[""].place, heads["comm"].place
    more = len(words) - count
    if more < 0 or more > 4:
        return None
    cells = [*words[:at], " ".join(words[at : at + more + 1]), *words[at + more + 1 :]]
    cell = {name: cells[column.place] for name, column in heads.items() if name}
    thread, above = whole(cell.get("tid", "")), whole(cell.get("pid", "")) or owner
    pid = thread or above
    if not pid:
        return None
    ran, waited = (_ns(cell.get(name), heads[name].unit) if name in heads else None for name in ("ran", "waited"))
    mask = cell.get("mask", "")
    state = cell.get("state", "")[:1]
    on = whole(cell.get("psr", ""))
    late, preempted = _late(cell, heads, waited, period), _each(cell, heads, "preempted", period)
    return process(
        pid, clean(cell["comm"].strip("()"))[:64], None, state=state if state.isalpha() else "",
        ppid=above if above != pid else 0, ran_ns=ran if late is None else None,
        waited_ns=waited if late is None else None, run_delay_percent=late, preempted=preempted,
        mask=mask if _MASK.fullmatch(mask) else "",
        seen_on=(on,) if on is not None else (), running=int(state == "R"),
    )  # fmt: skip


def _late(cell: dict[str, str], heads: dict[str, _Column], waited: int | None, period: float | None) -> float | None:
    """Percent of the time that it waited for a CPU, where the time is told."""
    if (percent := number(cell.get("late", "").rstrip("%"))) is not None:
        return percent if 0 <= percent <= 100 else None
    seconds = heads["waited"].each or (period if "ran" not in heads else None) if "waited" in heads else None
    if waited is None or not seconds:
        return None
    return round(min(100.0, waited / seconds / 1e7), 1)


def _each(cell: dict[str, str], heads: dict[str, _Column], name: str, period: float | None) -> float | None:
    seconds = heads[name].each or period if name in heads else None
    value = number(cell.get(name, "").replace(",", ""))
    return value / seconds if value is not None and value >= 0 and seconds else None


def _ns(text: str | None, unit: int) -> int | None:
    value = number(text.rstrip("nmus")) if text else None
    return None if value is None or value < 0 else round(value * unit)


TOOL = Tool("thread table", "host.load", fits, read, host=host_in)
