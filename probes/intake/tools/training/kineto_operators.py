"""A trace of torch.profiler: what each operator took of CPU, device and memory, and how long collectives ran.

Source   see _kineto; names of arguments: torch/csrc/distributed/c10d/ParamCommsUtils.hpp and torch/csrc/profiler/util.h
Units    microseconds, bytes
Errors   ParseError where it holds no operator
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from probes.catalog.stacks.operator_facts import Operator, Operators, TracedCollective
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.training._kineto import Event, allocations, detailed, host_in_trace, is_trace, rank_in
from probes.intake.tools.training.kineto_calls import WORK

CALLED = ("cpu_op", "user_annotation")
MOST, MOST_COLLECTIVES = 40, 40
_STEP = re.compile(r"ProfilerStep#\d{1,9}")
_WORDS = {
    name: re.compile(rf'"{name}":\s{{0,4}}(?:"([^"\n]{{0,200}})"|(-?\d{{1,18}}))')
    for name in ("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Name",
                 "Process Group Description")
}  # fmt: skip


@dataclass(slots=True)
class _Sums:
    calls: int = 0
    own: float = 0.0
    whole: float = 0.0
    device: float = 0.0
    memory: int = 0


@dataclass(slots=True)
class _Open:
    """A call that others may lie inside of."""

    event: Event
    inside: float = 0.0


@dataclass(slots=True)
class _Book:
    sums: dict[str, _Sums] = field(default_factory=dict)
    by_id: dict[str, str] = field(default_factory=dict)  # External id -> the operator

    def of(self, name: str) -> _Sums:
        return self.sums.setdefault(name, _Sums())


def read(text: str) -> Operators:
    calls: dict[str, list[Event]] = {}
    work: list[Event] = []
    pid, first, last = None, float("inf"), 0.0
    for one in detailed(text):
        if one.kind in CALLED:
            one = replace(one, name="ProfilerStep*") if _STEP.fullmatch(one.name) else one
            calls.setdefault(one.thread, []).append(one)
            pid = pid if pid is not None else one.pid
        elif one.kind in WORK:
            work.append(one)
        else:
            continue
        first, last = min(first, one.at), max(last, one.at + one.took)
    if not calls:
        raise refuse("operators in a trace of torch.profiler", text)
    book = _Book()
    took: dict[str, list[tuple[float, int]]] = {}
    for at, thread, size in allocations(text):
        took.setdefault(thread, []).append((at, size))
    for thread, of_thread in calls.items():
        _nested(of_thread, sorted(took.get(thread, ())), book)
    for one in work:
        if name := book.by_id.get(one.id):
            book.of(name).device += one.took
    rows = sorted(book.sums.items(), key=lambda item: -(item[1].own + item[1].device))
    told = tuple(
        Operator(
            clean(name)[:120], sums.calls, round(sums.own, 3), round(sums.whole, 3),
            round(sums.device, 3) if work else None, sums.memory if took else None,
        )
        for name, sums in rows[:MOST]
    )  # fmt: skip
    return Operators(
        pid, rank_in(text), round(last - first, 3), told, max(0, len(rows) - MOST), tuple(_collectives(work))
    )


def _nested(events: list[Event], allocated: list[tuple[float, int]], book: _Book) -> None:
    """Calls of one thread lie inside each other or apart: what is inside is not the caller's own."""
    stack: list[_Open] = []
    moments = iter(allocated)
    moment = next(moments, None)

    def close(until: float) -> None:
        """Ends the calls that end before `until`, and gives each allocation to the innermost call that was open."""
        nonlocal moment
        while True:
            end = min(stack[-1].event.at + stack[-1].event.took, until) if stack else until
            while moment is not None and moment[0] < end:
                if stack:
                    book.of(stack[-1].event.name).memory += moment[1]
                moment = next(moments, None)
            if not stack or stack[-1].event.at + stack[-1].event.took > until:
                return
            done = stack.pop()
            book.of(done.event.name).own += max(done.event.took - done.inside, 0.0)
            if stack:
                stack[-1].inside += done.event.took

    for one in sorted(events, key=lambda event: (event.at, -event.took)):
        close(one.at)
        if not stack or stack[-1].event.name != one.name:  # one that calls itself is one call, as in torch's own table
            sums = book.of(one.name)
            sums.calls, sums.whole = sums.calls + 1, sums.whole + one.took
        if one.id:
            book.by_id[one.id] = one.name
        stack.append(_Open(one))
    close(float("inf"))


def _collectives(work: list[Event]) -> Iterator[TracedCollective]:
    """Kernels of NCCL to which torch wrote what they carry."""
    kinds: dict[tuple[str, str, int, int, int, str], list[float]] = {}
    for one in work:
        if not one.args:
            continue
        told = {name: pattern.search(one.args) for name, pattern in _WORDS.items()}
        words = {name: (found[1] or "") for name, found in told.items() if found and found[1] is not None}
        counts = {name: int(found[2]) for name, found in told.items() if found and found[2] is not None}
        group = words.get("Process Group Description") or words.get("Process Group Name", "")
        if not {"In msg nelems", "Out msg nelems", "Group size"} <= counts.keys() or "dtype" not in words:
            continue
        key = (group, words.get("Collective name", ""), counts["Group size"], counts["In msg nelems"],
               counts["Out msg nelems"], words["dtype"])  # fmt: skip
        kinds.setdefault(key, []).append(one.took)
    longest = sorted(kinds.items(), key=lambda item: -sum(item[1]))[:MOST_COLLECTIVES]
    for (group, op, members, given, got, dtype), times in longest:
        yield TracedCollective(
            clean(group)[:120], clean(op)[:60], members, given, got, clean(dtype)[:40], len(times),
            round(min(times), 3), round(statistics.median(times), 3),
        )  # fmt: skip


TOOL = Tool(
    "operators of a trace", "rank.operators", lambda head, name: is_trace(head), read, lambda facts: (), host_in_trace
)
