"""A rank met NaN and reacted alone: it leaves out what the others enter. NaN by itself blocks neither NCCL nor gloo."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted

CAUSE = "fw.nan_gradient"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    late = set(evidence.suspects) | {rank for stall in evidence.stalls.all for rank in stall.odd}
    told: set[int] = set()
    for event, log, seen in evidence.job.said("nan"):
        if event.rank is None or event.rank in told:
            continue
        told.add(event.rank)
        view = evidence.job.view(event.rank)
        behind = event.rank in late
        after = ", and then left out what the others wait in" if behind else ""
        yield Hypothesis(
            CAUSE,
            view.subject,
            f"{view.headline} met NaN or infinity{after}",
            (quoted(event, log, seen),),
            ("nan_then_behind",) if behind else ("nan_in_log",),
            would_change=("finite values before every reduction",),
            ranks=frozenset({event.rank}),
            nodes=frozenset({view.node}),
        )


RULE = Rule((CAUSE,), judge)
