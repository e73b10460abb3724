"""Reads stacks that gdb, pstack and pystack print, and gdb's own view of Python (py-bt).

    Thread 1 (Thread 0x7f.. (LWP 4101) "python"):        Traceback for thread 4101 (python) [] (most recent call last):
    #0  0x00007f.. in poll () from /lib/libc.so.6            (Python) File "/w/train.py", line 44, in step
    #1  0x00007f.. in c10d::Work::wait (this=0x1) at a.cpp:9     (C) File "w.cpp", line 9, in c10d::Work::wait (a.so)

Source   gdb's manual (Backtraces), pstack(1), pystack 1.4 (traceback_formatter.py)
Errors   ParseError when the text is none of them
"""

from __future__ import annotations

import re

from probes.catalog._stack_facts import Frame, ProcessStack, Thread
from probes.core import ParseError, clean, lines_of

MOST_THREADS, MOST_FRAMES = 256, 200
_THREAD = re.compile(
    r'Thread \d{1,5} \((?:Thread 0x([0-9a-f]{1,16}) )?\(?LWP (\d{1,10})\)?(?: "(.{0,60}?)")?\)|^TID (\d{1,10}):'
)
_FRAME = re.compile(r"#(\d{1,4}) {1,3}(?:0x[0-9a-f]{4,16} (?:in )?)?([^\s(][^\n]{0,400})$")
_AT = re.compile(r" at ([^\s()]{1,300}):(\d{1,9})$")
_FROM = re.compile(r" from (\S{1,300})$")
_PY_FRAME = re.compile(r'\s{0,4}File "([^"\n]{1,400})", line (\d{1,9}), in (\S{1,200})')
_ATTACHED = re.compile(
    r"(?:[Aa]ttaching to (?:program: \S{1,200}, )?process|gdb .{0,60}?-p|pstack|eu-stack -p) (\d{1,10})\b"
)
_PYSTACK = re.compile(
    r"Traceback for thread (\d{1,10})(?: \((.{1,40}?)\))? (?:\[(.{0,80}?)\] )?\(most recent call last\):"
)
_PYSTACK_FRAME = re.compile(r'\s{2,8}\((Python|C)\) File "([^"\n]{1,400})", line (\d{1,9}), in ([^\n]{1,300})')
# A crash prints its stack too: that belongs to a log, which tells more of it.
_CRASH = re.compile(r"received signal|Core was generated|core dumped|Fatal Python error|Caught signal|SIGSEGV|SIGABRT")


def is_native(text: str) -> bool:
    """Whether this is what a debugger printed of a process that lives."""
    if _CRASH.search(text):
        return False
    lines = [line for line in lines_of(text, 600) if line.strip()][:2000]
    if any(_PYSTACK.match(line) for line in lines):
        return any(_PYSTACK_FRAME.match(line) for line in lines)
    frames = sum(bool(_FRAME.match(line)) and (" in " in line or "0x" not in line) for line in lines)
    return frames >= 2 and any(line.startswith("#0 ") for line in lines) and frames * 3 >= len(lines)


def native(text: str) -> ProcessStack:
    """The threads of one process. Raises ParseError."""
    if _PYSTACK.search(text[:65_536]):
        return _pystack(text)
    attached = _ATTACHED.search(text[:4096])
    found: list[tuple[int | None, int | None, str, list[Frame], list[Frame]]] = []
    for line in lines_of(text, 2_000):
        if thread := _THREAD.search(line):
            tid = int(thread[2] or thread[4])
            found.append((tid, int(thread[1], 16) if thread[1] else None, clean(thread[3] or ""), [], []))
        elif frame := _FRAME.match(line.rstrip()):
            if not found or (int(frame[1]) == 0 and found[-1][3]):
                found.append((None, None, "", [], []))
            if len(found[-1][3]) < MOST_FRAMES:
                found[-1][3].append(_frame(frame[2]))
        elif found and (python := _PY_FRAME.match(line)) and len(found[-1][4]) < MOST_FRAMES:
            found[-1][4].append(Frame(clean(python[3]), clean(python[1]), int(python[2])))  # py-bt
    if not found:
        raise ParseError("expected frames such as '#0  0x00007f... in poll () from /lib/libc.so.6'")
    # gdb prints the main thread last, as Thread 1: its LWP is the process, and the lowest.
    numbers = [tid for tid, *_ in found if tid is not None]
    pid = int(attached[1]) if attached else min(numbers, default=None)
    threads = [
        Thread(tid, number, "MainThread" if tid == pid or len(found) == 1 else name, None, None, "", "",
            (*frames, *python))
        for tid, number, name, frames, python in found[:MOST_THREADS]
    ]  # fmt: skip
    return ProcessStack(pid, None, False, "", "gdb", "", "", "", (), tuple(threads))


def _frame(text: str) -> Frame:
    at, library = _AT.search(text), _FROM.search(text)
    function = text[: (at or library).start()] if (at or library) else text  # type: ignore[union-attr]
    function = function.split(" (", 1)[0].strip() or function
    return Frame(clean(function)[:200], clean(at[1] if at else library[1] if library else "")[:300], None)


def _pystack(text: str) -> ProcessStack:
    found: list[tuple[int, str, list[Frame]]] = []
    for line in lines_of(text, 2_000):
        if head := _PYSTACK.match(line):
            found.append((int(head[1]), clean(head[3] or ""), []))
        elif found and (frame := _PYSTACK_FRAME.match(line)) and len(found[-1][2]) < MOST_FRAMES:
            function = frame[4].strip() if frame[1] == "Python" else frame[4].split(" (", 1)[0].strip()
            number = int(frame[3]) if frame[1] == "Python" else None
            found[-1][2].append(Frame(clean(function)[:200], clean(frame[2]), number))
    if not found:
        raise ParseError("expected lines such as 'Traceback for thread 4101 (python) [] (most recent call last):'")
    pid = min(tid for tid, _, _ in found)
    threads = tuple(
        Thread(tid, None, "MainThread" if tid == pid else "", None, "Has the GIL" in state, "", "", tuple(frames[::-1]))
        for tid, state, frames in found[:MOST_THREADS]
    )
    return ProcessStack(pid, None, False, "", "pystack", "", "", "", (), threads)
