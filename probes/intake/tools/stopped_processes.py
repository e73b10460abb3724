"""Processes of a job that are stopped or held by a tracer, by rows of ps and top or by lines of /proc/PID/status.

    30113 30090 Tl   do_signal_stop   61.2 02:11:20 python3 train.py          ps, of any columns
    70113 mlops 20 0 101.2g 11.1g 1.2g T 0.0 0.6 611:00.90 python             top
    /proc/5012/status:State: T (stopped)                                      grep State /proc/*/status

Source   ps(1), PROCESS STATE CODES; top(1), S; proc_pid_status(5)
Shape    facts process.stopped
Errors   ParseError when no such process is stopped
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from probes.core import Finding, ParseError, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in

MOST = 64
_ROW = re.compile(r"\s{0,12}(?:[a-z_][\w.+-]{0,31} {1,20})?(\d{2,8}) ([^\n]{0,600})")
_STATE = re.compile(r"(?<=\s)([Tt])[sl<N+]{0,4}(?=\s)")
_TRAINS = re.compile(r"(?<![\w-])(python[\d.]{0,6}|pt_main_thread|torchrun|deepspeed|train[\w.]{0,40})(?![\w-])")
# Who only looks at a program: an editor that somebody left with Ctrl-Z is stopped too.
_LOOKS = re.compile(r"(?<![\w-])(?:grep|vim?|nvim|view|less|more|nano|emacs|man|tail|watch|sudo -e|diff|git)(?=\s)")
_PROC = re.compile(r"/proc/(\d{2,10})/(?:task/\d{1,10}/)?status:State:\s{1,8}([Tt]) \(")


@dataclass(frozen=True, slots=True)
class Stopped:
    """`state`: T for stopped by a signal, t for held by a tracer."""

    pid: int
    state: str
    what: str


@dataclass(frozen=True, slots=True)
class StoppedProcesses:
    processes: tuple[Stopped, ...]


def _stopped(text: str) -> Iterator[Stopped]:
    for line in lines_of(text, 800):
        if told := _PROC.match(line.strip()):
            yield Stopped(int(told[1]), told[2], "")
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
    found = {one.pid: one for _, one in zip(range(MOST * 8), _stopped(text), strict=False)}
    if not found:
        raise ParseError("no process of a job that is stopped")
    return StoppedProcesses(tuple(found.values())[:MOST])


def findings(facts: StoppedProcesses) -> Iterator[Finding]:
    for one in facts.processes[:8]:
        word = "stopped" if one.state == "T" else "held by a tracer"
        yield Finding(
            "process.stopped", "bad", f"process {one.pid} {one.what or 'of a job'} is {word} (state {one.state})"
        )


TOOL = Tool("stopped processes", "process.stopped", fits, read, findings, host_in)
