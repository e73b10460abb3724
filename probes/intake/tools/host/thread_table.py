"""Tables of threads that people make of /proc/PID/task: where each may run, how long it ran, and waited for a CPU.

A heading names the columns, of which the thread's number and one of waiting time, switches or allowed CPUs are needed:

    == tasks: tid comm state psr vol/invol ctx run_ns wait_ns slices Cpus_allowed_list
    61803 NCCL Progress 0 R(running) 1 64332/2329 887900000000 106000000 46616 0-23

Columns may be of some seconds instead of since the start: RUN_DELAY_ms/10s, nvcswch/s, or any below "per 10 s"; or the
same column stands twice, of two looks: run_delay_ns(t0) run_delay_ns(+10s).
Without a heading, rows tell by themselves where each may run and was last, `python 514 32 32-33 44102201 ...`: the one
lies within the other.
The name is the only column with spaces: those after it are counted from the end of the line.
Source: proc_pid_status(5), Documentation/scheduler/sched-stats.rst of Linux
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from probes.catalog.host.load_facts import Load, Process, cpu_set
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse, whole
from probes.intake.tools.host._load import load, process

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
_LOOK = re.compile(
    r"[(\[@](?:t_?\d|now|before|after|start|end|first|last|\+?(\d{1,4}(?:\.\d)?) ?s(?:ec)?)[)\]]?$", re.I
)
_APART = re.compile(r"\b(\d{1,4}(?:\.\d)?)\s?-?s(?:ec(?:onds)?)? (?:apart|later)\b", re.I)
_PERIOD = re.compile(
    r"\b(?:per|over|in|within|during|after|of)\s{1,3}(?:the )?(?:last )?(\d{1,4}(?:\.\d)?)\s?-?s(?:ec(?:onds?)?)?\b",
    re.I,
)
_MASK = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,256}")
_BARE = re.compile(
    r"\s{0,12}(?:(?P<name>[A-Za-z][^\n]{0,30}?)\s{1,20}(?P<number>\d{2,10})|(?P<tid>\d{2,10})\s{1,20}(?P<comm>[A-Za-z][^\n]{0,30}?))"
    r"\s{1,12}(?P<psr>\d{1,4})\s{1,12}(?P<mask>\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,256})(?=\s|$)"
)
BARE_ROWS = 4  # of these alone
_OF = re.compile(r"\bpid[ =:]{1,3}(\d{1,10})\b|/proc/(\d{1,10})/task\b")


@dataclass(frozen=True, slots=True)
class _Column:
    place: int
    unit: int  # ns
    each: float | None = None  # seconds that its values are of; None for since the start, or not told
    then: int = -1  # place of the same column at a second look
    after: float | None = None  # seconds between the two


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
        look = _LOOK.search(bare)
        bare = bare[: look.start()] if look else bare
        for name, pattern in _COLUMNS:
            if look and name in found and pattern.fullmatch(bare) and found[name].then < 0:
                after = float(look[1]) if look[1] else None
                found[name] = replace(found[name], then=place, after=after)
                break
            if name not in found and (match := pattern.fullmatch(bare)):
                unit = _UNIT.get((match[1] or "ns").lower() if pattern.groups else None, 1)
                found[name] = _Column(place, unit, float(each[1] or 1) or None if each else None)
                break
    waits = "late" in found or ("waited" in found and ("ran" in found or found["waited"].each is not None))
    tells = ("mask" in found or waits) and ("tid" in found or "pid" in found)
    return found | {"": _Column(len(words), 0)} if tells and "comm" in found else None


def fits(head: str, name: str) -> bool:
    lines = list(lines_of(head, 400))
    return any(heads_of(line) is not None for line in lines[:20]) or len(list(_bare(lines[:400]))) >= BARE_ROWS


def _bare(lines: list[str]) -> Iterator[Process]:
    for line in lines:
        row = _BARE.match(line)
        if row is not None and int(row["psr"]) in (cpus := cpu_set(row["mask"])) and len(cpus) > 1:
            comm, pid, on = row["name"] or row["comm"], int(row["number"] or row["tid"]), int(row["psr"])
            yield process(pid, clean(comm.strip("()"))[:64], None, mask=row["mask"], seen_on=(on,))


def read(text: str) -> Load:
    heads: dict[str, _Column] | None = None
    owner, period = 0, None
    told = _APART.search(text[:1_048_576])
    apart = (float(told[1]) or None) if told else None
    found: dict[int, Process] = {}
    for line in lines_of(text, 1000):
        if (new := heads_of(line)) is not None:
            heads = new
        elif heads is not None and len(found) < MOST and (one := _row(line, heads, owner, period, apart)) is not None:
            found[one.pid] = one
        elif told := _OF.search(line):
            owner = int(told[1] or told[2])
        if new is None and len(line) < 400 and (said := _PERIOD.search(line)):
            period = float(said[1]) or None
    if heads is None:
        found = {one.pid: one for _, one in zip(range(MOST), _bare(list(lines_of(text, 1000))), strict=False)}
    if not found:
        raise refuse("rows of a table of threads", text)
    return load(processes=tuple(found.values()))


def _row(line: str, heads: dict[str, _Column], owner: int, period: float | None, apart: float | None) -> Process | None:
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
    if waited is not None and heads["waited"].then >= 0:
        second = _ns(cells[heads["waited"].then], heads["waited"].unit)
        seconds = heads["waited"].after or apart
        if seconds and second is not None and second >= waited:
            late = round(min(100.0, (second - waited) / seconds / 1e7), 1)
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
