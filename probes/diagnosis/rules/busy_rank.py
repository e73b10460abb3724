"""The rank that the others wait for compiles, or writes or reads a checkpoint: it is late, not hung."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule

KINDS = {
    "compile": ("fw.rank_busy", "in_compile", "compiles"),
    "checkpoint": ("fw.checkpoint_stall", "in_checkpoint", "is in a checkpoint"),
}


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for rank, suspect in evidence.suspects.items():
        view, waits = suspect.view, suspect.view.waits
        kind = waits.kind if waits is not None else ""
        if waits is None or kind not in KINDS:
            continue
        cause, signal, does = KINDS[kind]
        where = f" at {waits.at.short}" if waits.at is not None else ""
        yield Hypothesis(
            cause,
            view.subject,
            f"{view.headline} {does}{where}, and the others wait for it",
            (Reason(f"rank {rank}: main thread in {waits}", view.ref("rank.stack")),),
            (signal,),
            would_change=("a second look at which it is still at the same line",),
            ranks=frozenset({rank}),
            nodes=frozenset({view.node}),
        )


RULE = Rule(("fw.rank_busy", "fw.checkpoint_stall"), judge)
