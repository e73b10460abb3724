"""By the stacks alone: one rank is in another collective than all others.

A rank that is late in a smaller group has partners that wait there with it, so only one that is alone is odd. Where
there are recorders, they know better.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.stacks.waits import Wait
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.suspects import ranks_said, seen_twice, standing

CAUSE = "fw.collective_mismatch"
LEAST = 3  # ranks: of two nobody tells which is wrong


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    views = [view for view in evidence.job.ranks.values() if view.stack is not None and view.stack.threads]
    if len(views) < LEAST or evidence.stalls.all or evidence.stalls.moving:
        return
    places: dict[str, list[int]] = {}
    waits: dict[int, Wait] = {}
    for view in views:
        wait = view.waits
        if wait is None or wait.kind not in ("collective", "barrier"):
            return  # who is elsewhere may be late: that is told by another rule
        waits[view.rank] = wait
        places.setdefault(wait.op, []).append(view.rank)
    if len(places) != 2:
        return
    few, many = sorted(places.values(), key=len)
    if len(few) != 1 or len(many) < LEAST - 1:
        return
    (rank,) = few
    view = evidence.job.view(rank)
    sure = standing(evidence) or (seen_twice(view) and seen_twice(evidence.job.view(many[0])))
    others = f"{ranks_said(many)} are in {waits[many[0]].op}"
    at = waits[many[0]].at
    yield Hypothesis(
        CAUSE,
        view.subject,
        f"{view.headline} is in {waits[rank]}, {others}",
        (
            Reason(f"rank {rank}: main thread in {waits[rank]}", view.ref("rank.stack")),
            Reason(others + (f", at {at.short}" if at is not None else ""),
                evidence.job.view(many[0]).ref("rank.stack")),
        ),
        ("other_call_while_it_stands" if sure else "other_call_by_stack",),
        would_change=("flight recorders of all ranks, which tell what each has entered",),
        ranks=frozenset(waits),
        nodes=frozenset({view.node}),
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
