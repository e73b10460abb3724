"""A rank that somebody stopped, or that a debugger holds: it enters nothing until it is continued."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView
from probes.diagnosis.suspects import shared

WORDS = {"T": ("stopped", "state_stopped"), "t": ("held by a tracer", "state_traced"),
    "P": ("paused", "state_stopped")}  # fmt: skip


MOST = 8  # stopped ranks that are told one by one; more have one reason


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    stopped = [view for view in evidence.job.ranks.values() if view.stopped]
    yield from _by_py_spy(evidence)
    yield from _nameless(evidence, stopped)
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


def _nameless(evidence: Evidence, known: list[RankView]) -> Iterator[Hypothesis]:
    """Processes of which a table tells the state, and nothing tells which rank they are."""
    pids = {view.pid for view in known} | {stack.pid for view in known if (stack := view.stack)}
    for seen in evidence.of("process.stopped"):
        for one in seen.facts.processes[:MOST]:
            rank = evidence.places.pids.get((seen.node, one.pid))
            view = evidence.job.view(rank) if rank is not None else None
            if (one.pid and one.pid in pids) or (view is not None and view.stopped):
                continue
            node: dict[str, str | int] = {"node": seen.node} if seen.node else {}
            word, signal = WORDS[one.state]
            what = f"Process {one.pid}" if one.pid else one.what.capitalize() or "A process"
            who = view.headline if view is not None else f"{what} on {seen.node or 'a node'}"
            yield Hypothesis(
                "fw.rank_stopped",
                (view.subject if view is not None else node) | ({"pid": one.pid} if one.pid else {}),
                f"{who} is {word}: as a rank it enters no collective until it is continued",
                (Reason(_says(one.pid, one.what, one.state, word), seen.ref),),
                (signal if view is not None else "stopped_nameless",),
                would_change=("which rank it is", "the process in another state at a second look"),
                ranks=frozenset({rank} if rank is not None else evidence.job.ranks),
                nodes=frozenset({seen.node}),
            )


def _says(pid: int, what: str, state: str, word: str) -> str:
    return f"process {pid} {what} is in state {state}" if pid else f"{what or 'a process'} is {word}"


def _by_py_spy(evidence: Evidence) -> Iterator[Hypothesis]:
    """py-spy stops a process to look at it. Where that process was stopped before, it is told of another stop than its
    own, and gives up: `unexpected waitpid result PtraceEvent(Pid(1165), SIGSTOP, 128)`."""
    for view in evidence.job.ranks.values():
        stack = view.stack
        if view.stopped or stack is None or stack.threads or "waitpid" not in stack.why or "SIGSTOP" not in stack.why:
            continue
        yield Hypothesis(
            "fw.rank_stopped",
            view.subject,
            f"{view.headline} could not be looked at by py-spy: it seems to be stopped already",
            (Reason(stack.why[:200], view.ref("rank.stack")),),
            ("py_spy_met_a_stop",),
            would_change=("its state in /proc or ps: T where it is stopped", "py-spy dump --nonblocking"),
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
