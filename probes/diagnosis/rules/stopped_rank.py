"""A rank that somebody stopped, or that a debugger holds: it enters nothing until it is continued."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView
from probes.diagnosis.suspects import shared

WORDS = {"T": ("stopped", "state_stopped"), "t": ("held by a tracer", "state_traced")}


MOST = 8  # stopped ranks that are told one by one; more have one reason


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    stopped = [view for view in evidence.job.ranks.values() if view.stopped]
    if len(stopped) > MOST:
        yield _many(stopped)
        return
    for view in stopped:
        process, stack = view.process, view.stack
        state = process.state if process is not None else stack.state if stack is not None else "T"
        word, signal = WORDS.get(state, ("frozen by its control group", "state_stopped"))
        holder = f" by {process.tracer or 'process'} ({process.tracer_pid})" if process and process.tracer_pid else ""
        place = f", at {waits.at.short}" if (waits := view.waits) and waits.at else ""
        subject: dict[str, str | int] = {"rank": view.rank} | ({"node": view.node} if view.node else {})
        if view.pid:  # 0 where only the rank was told
            subject["pid"] = view.pid
        says = f"{view.called} is {word}{holder}"
        yield Hypothesis(
            "fw.rank_stopped",
            subject,
            f"{says[0].upper()}{says[1:]}: it enters no collective until it is continued",
            (
                Reason(
                    f"process {view.pid or ''} is in state {state}{place}".replace("  ", " "),
                    view.ref("rank.process", "rank.stack"),
                ),
            ),
            (signal,),
            would_change=("the rank in another state at a second look",),
            ranks=frozenset({view.rank}),
            nodes=frozenset({view.node}),
        )


def _many(views: list[RankView]) -> Hypothesis:
    subject, called = shared(views)
    return Hypothesis(
        "fw.rank_stopped",
        subject,
        f"{called} are stopped: they enter no collective until they are continued",
        tuple(
            Reason(f"process {view.pid or ''} of rank {view.rank} is stopped", view.ref("rank.process", "rank.stack"))
            for view in views[:MOST]
        ),
        ("state_stopped",),
        would_change=("the ranks in another state at a second look",),
        ranks=frozenset(view.rank for view in views),
        nodes=frozenset(view.node for view in views),
    )


RULE = Rule(("fw.rank_stopped",), judge)
