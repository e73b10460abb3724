"""Who waits for whom, link by link: the ranks that wait, the rank that they wait for, the call it is in, its own line.

Source   recorders, stacks, process states: the same suspects from which the rules start
Shape    chains_of(evidence) -> one chain of links for each suspect that others wait for, or one for a circle
Errors   none: a link that nobody told says what would tell it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from probes.catalog.stacks.facts import Frame, ProcessStack
from probes.catalog.stacks.waits import of_program, waits_in
from probes.core import clean
from probes.diagnosis.core import Evidence
from probes.diagnosis.job import OF_WORKERS, RankView
from probes.diagnosis.stalls import Stall
from probes.diagnosis.suspects import Suspect, ranks_said

MOST, CALLERS = 3, 2  # chains; callers that are told of the program's own line
Kind = Literal["waits", "rank", "call", "line"]


@dataclass(frozen=True, slots=True)
class Link:
    """`says` is one sentence without its end; `reading` what it rests on, "" for none."""

    kind: Kind
    says: str
    reading: str = ""


Chain = tuple[Link, ...]


def chains_of(evidence: Evidence) -> tuple[Chain, ...]:
    """Those that most ranks wait for first."""
    stalls = evidence.stalls
    if stalls.cycle:
        return (tuple(_circle(evidence, stalls.crossed)),)
    if differing := [stall for stall in stalls.all if stall.odd]:
        return tuple(tuple(_odd(evidence, stall)) for stall in differing[:MOST])
    some: list[Suspect] = [one for one in evidence.suspects.values() if one.waiting or one.stalls]
    some.sort(key=lambda one: (-len(_waiting(one)), one.view.rank))
    return tuple(tuple(_links(evidence, one)) for one in some[:MOST])


def _waiting(one: Suspect) -> frozenset[int]:
    return (one.waiting or frozenset().union(*(stall.waiting for stall in one.stalls))) - {one.view.rank}


def _circle(evidence: Evidence, crossed: Sequence[Stall]) -> Iterator[Link]:
    for stall in crossed:
        missing = sorted({*stall.late, *stall.silent, *stall.queued, *stall.perhaps})
        first = evidence.job.view(next(iter(stall.waiting)))
        says = f"{_upper(ranks_said(list(stall.waiting)))} {_verb(stall.waiting)} in {stall.called}"
        yield Link("waits", f"{says} for {ranks_said(missing)}", first.ref("rank.flight_recorder"))
    yield Link("rank", "They wait for each other: nobody outside can end it")


def _odd(evidence: Evidence, stall: Stall) -> Iterator[Link]:
    """Ranks that run another collective where the others wait for them in theirs."""
    waiting = [rank for rank in stall.waiting if rank not in stall.odd]
    if waiting:
        ref = evidence.job.view(waiting[0]).ref("rank.flight_recorder")
        yield Link("waits", f"{_upper(ranks_said(waiting))} {_verb(waiting)} in {stall.called}", ref)
    for rank, ran in list(stall.odd.items())[:MOST]:
        view = evidence.job.view(rank)
        yield Link("rank", f"{view.headline} runs {ran} in its place", view.ref("rank.flight_recorder"))
        if (wait := view.waits) is not None and wait.at is not None and view.stack is not None:
            says = f"{view.headline}'s own line: {_with_callers(view.stack, wait.at)}"
            yield Link("line", says, view.ref("rank.stack"))


def _links(evidence: Evidence, one: Suspect) -> Iterator[Link]:
    waiting = _waiting(one)
    first = evidence.job.view(min(waiting)) if waiting else one.view
    if one.stalls:
        stall = one.stalls[0]
        long = f" for {stall.age_s:.0f} s" if stall.age_s is not None else ""
        where, ref = f"in {stall.called}{long}", first.ref("rank.flight_recorder")
    else:
        where, ref = _common(evidence, waiting), first.ref("rank.stack")
    yield Link("waits", f"{_upper(ranks_said(waiting))} {_verb(waiting)} {where}", ref)
    says = one.says.replace(one.stalls[0].called, "it") if one.stalls else one.says
    yield Link("rank", f"{one.view.headline} {says}", one.because[-1].reading if one.because else "")
    yield from _of_rank(one.view)


def _common(evidence: Evidence, waiting: frozenset[int]) -> str:
    views = (evidence.job.ranks[rank] for rank in waiting if rank in evidence.job.ranks)
    kinds = Counter(wait.op or str(wait.kind) for view in views if (wait := view.waits) is not None)
    return f"in {kinds.most_common(1)[0][0]}" if kinds else "for it"


def _of_rank(view: RankView) -> Iterator[Link]:
    """What the rank itself is in, from the outside to its own line."""
    process, stack = view.process, view.stack
    if process is not None and (view.stopped or process.state == "D"):
        what = "It is stopped" if view.stopped else "It sleeps in the kernel and cannot be stopped"
        in_kernel = f", in {process.wchan}" if process.wchan else ""
        traced = f", traced by {process.tracer or process.tracer_pid}" if process.tracer_pid else ""
        yield Link("call", f"{what} (state {process.state}){in_kernel}{traced}", view.ref("rank.process"))
    if stack is None or not stack.threads:
        if process is None or not view.stopped:
            yield Link("call", "No stack of it is known: py-spy dump --pid of its process would tell")
        return
    ref = view.ref("rank.stack")
    wait = view.waits
    holder = stack.holder
    if wait is not None and wait.kind not in ("stopped", "unknown"):
        call = f": {wait.frame.short}" if wait.frame is not None else ""
        named = wait.op if wait.op and wait.kind in ("collective", "p2p", "barrier") else str(wait.kind)
        yield Link("call", f"Its main thread is in {named}{call}", ref)
    if wait is not None and wait.at is not None:
        yield Link("line", f"{view.headline}'s own line: {_with_callers(stack, wait.at)}", ref)
    if holder is not None and holder is not stack.main and holder.frames:
        name = f" {holder.name}" if holder.name else ""
        yield Link("call", f"Its thread{name} holds the interpreter's lock: {holder.frames[0].short}", ref)
    if wait is not None and wait.kind in ("data loader", "loader idle"):
        yield from _workers(view.worker_stacks, view.refs.get(OF_WORKERS, ref))


def _workers(stacks: Sequence[ProcessStack], ref: str) -> Iterator[Link]:
    """What the workers of its loader do, the most frequent."""
    waits = [waits_in(one) for one in stacks if one.threads]
    doing = Counter(f"at {wait.at.short}" if wait.at is not None else f"in {wait}" for wait in waits)
    if doing:
        what, count = doing.most_common(1)[0]
        who = f"{count} of its {len(stacks)} loader workers" if len(stacks) > 1 else "Its loader worker"
        yield Link("call", f"{who} {'are' if count > 1 else 'is'} {what}", ref)


def _with_callers(stack: ProcessStack, at: Frame) -> str:
    frames = stack.main.frames if stack.main is not None else ()
    place = frames.index(at) if at in frames else len(frames)
    callers = [frame for frame in frames[place + 1 :] if of_program(frame)][:CALLERS]
    return ", called by ".join(frame.short for frame in (at, *callers))


def _verb(ranks: Sequence[int] | frozenset[int] | dict[int, Any]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def as_json(chains: Sequence[Chain]) -> list[list[dict[str, str]]]:
    """For the record and the page."""
    return [
        [{"kind": one.kind, "says": clean(one.says)[:600], "reading": clean(one.reading)[:400]} for one in chain]
        for chain in chains
    ]
