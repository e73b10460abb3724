"""States of ranks that people print line by line: loops over /proc, lists of containers, tasks of containerd.

Source   proc_pid_status(5), State and TracerPid; cgroups(7): cgroup.freeze, `frozen` of cgroup.events, freezer.state;
         docker-ps(1), podman-ps(1) and nerdctl: "(Paused)" or "Paused" in the status; ctr tasks ls: PAUSED
Shape    extracts_told(text) -> an Extract for each rank whose state is told; pid 0 where no line has one
Errors   none: a line without a rank or a state tells nothing
"""

from __future__ import annotations

import re

from probes.catalog.ranks.process_extract import STATES, Extract
from probes.core import clean, lines_of

FREEZER = "do_freezer_trap"  # what a frozen process waits in: kernel/signal.c
MOST = 4096
_RANK = re.compile(
    r"(?<![A-Za-z_])RANK[=:] ?(\d{1,6})(?!\d)|(?<![A-Za-z])(?<!local_)(?<!local-)rank[ _:=-]{0,2}(\d{1,6})(?!\d)"
)
_PID = re.compile(r"(?:\bpid[ =:]{1,3}|/proc/|\bPid:\s{1,8})(\d{2,10})\b")
_STATE = re.compile(
    r"\bState:\s{1,8}([A-Za-z]) \("
    r"|(?<![\w(])([RSDTtZI]) \((?:running|sleeping|disk sleep|stopped|tracing stop|zombie|idle)\)"
    r"|\b[Ss](?:tate?|TAT)[=:] ?([RSDTtZI])[sl<N+L]{0,4}(?![\w(])"
)
_HEAD = re.compile(r"(?i)(?:^|[\s|,])rank(?=[\s|,]).{0,200}?(?:^|[\s|,])(?:stat|state|s)(?=[\s|,]|$)")
_COLUMN = re.compile(r"([RSDTtZI])[sl<N+L]{0,4}")
_TRACER = re.compile(r"\bTracerPid:\s{1,8}(\d{1,10})")
_FROZEN = re.compile(r"\(Paused\)|\bfrozen 1\b|cgroup\.freeze[=: ]{1,3}1\b|\bfreeze=1\b|\bFROZEN\b"
    r"|\s(?:PAUSED|Paused)(?:\s|$)|\b(?:do_freezer_trap|__refrigerator)\b|\"?Paused\"?[:=] ?true")  # fmt: skip
_RUNS = re.compile(r"\bfrozen 0\b|\bfreeze=0\b|\bTHAWED\b|\sUp \d[^(\n]{0,40}|\s(?:RUNNING|Running)(?:\s|$)")
_OF_LOGS = re.compile(r"NCCL |\[rank\d|Watchdog|Traceback|\bloss\b|\bstep\b", re.I)


def extracts_told(text: str) -> list[Extract]:
    """Ranks with a state. Lines without a rank belong to the rank that was named last before them."""
    found: dict[int, Extract] = {}
    rank: int | None = None
    heads: list[str] = []
    for line in lines_of(text, 1000):
        if _HEAD.search(line):
            heads = _cells(line.lower())
            continue
        if heads and _of_row(found, dict(zip(heads, _cells(line), strict=False))):
            continue
        if not line.strip() or _OF_LOGS.search(line):
            rank = None
            continue
        if told := _RANK.search(line):
            rank = int(told[1] or told[2])
        if rank is None or len(found) >= MOST:
            continue
        _take(found, rank, line)
    return [one for one in found.values() if one.state or one.wchan]


def _take(found: dict[int, Extract], rank: int, line: str) -> None:
    one = found.setdefault(rank, Extract(0, variables={"RANK": rank}))
    if not one.pid and (pid := _PID.search(line)):
        one.pid = int(pid[1])
    if (state := _STATE.search(line)) and (letter := state[1] or state[2] or state[3]) in STATES:
        one.state = letter
    if (tracer := _TRACER.search(line)) and tracer[1] != "0":
        one.status["TracerPid"] = clean(tracer[1])
    if _FROZEN.search(line):
        one.wchan, one.state = FREEZER, one.state or "S"
    elif not one.state and _RUNS.search(line):
        one.state = "S"


def _cells(line: str) -> list[str]:
    return [cell for cell in re.split(r"[\s|,;]+", line.strip()) if cell]


def _of_row(found: dict[int, Extract], row: dict[str, str]) -> bool:
    """A row of somebody's table with a column of ranks: the heading tells which is which."""
    state = _COLUMN.fullmatch(next((row[key] for key in ("stat", "state", "s") if key in row), ""))
    rank = row.get("rank", "")
    if state is None or not rank.isdecimal() or len(rank) > 6 or len(found) >= MOST:
        return False
    one = found.setdefault(int(rank), Extract(0, variables={"RANK": int(rank)}))
    one.state = state[1]
    pid = row.get("pid", "")
    one.pid = int(pid) if pid.isdecimal() and len(pid) < 10 else one.pid
    return True


def tells_states(text: str) -> bool:
    """Whether lines of a short text tell the state of ranks: of a stopped or frozen one, or of two at least."""
    if len(text) > 262_144:
        return False
    head = text[:65_536]
    if not (_STATE.search(head) or _FROZEN.search(head) or _HEAD.search(head)):
        return False
    told = extracts_told(head)
    return len(told) > 1 or any(one.state in ("T", "t") or one.wchan == FREEZER for one in told)


_OF_PROC = re.compile(r"proc[_/](\d{2,10})[_/](?:task[_/]\d{1,10}[_/])?(stack|status|wchan)(?![A-Za-z])")

_PARTS = {
    "stack": re.compile(r"\[<[0-9a-fx]{1,20}>\] [\w.]"),
    "status": re.compile(r"Name:\t"),  # a line of State alone is read as what lists stopped processes
    "wchan": re.compile(r"\w{3,60}\s{0,2}$"),
}


def part_of_process(head: str, name: str) -> str:
    """Of which process and what it is, where `cat /proc/812/stack` was pasted: its name tells, its text alone not."""
    of = _OF_PROC.findall(name)
    return f"/proc/{of[0][0]}/{of[0][1]}" if len(of) == 1 and _PARTS[of[0][1]].match(head.lstrip()) else ""
