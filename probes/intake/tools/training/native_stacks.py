"""Stacks of native code: gdb (`thread apply all bt`, also of a core), pstack, gstack, eu-stack, coredumpctl info.

    Thread 12 (Thread 0x7f56 (LWP 1219) "NCCL Service 6"):     gdb, pstack
    TID 1219:                                                  eu-stack
    Stack trace of thread 1219:                                coredumpctl
    #0  0x00007f569c528b87 in accept4 (fd=61) at accept4.c:32

Source   manuals of gdb 12, elfutils 0.188, coredumpctl 252; names of threads: NCCL, proxy.cc
Shape    facts rank.native: threads, the innermost frame first; the signal that ended the process, 0 where it lives
Errors   ParseError where no thread has a frame
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

_GDB = re.compile(r'Thread \d{1,6} \((?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (\d{1,10})\)?(?: "([^"\n]{0,40})")?\)?')
_EU = re.compile(r'TID (\d{1,10})(?: "([^"\n]{0,40})")?:\s{0,4}$')
_CORE = re.compile(r"\s{0,20}Stack trace of thread (\d{1,10}):")
_FRAME = re.compile(
    r"\s{0,24}#(\d{1,3})\s{1,4}(?:0x[0-9a-f]{1,16}\s{1,3})?(?:in\s{1,3})?([A-Za-z_~][\w:~<>, ]{0,200}?|\?\?|n/a)"
    r"(?:\s{0,2}(?:\(|@|-|\+).{0,600}|\s{0,4})$"
)
_OBJECT = re.compile(r"(?:from |\()(/?[\w./+-]{0,200}?([\w+-]{1,60}\.so)[\w.]{0,20})")
_ENDED = re.compile(r"Program (?:terminated with|received) signal (SIG[A-Z]{2,6})|^\s{0,20}Signal: (\d{1,2}) \(", re.M)
_PID = re.compile(
    r"^\s{0,20}PID: (\d{1,10})|^PID (\d{1,10}) - |Attaching to (?:process |.{0,80}, process )(\d{1,10})"
    r"|\b(?:gdb|pstack|gstack|eu-stack)\b[^\n]{0,80}? (?:-p ?|--pid[= ])?(\d{2,10})\b",
    re.M,
)
_MAIN = re.compile(r"^Thread 1 \((?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (\d{1,10})\b", re.M)  # gdb's first is the process
SIGNALS = {"SIGSEGV": 11, "SIGABRT": 6, "SIGBUS": 7, "SIGILL": 4, "SIGFPE": 8, "SIGTRAP": 5}
MOST_THREADS, MOST_FRAMES = 4096, 64


@dataclass(frozen=True, slots=True)
class NativeThread:
    """`frames`: functions, with the library behind an @ where it is told: `ncclProxyService@libnccl.so`."""

    tid: int
    name: str
    frames: tuple[str, ...]

    def calls(self, *functions: str) -> str:
        """The innermost frame that begins with one of these, "" without."""
        return next((frame for frame in self.frames if frame.startswith(functions)), "")


@dataclass(frozen=True, slots=True)
class NativeStacks:
    """`signal` ended the process whose core this is, in the first of the threads."""

    threads: tuple[NativeThread, ...]
    pid: int = 0
    signal: int = 0


def _head(line: str) -> re.Match[str] | None:
    return _GDB.match(line) or _EU.match(line) or _CORE.match(line)


def fits(head: str, name: str) -> bool:
    if " NCCL INFO" in head or " NCCL WARN" in head or "[rank" in head:
        return False  # the log of a job, which may hold a stack too
    lines = [line for line in lines_of(head, 400) if line.strip()]
    framed = sum(bool(_FRAME.match(line) or _head(line)) for line in lines)
    return framed > 1 and framed * 3 > len(lines) and (any(_head(line) for line in lines) or bool(_ENDED.search(head)))


def read(text: str) -> NativeStacks:
    found: list[tuple[int, str, list[str]]] = []
    for line in lines_of(text, 1200):
        if head := _head(line):
            name = head[2] if head.re is not _CORE else ""
            found.append((int(head[1]), clean(name or ""), []))
        elif frame := _FRAME.match(line):
            if not found or (frame[1] == "0" and found[-1][2]):
                found.append((0, "", []))  # `bt` alone: of the thread that crashed
            if len(found[-1][2]) < MOST_FRAMES:
                of = _OBJECT.search(line)
                found[-1][2].append(clean(frame[2].strip()) + (f"@{clean(of[2])}" if of else ""))
    threads = tuple(NativeThread(tid, name, tuple(frames)) for tid, name, frames in found[:MOST_THREADS] if frames)
    if not threads:
        raise refuse("threads and their frames as gdb prints them", text)
    pid, ended = _PID.search(text[:65_536]), _ENDED.search(text[:262_144])
    number = next((int(part) for part in (pid.groups() if pid else ()) if part), 0)
    if not number and (main := _MAIN.search(text[:1_048_576])):
        number = int(main[1])
    signal = 0 if ended is None else int(ended[2]) if ended[2] else SIGNALS.get(ended[1], 0)
    return NativeStacks(threads, number, signal)


def quiet(facts: NativeStacks) -> tuple[Finding, ...]:
    """Where threads stand tells something only beside what others do."""
    return ()


TOOL = Tool("native stacks", "rank.native", fits, read, quiet, host_in)
