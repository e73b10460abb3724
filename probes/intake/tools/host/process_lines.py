"""Lines that people make of each process or thread in a loop: its number, and values beside their names.

    71210 OMPI_COMM_WORLD_RANK=0 threads=410 mask= 0-191
    pid=71210 comm=python3 nlwp=410 Cpus_allowed_list: 0-191
    20871 python  S cpu=12  Cpus_allowed_list: 12-15  |  1210  6902 | 901

Numbers without a name behind a `|` are what a heading with as many of these says of them, such as
`comm state cpu allowed | d(run) d(wait) over 10 s in ms | nonvol switches in 10 s`: times and involuntary switches.
Source: proc_pid_status(5), taskset(1), Documentation/scheduler/sched-stats.rst of Linux
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.host.load_facts import Load, Process
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host._load import load, process
from probes.intake.tools.host.masks import OF_TRAINING, ranges

MOST = 20_000
_PID = re.compile(r"\s{0,12}(?:(?:pid|tid|lwp|process|thread)\s{0,2}[ =:]\s{0,2})?(\d{2,10})(?=[\s:,;|])[:,;|]?", re.I)
_COMM = re.compile(
    r"\s{1,8}\(?([A-Za-z][\w.:+-]{0,30}(?: (?:Service|Progress|IbAsync|Async)(?: \d{1,4})?)?)\)?(?=[\s,;|]|$)"
)
_PAIR = re.compile(r"([A-Za-z][\w/-]{0,40})\s{0,2}[=:]\s{0,8}([^\s|;=]{1,600})(?=[\s|;]|$)")
_STATE = re.compile(r"\s([RSDTtZI])\s")
_LIST = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,256}")
_BITS = re.compile(r"(?:0x)?([0-9a-f]{1,8}(?:,?[0-9a-f]{1,8}){0,128})", re.I)
_THREADS = ("threads", "nlwp", "nthreads", "num_threads", "thcount", "tasks")
_MASKS = ("mask", "cpus_allowed_list", "cpus_allowed", "affinity", "allowed", "cpuset", "cpus", "cpu_affinity")
_ON = ("cpu", "psr", "last_cpu", "last-cpu", "processor", "core")
_COMMS = ("comm", "name", "command", "cmd")
_RANKS = re.compile(r"(?:global_?)?rank|OMPI_COMM_WORLD_RANK|PMI_RANK|PMIX_RANK|SLURM_PROCID|RANK", re.I)
_RAN = ("run_ns", "ran_ns", "exec_ns", "run_ms", "ran_ms", "run", "ran")
_WAITED = ("wait_ns", "waited_ns", "delay_ns", "run_delay", "wait_ms", "waited_ms", "wait")
_MEANT = re.compile(r"non[ _-]?vol|invol|wait|delay|run|ran|exec|(?<!non)vol")
_UNIT = re.compile(r"\b(?:in )?(ns|us|ms|s(?:ec(?:onds)?)?)\b")
_OVER = re.compile(r"(?:over|in|per|within) (\d{1,4}) ?s(?:ec(?:onds)?)?\b")
_NS = {"ns": 1, "us": 1000, "ms": 10**6}
_LONG = re.compile(r"_(ns|us|ms)$")


def fits(head: str, name: str) -> bool:
    return sum(_row(line, []) is not None for line in list(lines_of(head, 1000))[:60]) > 1


def read(text: str) -> Load:
    found: dict[int, Process] = {}
    meant: list[str] = []
    for line in lines_of(text, 1000):
        if "|" in line and not _PID.match(line) and (new := line.split("|")[1:]) and _MEANT.search(line):
            meant = [part.lower() for part in new][:8]
        elif len(found) < MOST and (one := _row(line, meant)) is not None:
            found[one.pid] = one
    if not found:
        raise refuse("lines such as '71210 rank=0 threads=410 mask=0-191'", text)
    return load(processes=tuple(found.values()))


def _row(line: str, meant: list[str]) -> Process | None:
    led = _PID.match(line)
    if led is None:
        return None
    told, *rest = line[led.end() :].split("|")
    pairs = {pair[1].lower(): pair[2].rstrip(",") for pair in list(_PAIR.finditer(told))[:32]}
    mask = next((spans for name in _MASKS if (spans := _spans(name, pairs.get(name, "")))), "")
    many = next((int(pairs[name]) for name in _THREADS if pairs.get(name, "x").isdecimal()), None)
    if many is None and not mask:
        return None
    comm = next((pairs[name] for name in _COMMS if name in pairs), "")
    if not comm and (called := _COMM.match(told if told[:1].isspace() else f" {told}")):
        named = told[called.end() : called.end() + 3].lstrip().startswith(("=", ":")) or called[1].endswith(":")
        comm = "" if named else called[1]
    state = _STATE.search(told)
    on = next((int(pairs[name]) for name in _ON if pairs.get(name, "x").isdecimal()), None)
    ran, waited, preempted = _unnamed(meant, rest) if meant and rest else (_ns(pairs, _RAN), _ns(pairs, _WAITED), None)
    return process(
        int(led[1]), clean(comm.strip("()"))[:64], None, state=state[1] if state else "",
        rank=any(_RANKS.fullmatch(name) and value.isdecimal() for name, value in pairs.items()),
        threads=many, mask=mask, seen_on=(on,) if on is not None else (),
        running=int(state[1] == "R") if state else None, ran_ns=ran, waited_ns=waited, preempted=preempted,
    )  # fmt: skip


def _spans(name: str, value: str) -> str:
    """Masks are lists; one of bits has the letters or the length that no list has."""
    if _LIST.fullmatch(value):
        return value
    bits = _BITS.fullmatch(value) if name in ("mask", "cpus_allowed", "affinity") else None
    return ranges(int(bits[1].replace(",", "")[:1024], 16)) if bits else ""


def _ns(pairs: dict[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = pairs.get(name, "")
        if value.isdecimal():
            unit = _LONG.search(name)
            return int(value[:18]) * _NS[unit[1] if unit else "ns"]
    return None


def _unnamed(meant: list[str], rest: list[str]) -> tuple[int | None, int | None, float | None]:
    """(ran, waited, involuntary switches a second) of numbers whose names stand in the heading, in this order."""
    found: dict[str, float] = {}
    for says, part in zip(meant, rest, strict=False):
        words = part.split()
        names = [name[:4] for name in _MEANT.findall(says)]
        if len(words) != len(names) or not all(word.isdecimal() and len(word) < 19 for word in words):
            continue
        unit = next((_NS[one] for one in reversed(_UNIT.findall(_OVER.sub(" ", says))) if one in _NS), 1)
        over = _OVER.search(says)
        for name, word in zip(names, words, strict=True):
            if name[:3] in ("non", "inv"):
                if over:
                    found["preempted"] = int(word) / max(1, int(over[1]))
            elif name != "vol":
                found["waited" if name in ("wait", "dela") else "ran"] = int(word) * unit
    ran, waited = found.get("ran"), found.get("waited")
    return int(ran) if ran is not None else None, int(waited) if waited is not None else None, found.get("preempted")


def named(facts: Load, path: str) -> Load:
    """A loop over what pgrep finds of the training is of its processes."""
    if not OF_TRAINING.search(path):
        return facts
    return replace(facts, processes=tuple(replace(one, comm=one.comm or "python") for one in facts.processes))


TOOL = Tool("process lines", "host.load", fits, read, host=host_in, named=named)
