"""DDP's reducer says that parameters got no gradient on a rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    events = list(evidence.job.said("ddp_unused"))
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
    yield Hypothesis(
        "fw.unused_parameters",
        subject,
        f"{who} parameters got no gradient{parameters}, so DDP's reducer waits for them",
        (quoted(event, log, seen),),
        ("unused_parameters",),
        would_change=("the same with find_unused_parameters=True",),
        ranks=frozenset(evidence.job.ranks),
        nodes=frozenset({node}),
    )


RULE = Rule(("fw.unused_parameters",), judge)
