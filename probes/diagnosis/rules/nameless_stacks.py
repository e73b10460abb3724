"""Stacks of which nothing tells the rank: where most processes wait for each other, the one that does not stands out.

Weak on purpose: nothing tells that all are of one job, and one look proves no standstill.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.stacks.facts import ProcessStack
from probes.catalog.stacks.waits import Wait, waits_in
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.suspects import FOR_OTHERS, standing

MISSING, BUSY, CHECKPOINT = "fw.rank_missing_collective", "fw.rank_busy", "fw.checkpoint_stall"
CAUSES = {"compile": BUSY, "preprocessing": BUSY, "generating": BUSY, "checkpoint": CHECKPOINT}
LEAST = 3  # processes; judgement: of two that differ nothing tells which is late
WAITS = FOR_OTHERS | {"backward"}
One = tuple[Seen, ProcessStack, Wait]


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    some = [one for one in _stacks(evidence) if one[2].kind != "unknown"]
    yield from _by_elimination(evidence, some)
    within = [one for one in some if one[2].kind in WAITS]
    outside = [one for one in some if one[2].kind not in WAITS]
    if len(some) < LEAST or not outside or len(within) < 2 * len(outside):
        return
    known = any(view.stack is not None for view in evidence.job.ranks.values())
    if known or evidence.suspects:
        return  # stacks of ranks tell more
    proven = standing(evidence)
    apart = len({one[2].kind for one in outside}) > 1 or not any(one[2].kind in FOR_OTHERS for one in within)
    if apart and not proven:
        return  # each elsewhere, or none in a call that only another ends: a step that goes on looks so
    for seen, stack, wait in outside if len({(one[0].node, one[1].pid) for one in some}) == len(some) else ():
        where = f" on {seen.node}" if seen.node else ""
        subject: dict[str, str | int] = {"node": seen.node} if seen.node else {}
        if stack.pid:
            subject["pid"] = stack.pid
        yield Hypothesis(
            CAUSES.get(wait.kind, MISSING),
            subject,
            f"A process{where} is in {wait}, while {len(within)} others wait in a collective",
            (
                Reason(f"process {stack.pid or ''}{where}: main thread in {wait}".replace("  ", " "), seen.ref),
                Reason(f"{len(within)} of {len(some)}: main thread in {within[0][2]}", within[0][0].ref),
            ),
            ("nameless_elsewhere_while_it_stands" if proven else "nameless_elsewhere",),
            would_change=("which rank each process is", "a second look at the same processes"),
            ranks=frozenset(evidence.job.ranks),
            nodes=frozenset({seen.node}),
        )


def _by_elimination(evidence: Evidence, some: list[One]) -> Iterator[Hypothesis]:
    """One rank is late, and nobody knows its stack; of all stacks one has no rank, and is in what takes minutes."""
    late = list(evidence.suspects.values())
    if len(late) != 1 or len(some) != 1 or late[0].view.stack is not None or some[0][2].kind not in CAUSES:
        return
    (seen, stack, wait), view = some[0], late[0].view
    yield Hypothesis(
        CAUSES[wait.kind],
        view.subject,
        f"{view.headline} is late, and the one process whose rank is not told is in {wait}",
        (
            Reason(f"process {stack.pid or ''}: main thread in {wait}".replace("  ", " "), seen.ref),
            *late[0].because[:1],
        ),
        ("late_by_elimination",),
        would_change=("the rank of that process",),
        ranks=frozenset({view.rank}),
        nodes=frozenset({view.node or seen.node}),
    )


def _stacks(evidence: Evidence) -> Iterator[One]:
    for seen in evidence.of("rank.stack"):
        for stack in seen.facts.processes:
            if stack.rank is None and not stack.worker and stack.threads:
                yield seen, stack, waits_in(stack)


RULE = Rule((MISSING, BUSY, CHECKPOINT), judge)
