"""Ranks that are elsewhere while most others wait in a collective, by one look at all stacks or by two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from probes.catalog.stacks.facts import Frame, Thread
from probes.catalog.stacks.waits import Wait
from probes.diagnosis.core import Evidence, Reason
from probes.diagnosis.job import Job, RankView
from probes.diagnosis.suspects import FOR_OTHERS, TOGETHER, UNTOLD, WORKS, Suspect, ranks_said, seen_twice, standing


def by_stack(evidence: Evidence) -> Iterator[Suspect]:
    """Where most ranks are in a collective, those that are not. Weak: one look at a stack proves no standstill, and a
    rank that is elsewhere by recorder and stack is counted once."""
    job: Job = evidence.job
    waits = {rank: view.waits for rank, view in job.ranks.items() if view.stack is not None and view.stack.threads}
    within = {rank for rank, wait in waits.items() if wait is not None and wait.kind in TOGETHER}
    within = within or _at_one_line(job, waits)
    outside = [rank for rank in waits if rank not in within]
    proven = standing(evidence)
    sure = proven or all(_works_on(job.ranks[rank]) for rank in outside)
    enough = len(within) >= (1 if sure else 2) * len(outside) or _by_node(job, within, outside)
    if not outside or not enough:
        return
    if evidence.stalls.moving or evidence.stalls.culprits or evidence.stalls.cycle:
        return
    if any(stall.odd or stall.draw or stall.complete for stall in evidence.stalls.all):
        return
    if not proven and _began_between(job, within):
        return
    if not sure and not any((wait := waits[rank]) and wait.kind in FOR_OTHERS for rank in within):
        # A backward pass ends by itself: who is a line further in the program is no later than the others.
        outside = [rank for rank in outside if seen_twice(job.ranks[rank]) or not _in_program(waits[rank])]
    kinds = Counter(str(wait.kind) for rank, wait in waits.items() if rank in within and wait is not None)
    peers = Reason(
        f"{ranks_said(list(within))}: main thread in {kinds.most_common(1)[0][0]}",
        job.ranks[min(within)].ref("rank.stack"),
    )
    waiting = frozenset(within)
    for rank in outside:
        view, wait = job.ranks[rank], waits[rank]
        own = Reason(f"rank {rank}: main thread in {wait}", view.ref("rank.stack"))
        yield Suspect(
            view,
            "is not in the collective that the others are in",
            (peers, own),
            (_elsewhere(view, proven),),
            waiting=waiting,
        )


def _in_program(wait: Wait | None) -> bool:
    return wait is None or wait.kind in UNTOLD


def _works_on(view: RankView) -> bool:
    """Whether a rank was seen twice or more, each time in what takes minutes: it has not just come from the others."""
    stack = view.stack
    return (
        stack is not None
        and bool(stack.earlier)
        and view.waits is not None
        and view.waits.kind in WORKS
        and seen_twice(view)
    )


def _at_one_line(job: Job, waits: Mapping[int, Wait | None]) -> set[int]:
    """Most ranks at one line of the program, of which the tool shows no call below it, while each of the others is in
    something of another kind: they wait in what that line calls."""
    lines = Counter(wait.at for wait in waits.values() if wait is not None and wait.kind == "user code" and wait.at)
    line, count = next(iter(lines.most_common(1)), (None, 0))
    within = {rank for rank, wait in waits.items() if wait is not None and line is not None and wait.at == line}
    if any((stack := job.ranks[rank].stack) is None or not _is_innermost(stack.main, line) for rank in within):
        return set()  # a call of a library below it, and none that waits: they compute
    others = [wait for rank, wait in waits.items() if rank not in within]
    told = all(wait is not None and wait.kind not in UNTOLD for wait in others)
    return within if count > max(1, len(others)) and told else set()


def _is_innermost(thread: Thread | None, line: Frame | None) -> bool:
    return thread is not None and bool(thread.frames) and thread.frames[0] == line


def _began_between(job: Job, within: set[int]) -> bool:
    """Whether those that wait were looked at before, and none of them was in this call then: ranks that go on take
    turns in it, and one is always the first."""
    looked = [view for rank in within if (view := job.ranks[rank]).stack is not None and view.stack.earlier]
    return bool(looked) and not any(seen_twice(view) for view in looked)


def _by_node(job: Job, within: set[int], outside: list[int]) -> bool:
    """Whether the two sides are whole nodes: then it is no chance that half of the ranks are elsewhere."""
    here, there = ({job.ranks[rank].node for rank in some} for some in (within, outside))
    return len(within) >= len(outside) > 1 and len(there) == 1 and not here & there and "" not in here | there


def _elsewhere(view: RankView, proven: bool) -> str:
    if proven:
        return "rank_elsewhere_while_it_stands"
    return "rank_elsewhere_twice" if seen_twice(view) else "rank_elsewhere_by_stack"
