"""Reads what prints Python stacks: py-spy as text and as JSON, and faulthandler.

Source   py-spy 0.4.3 (`dump`, `dump --json`, also with --native); Python's faulthandler, which torch's worker server
         uses for dump_traceback: "most recent call first", at most 100 frames, the current thread first, the main last
Errors   ParseError when the text is none of them
"""

from __future__ import annotations

import json
import re
from typing import Any

from probes.catalog.stacks.facts import Frame, ProcessStack, Thread
from probes.catalog.stacks.native import is_native, native_stacks
from probes.core import ParseError, clean, lines_of

MOST_THREADS, MOST_FRAMES = 256, 200
_PROCESS = re.compile(r"Process (\d{1,10}): ")
_ASKED = re.compile(
    r" --?(?:global[-_])?rank[= ](\d{1,6})(?= |$)"
)  # of its command line; --local_rank is another number
# `### 11:02 rank1 (pid 88)`, `rank 3 on n04:`, `== RANK=12 ==`: a line of somebody's own above a dump, no sentence.
_HEADING = re.compile(
    r"(?i)(?=[#=*>$\[(-]|(?:global )?rank|.{1,60}:$)(?!.{0,80}\b(?:wait|other|for rank|than|behind|before|after))"
    r".{0,60}?(?<!local[ _-])(?<!node[ _-])(?<!group[ _-])\brank[ _:=#]{0,2}(\d{1,6})\b(?!.{0,80}\brank).{0,80}$"
)
_SPY_THREAD = re.compile(r'Thread (0[xX][0-9a-fA-F]{1,16}|\d{1,20}) \(([a-z+]{1,20})\)(?:: "(.{0,200})")?')
SPY_MAIN = re.compile(r'^Thread (?:0[xX][0-9a-fA-F]{1,16}|\d{1,20}) \([a-z+]{1,20}\): "MainThread"$', re.M)
FAULT_THREAD = re.compile(
    r"(?:Current thread|Thread) 0x([0-9a-fA-F]{1,16}) (?:\[(.{0,64})\] )?\(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'  File "(.{1,1000})", line (\d{1,9}|\?{3}) in (.{1,400})')


def stacks_of(text: str) -> tuple[ProcessStack, ...]:
    """The processes in a py-spy dump (text or JSON) or a faulthandler text. Raises ParseError."""
    start = text.lstrip()[:1]
    if is_native(text[:262_144]):
        return native_stacks(text)
    if start in ("[", "{"):
        return (py_spy_json(text),)
    if _PROCESS.match(text.lstrip()) or "\nProcess " in text or SPY_MAIN.search(text):
        return py_spy_text(text)
    if "(most recent call first):" in text:
        return (faulthandler(text),)
    raise ParseError(f"expected a py-spy dump or faulthandler's text, found {clean(text)[:80]!r}")


def _process(pid: int | None, how: str, threads: list[Thread], why: str = "", rank: int | None = None) -> ProcessStack:
    return ProcessStack(pid, rank, False, "", how, why, "", "", (), tuple(threads[:MOST_THREADS]))


# py-spy ---------------------------------------------------------------------------------------------------------


def py_spy_text(text: str) -> tuple[ProcessStack, ...]:
    """`py-spy dump`, one or several after each other. Raises ParseError."""
    found: list[tuple[int, list[tuple[re.Match[str], list[Frame]]], list[str]]] = []
    ranks: dict[int, int] = {}
    headed: int | None = None  # the rank that the line above tells
    for line in lines_of(text):
        if "ank" in line[:80].lower() and (heading := _HEADING.match(line.rstrip())):
            headed = int(heading[1])
            continue
        begin, thread = _PROCESS.match(line), _SPY_THREAD.fullmatch(line.rstrip())
        if thread and _begins(thread, found[-1][1] if found else None):
            number = int(thread[1]) if thread[1].isdecimal() and int(thread[1]) < 2**31 else 0
            found.append((number, [], []))
        if begin:
            found.append((int(begin.group(1)), [], []))
            if asked := _ASKED.search(line[:4000].rstrip()):
                ranks[len(found) - 1] = int(asked[1])
            elif headed is not None:
                ranks[len(found) - 1] = headed
            headed = None
        elif found and thread:
            found[-1][1].append((thread, []))
        elif found and line.startswith("    ") and not line.startswith("     ") and found[-1][1]:
            frames = found[-1][1][-1][1]
            if len(frames) < MOST_FRAMES and (frame := _spy_frame(line.strip())):
                frames.append(frame)
        elif found and line.startswith(("Error:", "#stderr: Error:", "    0: ", "    1: ")):
            found[-1][2].append(line.strip().removeprefix("#stderr: "))
    if not found:
        raise ParseError("expected a line such as 'Process 16061: python train.py'")
    processes = []
    for at, (pid, threads, errors) in enumerate(found):
        why = "" if threads else clean("; ".join(errors))[:300] or "py-spy printed no thread"
        processes.append(
            _process(
                pid or None, "py-spy", [_spy_thread(head, frames, pid) for head, frames in threads], why, ranks.get(at)
            )
        )
    return tuple(processes)


def _begins(thread: re.Match[str], before: list[tuple[re.Match[str], list[Frame]]] | None) -> bool:
    """Whether a main thread is of another look, of which the first two lines were left out."""
    if thread[3] != "MainThread":
        return False
    return before is None or any(head[3] == "MainThread" for head, _ in before)


def _spy_thread(head: re.Match[str], frames: list[Frame], pid: int) -> Thread:
    number, status, name = head.groups()
    tid = int(number) if number.isdecimal() and int(number) < 2**31 else None
    words = status.split("+")
    name = clean(name or "")[:64] or ("MainThread" if tid == pid else "")
    return Thread(
        tid, None if tid else int(number, 0), name, "idle" not in words, "gil" in words, "", "", tuple(frames)
    )


def _spy_frame(text: str) -> Frame | None:
    """`function (file.py:12)`; in native code `function (library.so)`. Arguments of --locals are no frames."""
    function, found, place = text.rpartition(" (")
    if not found or not place.endswith(")"):
        return None
    file, colon, line = place[:-1].rpartition(":")
    known = bool(colon) and line.isdecimal() and len(line) < 10
    return _frame(function, file if known else place[:-1], int(line) if known else None)


def _frame(function: str, file: str, line: int | None) -> Frame:
    return Frame(clean(function)[:200], clean(file)[:300], line)


def py_spy_json(text: str) -> ProcessStack:
    """`py-spy dump --json`: a list of threads of one process. Raises ParseError."""
    body = text.strip()
    try:
        threads, _ = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"expected the JSON of py-spy dump: {error}") from None
    if not isinstance(threads, list) or not all(isinstance(one, dict) and "frames" in one for one in threads):
        raise ParseError("expected a list of threads with frames, as py-spy dump --json prints")
    pid = next((number for one in threads if (number := _number(one.get("pid")))), None)
    return _process(pid, "py-spy", [_json_thread(one, pid) for one in threads[:MOST_THREADS]])


