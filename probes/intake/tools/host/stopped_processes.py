"""Processes of a job that are stopped or held by a tracer, by rows of ps and top or by lines of /proc/PID/status.

    30113 30090 Tl   do_signal_stop   61.2 02:11:20 python3 train.py          ps, of any columns
    70113 mlops 20 0 101.2g 11.1g 1.2g T 0.0 0.6 611:00.90 python             top
    /proc/5012/status:State: T (stopped)                                      grep State /proc/*/status
    [1]+ 40113 Stopped (signal)   python train.py --rank 1                    jobs -l of a shell
    State:  t (tracing stop)                                                  grep State /proc/5012/status
    91bb02a71c33   img   "python"   3 hours ago   Up 3 hours (Paused)   train-1   docker ps

Source   ps(1), PROCESS STATE CODES; top(1), S; proc_pid_status(5)
Shape    facts process.stopped
Errors   ParseError when no such process is stopped
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from probes.core import Finding, ParseError, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in

MOST = 64
_ROW = re.compile(r"\s{0,12}(?:[a-z_][\w.+-]{0,31} {1,20})?(\d{2,8}) ([^\n]{0,600})")
_STATE = re.compile(r"(?<=\s)([Tt])[sl<N+]{0,4}(?=\s)")
_TRAINS = re.compile(r"(?<![\w-])(python[\d.]{0,6}|pt_main_thread|torchrun|deepspeed|train[\w.]{0,40})(?![\w-])")
# Who only looks at a program: an editor that somebody left with Ctrl-Z is stopped too.
_LOOKS = re.compile(r"(?<![\w-])(?:grep|vim?|nvim|view|less|more|nano|emacs|man|tail|watch|sudo -e|diff|git)(?=\s)")
_BARE = re.compile(
    r"(?:(?:pid[ =:]{1,3})?(\d{2,10})[: \t]{1,4})?State:\s{1,8}([Tt]) \((?:stopped|tracing stop)\)\s{0,4}$"
)
# jobs -l of bash and zsh, also in German, French, Spanish and Chinese
_JOB = re.compile(
    r"\[\d{1,4}\]\s{0,2}[+-]?\s{1,4}(\d{2,8}) (?i:stopped|suspended|angehalten|arr[êe]t\w{0,2}|stoppé|detenido|已停止)"
    r"[^\n]{0,200}?(?<![\w-])(python[\d.]{0,6}|torchrun|deepspeed|train[\w.]{0,40})(?![\w-])"
)
_ASKED = re.compile(r"proc_(\d{2,10})_(?:task_\d{1,10}_)?status")
# docker ps, podman ps and nerdctl ps: CONTAINER ID ... STATUS PORTS NAMES; the name stands last
_PAUSED = re.compile(
    r"[0-9a-f]{12}\s.{0,600}\s(?:Up [^(\n]{1,40}\(Paused\)|Paused)\s(?:.{0,300}\s)?([\w.-]{2,120})\s{0,8}$"
)
_PROC = re.compile(r"/proc/(\d{2,10})/(?:task/\d{1,10}/)?status:State:\s{1,8}([Tt]) \(")


@dataclass(frozen=True, slots=True)
class Stopped:
    """`pid`: 0 where nothing tells it. `state`: T for stopped by a signal, t for held by a tracer, P for paused with
    its container."""

    pid: int
    state: str
    what: str


@dataclass(frozen=True, slots=True)
class StoppedProcesses:
    processes: tuple[Stopped, ...]


def _stopped(text: str) -> Iterator[Stopped]:
    for line in lines_of(text, 800):
        if held := _PAUSED.match(line):
            yield Stopped(0, "P", f"container {clean(held[1])}")
            continue
        if told := _PROC.match(line.strip()):
            yield Stopped(int(told[1]), told[2], "")
            continue
        if job := _JOB.match(line):
            yield Stopped(int(job[1]), "T", clean(job[2])[:40])
            continue
        if told := _BARE.match(line):
            yield Stopped(int(told[1] or 0), told[2], "")
            continue
        row = _ROW.match(line)
        what = _TRAINS.search(row[2]) if row else None
        if row is None or what is None or _LOOKS.search(row[2]):
            continue
        # The state stands before the program, whose arguments may be any letter, or behind a bare name.
        state = _STATE.search(f" {row[2][: what.start()]} ") or _STATE.fullmatch(f" {row[2][what.end() :].strip()} ", 1)
        if state:
            yield Stopped(int(row[1]), state[1], clean(what[1])[:40])


def fits(head: str, name: str) -> bool:
    return next(_stopped(head), None) is not None


def read(text: str) -> StoppedProcesses:
    found = {
        (one.pid, one.what if not one.pid else ""): one for _, one in zip(range(MOST * 8), _stopped(text), strict=False)
    }
    if not found:
        raise ParseError("no process of a job that is stopped")
    return StoppedProcesses(tuple(found.values())[:MOST])


def findings(facts: StoppedProcesses) -> Iterator[Finding]:
    for one in facts.processes[:8]:
        if one.state == "P":
            yield Finding("process.stopped", "bad", f"{one.what} is paused")
            continue
        word = "stopped" if one.state == "T" else "held by a tracer"
        yield Finding(
            "process.stopped", "bad", f"process {one.pid} {one.what or 'of a job'} is {word} (state {one.state})"
        )


def _named(facts: StoppedProcesses, name: str) -> StoppedProcesses:
    """With the pid of the file that was asked for, where what it printed tells none."""
    asked = _ASKED.search(name)
    if asked is None or len(facts.processes) != 1 or facts.processes[0].pid or facts.processes[0].state == "P":
        return facts
    return StoppedProcesses((replace(facts.processes[0], pid=int(asked[1])),))


TOOL = Tool("stopped processes", "process.stopped", fits, read, findings, host_in)
