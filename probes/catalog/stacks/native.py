"""Reads stacks of debuggers: gdb (`bt`, `thread apply all bt`, with py-bt), pstack, eu-stack, and pystack.

    #6  0x00007f39c8814b1e in filter_tokens (ids=0x7f38, n=8388608) at filter.c:41
    Traceback for thread 90266 (python) [Has the GIL] (most recent call last):
        (Python) File "/srv/train.py", line 28, in step

A frame of Python's evaluation gets the name and line that py-bt tells for it, or gdb's printer of frames beside it
("f=Frame 0x7f, for file /srv/train.py, line 28, in step ()"); without them it is known as Python only.
Source   gdb manual (Backtrace), Python's Tools/gdb/libpython.py, eu-stack(1), pystack 1.4 (traceback_formatter)
Errors   ParseError when the text is none of them
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from probes.catalog.stacks.facts import Frame, ProcessStack, Thread
from probes.core import ParseError, clean, lines_of

MOST_THREADS, MOST_FRAMES, MOST_LOOKS = 256, 200, 16
_FRAME = re.compile(
    r"#(\d{1,4})\s{1,4}(?:0x[0-9a-f]{1,16} (?:in )?)?([^\s(][^\n]{0,400}?)(?: \([^\n]{0,1200}?\))?"
    r"(?: at ([^\s:]{1,300}):(\d{1,8})| from (\S{1,300})| - \d{1,4} (\S{1,300}))?\s{0,4}$"
)
_THREAD = re.compile(
    r"Thread (\d{1,6}) \((?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (\d{1,10})\)?\)?(?: \"([^\"\n]{0,64})\")?"
)
_CURRENT = re.compile(r"\*\s{1,4}\d{1,6}\s{1,4}(?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (\d{1,10})\)?")
_TID = re.compile(r"TID (\d{1,10}):")
_PID = re.compile(
    r"(?:PID |[Aa]ttaching to (?:process|pid) |\(process |\b(?:gdb|eu-stack) (?:[^\n|;]{0,80} )?(?:-p|--pid)[ =]?"
    r"|\b[pg]stack )(\d{1,10})"
)
# `bt` of one thread has no line that names it: the command that stands above, or that a debugger numbers frames and
# tells their addresses and arguments.
_ASKED = re.compile(r"\b(?:gdb|eu-stack) [^\n]{0,80}(?:-p|--pid)[ =]?\d|\b[pg]stack \d|\(gdb\)")
_OF_GDB = re.compile(r"#\d{1,4} {1,4}0x[0-9a-f]{6,16} in [^\n]{1,400}\([^\n]{0,2000}\) (?:at|from) \S")
_PYTHON = re.compile(r'\s{1,8}File "([^"\n]{1,500})", line (\d{1,8}), in ([^\n]{1,200})')
_PYSTACK = re.compile(
    r"Traceback for thread (\d{1,10})(?: \([^)\n]{0,64}\))? \[([^\]\n]{0,80})\] \(most recent call last\):"
)
_PYSTACK_FRAME = re.compile(
    r'\s{1,8}\((Python|C)\) File "([^"\n]{0,500})", line (\d{1,8}), '
    r"in ([^\n]{1,400}?)(?: \((/[^)\n]{1,500})\))?\s{0,4}$"
)
_TALLY = re.compile(r"(\d{1,3}) ?(?:x|times) in ([A-Za-z_][\w.:]{2,80})")
# A crash prints its stack too: that belongs to a log, or to the tool native_stacks, which tells more of it.
_CRASH = re.compile(r"received signal|Core was generated|core dumped|Fatal Python error|Caught signal|SIGSEGV|SIGABRT")
_INLINE = re.compile(r"=Frame 0x[0-9a-f]{1,16}, for file ([^\n,]{1,300}), line (\d{1,8}), in ([^\s(]{1,200})")
_EVALUATES = re.compile(r"_?PyEval_EvalFrame\w{0,10}")


@dataclass(slots=True)
class _One:
    tid: int | None
    name: str = ""
    first: bool = False
    frames: list[Frame] = field(default_factory=list)
    python: list[Frame] = field(default_factory=list)


def is_native(head: str) -> bool:
    """Whether a debugger printed it. A back-trace that a program logs of itself is none: that has no thread."""
    if _CRASH.search(head):
        return False
    if _PYSTACK.search(head):
        return True
    lines = [line for line in lines_of(head, 2000) if line.strip()][:400]
    frames = sum(bool(_FRAME.match(line)) for line in lines)
    threads = any(
        _THREAD.match(line) or _CURRENT.match(line) or _TID.match(line) or _ASKED.search(line) for line in lines
    )
    threads = threads or sum(bool(_OF_GDB.match(line)) for line in lines) >= 0.5 * len(lines)
    return frames >= 3 and 4 * frames >= len(lines) and threads


def native_stacks(text: str) -> tuple[ProcessStack, ...]:
    """One process for each look, of the same number: several are looks at one. Raises ParseError."""
    looks = list(_pystack(text) if _PYSTACK.search(text) else _gdb(text))[:MOST_LOOKS]
    if not looks:
        raise ParseError("expected frames as gdb, pstack, eu-stack or pystack print them")
    found = _PID.search(text[:400_000])
    pid = int(found[1]) if found else None
    stacks = [_process(pid, look) for look in looks]
    if len(stacks) == 1 and (more := _told_again(text, stacks[0])):
        stacks *= 1 + min(more, MOST_LOOKS)
    return tuple(stacks)


def _told_again(text: str, stack: ProcessStack) -> int:
    """How many more looks somebody noted beside one that they kept: `5x in keep_token`."""
    names = {frame.function for thread in stack.threads for frame in thread.frames}
    return max((int(many) - 1 for many, name in _TALLY.findall(text[:400_000]) if name in names), default=0)


def _process(pid: int | None, some: list[_One]) -> ProcessStack:
    known = [one for one in some if one.frames]
    mains = [one for one in known if one.frames[-1].function == "<module>"] or [one for one in known if one.first]
    if pid is None and known:
        tids = [one.tid for one in (mains or known) if one.tid]
        pid = min(tids, default=None)
    threads = [
        Thread(
            one.tid, None, "MainThread" if one in mains[:1] or (pid and one.tid == pid) else one.name, None,
            True if one.name == "Has the GIL" else None, "", "", tuple(one.frames[:MOST_FRAMES]),
        )
        for one in known[:MOST_THREADS]
    ]  # fmt: skip
    return ProcessStack(pid, None, False, "", "debugger", "", "", "", (), tuple(threads))


# gdb, pstack, eu-stack ------------------------------------------------------------------------------------------------


def _gdb(text: str) -> Iterator[list[_One]]:
    """Threads, look by look: a thread that is there already begins a new one."""
    look: list[_One] = []
    current: int | None = None
    for line in lines_of(text, 4000):
        head = _THREAD.match(line)
        if mark := _CURRENT.match(line):
            current = int(mark[1])
        elif head or (tid := _TID.match(line)):
            number = int(head[2]) if head else int(tid[1])  # type: ignore[index]
            if any(one.tid == number for one in look):
                yield [_named(one) for one in look]
                look = []
            look.append(_One(number, clean(head[3] or "") if head else "", bool(head) and head[1] == "1"))  # type: ignore[index]
        elif frame := _FRAME.match(line):
            if frame[1] == "0" and (not look or look[-1].frames):
                if look and look[-1].tid == current:  # the same thread again
                    yield [_named(one) for one in look]
                    look = []
                look.append(_One(current, "", True))
            if look and len(look[-1].frames) < MOST_FRAMES:
                inline = _INLINE.search(line) if _EVALUATES.match(frame[2]) else None
                look[-1].frames.append(
                    Frame(clean(inline[3]), clean(inline[1]), int(inline[2])) if inline else _frame(frame)
                )
        elif (row := _PYTHON.match(line)) and look and len(look[-1].python) < MOST_FRAMES:
            look[-1].python.append(Frame(clean(row[3]), clean(row[1]), int(row[2])))
    if look:
        yield [_named(one) for one in look]


def _frame(found: re.Match[str]) -> Frame:
    function, place = found[2].strip(), found[5] or found[6]
    if place is None and found[3]:
        place = found[3]
    return Frame(clean(function)[:200], clean(place or "")[:300], None)


def _named(one: _One) -> _One:
    """Frames of Python's evaluation by the names that py-bt tells, the innermost first. Newer Pythons evaluate several
    calls in one frame: where the numbers differ, the first and the last are known."""
    places = [at for at, frame in enumerate(one.frames) if _EVALUATES.fullmatch(frame.function)]
    for number, at in enumerate(places):
        python = one.python
        if python and len(python) == len(places):
            one.frames[at] = python[number]
        elif python:
            one.frames[at] = python[0] if number == 0 else python[-1]
        else:
            one.frames[at] = Frame("py::a function", "", None)
    if one.python and not places:
        one.frames += one.python
    return one


# pystack ----------------------------------------------------------------------------------------------------------


def _pystack(text: str) -> Iterator[list[_One]]:
    look: list[_One] = []
    for line in lines_of(text, 4000):
        if head := _PYSTACK.match(line):
            if any(one.tid == int(head[1]) for one in look):
                yield look
                look = []
            look.append(_One(int(head[1]), head[2].partition(",")[0].strip()))
        elif look and (row := _PYSTACK_FRAME.match(line)) and len(look[-1].frames) < MOST_FRAMES:
            native = row[1] == "C"
            place = (row[5] or row[2]) if native else row[2]
            frame = Frame(clean(row[4])[:200], clean(place)[:300], None if native else int(row[3]))
            look[-1].frames.insert(0, frame)  # the most recent comes last
    if look:
        yield look