def _json_thread(one: dict[str, Any], pid: int | None) -> Thread:
    frames = one["frames"] if isinstance(one["frames"], list) else []
    tid = _number(one.get("os_thread_id"))
    return Thread(
        tid=tid,
        thread_id=_number(one.get("thread_id")),
        name=clean(str(one.get("thread_name") or ""))[:64] or ("MainThread" if tid and tid == pid else ""),
        active=one.get("active") is True,
        gil=one.get("owns_gil") is True,
        state="",
        wchan="",
        frames=tuple(
            _frame(str(frame.get("name")), str(frame.get("filename")), _number(frame.get("line")))
            for frame in frames[:MOST_FRAMES]
            if isinstance(frame, dict)
        ),
    )


def _number(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 2**63 else None


# faulthandler ---------------------------------------------------------------------------------------------------


def faulthandler(text: str) -> ProcessStack:
    """Python's own traceback of all threads, wherever it begins in a log. It names no process. Raises ParseError."""
    threads: list[tuple[re.Match[str], list[Frame]]] = []
    inside = False
    for line in lines_of(text):
        head, frame = FAULT_THREAD.search(line), _FAULT_FRAME.search(line)
        if head:
            threads.append((head, []))
            inside = True
        elif inside and frame:
            file, number, function = frame.groups()
            if len(threads[-1][1]) < MOST_FRAMES:
                threads[-1][1].append(_frame(function.rstrip(), file, int(number) if number.isdecimal() else None))
        elif line.strip() and "<no Python frame>" not in line and line.strip() != "...":
            inside = False
    if not threads:
        raise ParseError("expected lines such as 'Thread 0x00007f28d71bcb80 (most recent call first):'")
    last = len(threads) - 1
    return _process(
        None,
        "faulthandler",
        [
            Thread(None, int(head.group(1), 16), clean(head.group(2) or "") or ("MainThread" if at == last else ""),
                None, None, "", "", tuple(frames))
            for at, (head, frames) in enumerate(threads)
        ],
    )  # fmt: skip
