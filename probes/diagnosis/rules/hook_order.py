"""DDP's reducer got a gradient twice: a parameter is used in several re-entrant backward passes, or outside forward."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.logs.wrappers import BUCKET_VIEW
from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted

CAUSE = "fw.hook_order"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    said = list(evidence.job.said("hook_order"))
    if not said:
        return
    ranks = {one[0].rank for one in said if one[0].rank is not None}
    view = evidence.job.view(ranks.pop()) if len(ranks) == 1 else None
    views = any(one[0].name == BUCKET_VIEW for one in said)
    names = (one[0].name or str(one[0].more.get("parameters", "")) for one in said)
    which = next((f" {name}" for name in names if name not in ("", BUCKET_VIEW)), "")
    yield Hypothesis(
        CAUSE,
        view.subject if view is not None else {},
        "A gradient is not where DDP's reducer keeps it: another hook or wrapper reduces or replaces it as well"
        if views
        else f"The gradient of parameter{which} was ready twice in one backward pass: it is used twice, or in a "
        "checkpoint that runs backward again",
        tuple(quoted(*one) for one in said[:3]),
        ("marked_ready_twice",),
        would_change=(
            "the model wrapped once, with no hook of its own that reduces"
            if views
            else "the same with use_reentrant=False, or with a static graph",
        ),
        ranks=frozenset(evidence.job.ranks),
        nodes=frozenset({view.node} if view is not None else evidence.nodes),
    )


RULE = Rule((CAUSE,), judge)
