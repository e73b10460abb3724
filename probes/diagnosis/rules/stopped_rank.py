"""A rank that somebody stopped, or that a debugger holds: it enters nothing until it is continued."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule

WORDS = {"T": ("stopped", "state_stopped"), "t": ("held by a tracer", "state_traced")}


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for view in evidence.job.ranks.values():
        if not view.stopped:
            continue
        process, stack = view.process, view.stack
        state = process.state if process is not None else stack.state if stack is not None else "T"
        word, signal = WORDS[state]
        holder = f" by {process.tracer or 'process'} ({process.tracer_pid})" if process and process.tracer_pid else ""
        place = f", at {waits.at.short}" if (waits := view.waits) and waits.at else ""
        subject: dict[str, str | int] = {"rank": view.rank} | ({"node": view.node} if view.node else {})
        if view.pid is not None:
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


RULE = Rule(("fw.rank_stopped",), judge)
