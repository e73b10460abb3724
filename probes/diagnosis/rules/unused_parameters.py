"""DDP's reducer says that parameters got no gradient on a rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.wrappers import GRAPH
from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    events = [one for one in evidence.job.said("ddp_unused") if not _all_ready(one[0])]
    events.sort(key=lambda one: one[0].name == GRAPH)
    ranks = Counter(
        rank for event, _, _ in events for rank in (event.about or ((event.rank,) if event.rank is not None else ()))
    )
    if not events:
        return
    rank = ranks.most_common(1)[0][0] if ranks else None
    event, log, seen = next((one for one in events if rank in one[0].about), events[0])
    node = evidence.job.view(rank).node if rank is not None else ""
    subject: dict[str, str | int] = ({"rank": rank} if rank is not None else {}) | ({"node": node} if node else {})
    parameters = f" (indices {event.more['parameters']})" if event.more.get("parameters") else ""
    who = f"On rank {rank}" if rank is not None else "On a rank"
    says = f"parameters got no gradient{parameters}, so the reduction of gradients waits for them"
    if event.name == GRAPH:
        says = "other parameters got gradients than in the first step, which DDP's static graph does not allow"
    yield Hypothesis(
        "fw.unused_parameters",
        subject,
        f"{who} {says}",
        (quoted(event, log, seen),),
        ("parameters_changed" if event.name == GRAPH else "unused_parameters",),
        would_change=("the same with find_unused_parameters=True",),
        ranks=frozenset(evidence.job.ranks),
        nodes=frozenset({node}),
    )


def _all_ready(event: LogEvent) -> bool:
    """Megatron's bucket has all its gradients: then something else has kept it from being reduced."""
    return "ready" in event.more and event.more["ready"] == event.more.get("all")


RULE = Rule(("fw.unused_parameters",), judge)
