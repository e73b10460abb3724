"""Where in the program is each rank on this node, and each of its workers?

Source   py-spy dump --nonblocking --json (py-spy 0.4.3), on the node or sent along; torch's worker server where
         py-spy is denied; wchan and stack of proc_pid_wchan(5), proc_pid_stack(5). Also py-spy's own text and JSON, and
         faulthandler's text
Units    none
Shape    Stacks: processes with threads and frames, and why others have none; `waits_in` judges one process
Errors   ParseError when a part is not what the collector writes, naming the process
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from probes.catalog._collected import as_object, whole, whole_or_none, word
from probes.catalog.ranks import reach
from probes.catalog.stacks import stack_collect
from probes.catalog.stacks.facts import Frame, ProcessStack, Stacks, Thread
from probes.catalog.stacks.text import faulthandler, stacks_of
from probes.catalog.stacks.waits import Kind, Wait, waits_in
from probes.core import Finding, ParseError, Probe, sections

__all__ = ["PROBE", "Frame", "Kind", "ProcessStack", "Stacks", "Thread", "Wait", "findings", "parse", "waits_in"]

MOST = 4096  # rows of one list


def _collect() -> Mapping[str, str]:
    return stack_collect.collect()


def parse(text: str) -> Stacks:
    """Parts of the collector, or a dump of py-spy or faulthandler (whose rank is then not known)."""
    if not text.startswith("==> "):
        return Stacks(stacks_of(text), 0, "")
    head: dict[str, Any] = {}
    processes = []
    for name, part in sections(text).items():
        if name == "golden15/tool":
            head = as_object(part, name)
        elif name.startswith("golden15/stack "):
            processes.append(_process(as_object(part, name), name))
    if not head:
        raise ParseError("expected the part golden15/tool, which the collector writes first")
    processes.sort(key=lambda one: (one.rank is None, one.rank, one.worker, one.pid))
    return Stacks(tuple(processes), whole(head, "left_out", "golden15/tool"), word(head, "tool", "golden15/tool", 300))


def _rows(row: dict[str, Any], key: str, what: str) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list) or len(value) > MOST:
        raise ParseError(f"{what}: expected a list as {key}, found {str(value)[:60]!r}")
    return value


def _process(row: dict[str, Any], what: str) -> ProcessStack:
    threads = tuple(_thread(one, what) for one in _rows(row, "threads", what))
    if row.get("text"):
        threads = faulthandler(word(row, "text", what, 1_048_576).replace("\u240a", "\n")).threads
    return ProcessStack(
        pid=whole(row, "pid", what),
        rank=whole_or_none(row, "rank", what),
        worker=row.get("worker") is True,
        comm=word(row, "comm", what, 64),
        how=word(row, "how", what, 20),
        why=word(row, "why", what, 500),
        state=word(row, "state", what, 2),
        wchan=word(row, "wchan", what, 128),
        kernel=tuple(word({"k": line}, "k", what, 100) for line in _rows(row, "kernel", what)),
        threads=threads,
    )


def _thread(row: Any, what: str) -> Thread:
    if not isinstance(row, dict):
        raise ParseError(f"{what}: expected a thread, found {str(row)[:60]!r}")
    return Thread(
        tid=whole_or_none(row, "tid", what),
        thread_id=whole_or_none(row, "thread_id", what),
        name=word(row, "name", what, 64) if row.get("name") else "",
        active=row["active"] if isinstance(row.get("active"), bool) else None,
        gil=row["gil"] if isinstance(row.get("gil"), bool) else None,
        state=word(row, "state", what, 2),
        wchan=word(row, "wchan", what, 128),
        frames=tuple(_frame(frame, what) for frame in _rows(row, "frames", what)),
    )


def _frame(row: Any, what: str) -> Frame:
    if not isinstance(row, list) or len(row) != 3:
        raise ParseError(f"{what}: expected a frame of 3 fields, found {str(row)[:60]!r}")
    named = dict(zip(("function", "file", "line"), row, strict=True))
    return Frame(word(named, "function", what), word(named, "file", what, 300), whole_or_none(named, "line", what))


def findings(facts: Stacks) -> Iterator[Finding]:
    """Where the ranks are, those in one place told once, and of which nothing is known."""
    places: dict[tuple[bool, str], list[ProcessStack]] = {}
    unknown: dict[str, list[ProcessStack]] = {}
    for process in facts.processes:
        wait = waits_in(process)
        if process.threads or wait.kind == "stopped":
            place = str(wait) if wait.kind == "stopped" else f"in {wait}"
            places.setdefault((process.worker, place), []).append(process)
        if not process.threads:
            unknown.setdefault(process.why, []).append(process)
    for (worker, place), some in places.items():
        if not worker or not place.startswith("in loader idle"):
            yield Finding("rank.at", "info", f"{_who(some)} {place}", _subject(some))
    for why, some in unknown.items():
        yield Finding("rank.no_stack", "warn", f"{_who(some)} without a stack: {why}", _subject(some))
    if facts.left_out:
        yield Finding("rank.too_many", "warn", f"{facts.left_out} processes were not asked: there are too many")


def _who(some: list[ProcessStack]) -> str:
    numbers = list(dict.fromkeys(str(one.rank) for one in some if one.rank is not None))
    shown = ", ".join(numbers[:16]) + (", ..." if len(numbers) > 16 else "")
    ranks = f"rank{'s' if len(numbers) > 1 else ''} {shown}" if numbers else f"process {some[0].pid}"
    if some[0].worker:
        return f"{len(some)} worker{'s' if len(some) > 1 else ''} of {ranks} {'are' if len(some) > 1 else 'is'}"
    return f"{ranks} {'are' if len(numbers) > 1 else 'is'}"


def _subject(some: list[ProcessStack]) -> dict[str, str | int]:
    if len(some) == 1 and some[0].pid is not None:
        return {"pid": some[0].pid} if some[0].rank is None else {"rank": some[0].rank, "pid": some[0].pid}
    return {"rank": ", ".join(dict.fromkeys(str(one.rank) for one in some if one.rank is not None))[:100]}


PROBE = Probe(
    "rank.stack",
    "Where in the program is each rank, and each of its workers?",
    parse,
    findings,
    collect=_collect,
    by_hand="py-spy dump --nonblocking --pid PID",
    timeout_s=16.0,
    max_bytes=3_145_728,
    needs="root, CAP_SYS_PTRACE, or the login of who trains with ptrace_scope 0 or by sudo; py-spy, which can be sent",
    brings=(reach, stack_collect),
    attachments=("py-spy",),
    touches="process",
    cost="41 ms",
)
