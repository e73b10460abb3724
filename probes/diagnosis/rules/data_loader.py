"""The ranks that the others wait for are themselves waiting for their next batch."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.logs.events import LogEvent, RankLog
from probes.catalog.stacks.waits import Wait, waits_in
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.log_evidence import node_of
from probes.diagnosis.rules import _loader_signs as loader_signs
from probes.diagnosis.step_times import late_rank, starved, step_times
from probes.diagnosis.suspects import Suspect, ranks_said, seen_twice, shared, standing

CAUSE = "cpu.dataloader_starved"
BY_STACK = {"rank_elsewhere_by_stack", "rank_elsewhere_twice"}
MOST = 4  # ranks whose stacks are told
HALF = 0.5  # of a step; judgement
MOST_STACKS = 3  # judgement: two ranks may be in their loader by chance


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    waiting: dict[str, list[Suspect]] = {}
    proven = standing(evidence)
    for suspect in evidence.suspects.values():
        waits = suspect.view.waits
        if waits is not None and (waits.kind == "data loader" or "data loader" in waits.within):
            waiting.setdefault(_strength(suspect, proven), []).append(suspect)
    for signal, some in waiting.items():
        yield _starved([one.view for one in some], signal)
    by_times = list(_by_step_times(evidence))
    yield from by_times or _most_in_loader(evidence) or loader_signs.judge(evidence)
    for event, log, seen in evidence.job.said("loader_killed", "loader_timeout"):
        if event.rank is None:
            if event.kind == "loader_timeout":  # whoever wrote it: no batch came
                yield _timed_out(evidence, event, log, seen)
            continue
        view = evidence.job.view(event.rank)
        yield Hypothesis(
            CAUSE,
            view.subject,
            f"{view.headline} lost a data-loader worker, or waited too long for one",
            (quoted(event, log, seen),),
            ("loader_in_log",),
            ranks=frozenset({event.rank}),
            nodes=frozenset({view.node}),
        )


def _timed_out(evidence: Evidence, event: LogEvent, log: RankLog, seen: Seen) -> Hypothesis:
    node = node_of(evidence, (event, log, seen))
    return Hypothesis(
        CAUSE,
        {"node": node} if node else {},
        "A rank waited too long for a batch of its data loader",
        (quoted(event, log, seen),),
        ("loader_in_log",),
        nodes=frozenset({node}),
    )


def _by_step_times(evidence: Evidence) -> Iterator[Hypothesis]:
    """Steps that are mostly spent on waiting for data, on one rank or on all that tell it."""
    times = step_times(evidence)
    late, some = late_rank(times), starved(times, HALF)
    if late is not None and late.by_data:
        some = [(late.rank, late.parts)]
    elif not some or 2 * len(some) < len(times):
        return
    views = [evidence.job.view(rank) for rank, _ in some if rank is not None]
    subject, called = shared(views) if views else ({}, "A rank")
    rank, parts = some[0]
    who = f"rank {rank}" if rank is not None else "the log"
    says = (
        late.says if late is not None and late.by_data else f"{who}: {parts.data:.2f} s of a step of {parts.step:.2f} s"
    )
    yield Hypothesis(
        CAUSE,
        subject,
        f"{called} waits for data for {100 * (parts.data or 0) / parts.step:.0f} % of a step",
        (quoted(*parts.said, says), *_in_loader(evidence)),
        ("late_data_by_step_times" if late is not None and late.by_data else "data_is_half_of_the_steps",
            *(("most_in_loader",) if _in_loader(evidence) else ())),
        would_change=("steps in which the data is there at once",),
        ranks=frozenset(view.rank for view in views),
        nodes=frozenset(view.node for view in views),
    )  # fmt: skip


def _in_loader(evidence: Evidence) -> tuple[Reason, ...]:
    """The ranks whose stacks are in the loader, where these are most of all stacks: a healthy job is there seldom."""
    stacks = {rank: view for rank, view in evidence.job.ranks.items() if view.stack is not None and view.stack.threads}
    loads = [rank for rank, view in stacks.items() if _loads(view)]
    if len(loads) < MOST_STACKS or 2 * len(loads) <= len(stacks):
        return ()
    says = f"{ranks_said(loads)} of {len(stacks)}: main thread in {stacks[loads[0]].waits}"
    return (Reason(says, stacks[loads[0]].ref("rank.stack")),)


def _loads(view: RankView) -> bool:
    waits = view.waits
    return waits is not None and (waits.kind == "data loader" or "data loader" in waits.within)


def _most_in_loader(evidence: Evidence) -> list[Hypothesis]:
    """Without step times: most ranks are in their loader at the one moment that their stacks tell of."""
    because = _in_loader(evidence)
    if not because or any(_loads(one.view) for one in evidence.suspects.values()):
        return []
    says = "Most ranks wait for their data at once"
    more = loader_signs.reasons(evidence)
    signals = ("most_in_loader", *(signal for signal, _ in more if signal != "most_in_loader"))
    because += tuple(reason for _, reason in more)
    return [Hypothesis(CAUSE, {}, says, because, signals, would_change=("a second look at all stacks",))]


def _strength(suspect: Suspect, proven: bool) -> str:
    """A healthy rank is in its loader too, for moments: only a standstill, or the same line twice, makes it a wait."""
    if proven:
        return "in_data_loader"
    if seen_twice(suspect.view):
        return "in_data_loader_twice"
    return "in_data_loader_one_look" if set(suspect.signals) <= BY_STACK else "in_data_loader_age_unknown"


def _starved(views: list[RankView], signal: str) -> Hypothesis:
    because: list[Reason] = []
    where, own_code = "", False
    for view in views[:MOST]:
        waits = view.waits
        assert waits is not None  # judge chose them by it
        because.append(Reason(f"rank {view.rank}: main thread in {waits}", view.ref("rank.stack")))
        at = f" at {waits.at.short}" if waits.at is not None else ""
        worker = _worker(view)
        if worker is not None:
            because.append(worker[0])
            at = f": its worker {worker[1]}"
        # num_workers=0: the rank computes its samples itself
        own_code = own_code or worker is not None or (not view.worker_stacks and _computes(waits))
        where = where or at
    subject, called = shared(views)
    # At one look a worker is busy in a healthy job too.
    signals = (signal, "loader_worker_busy_or_asleep") if own_code and "one_look" not in signal else (signal,)
    return Hypothesis(
        CAUSE,
        subject,
        f"{called} {'waits for its' if len(views) == 1 else 'wait for their'} data loader{where}",
        tuple(because),
        signals,
        would_change=("a second look at which the rank is past its loader",),
        ranks=frozenset(view.rank for view in views),
        nodes=frozenset(view.node for view in views),
    )


def _computes(waits: Wait) -> bool:
    """Whether the rank computes its samples itself: the loader's frame is the one that asks the data set."""
    return waits.frame is not None and waits.frame.file.endswith("_utils/fetch.py") and waits.at is not None


def _worker(view: RankView) -> tuple[Reason, str] | None:
    """What one of its workers does, where it is in code of the job."""
    for stack in view.worker_stacks:
        inside = waits_in(stack)
        if inside.kind not in ("loader idle", "unknown") and inside.at is not None:
            how = "runs" if inside.busy or stack.state == "R" else "waits"
            does = f"{how} in {inside.at.short}"
            who = f"its worker {stack.pid} " if stack.pid else "its worker "
            return Reason(who + does, view.ref("rank.stack")), does
    return None


RULE = Rule((CAUSE,), judge)
