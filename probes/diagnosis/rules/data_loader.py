"""The ranks that the others wait for are themselves waiting for their next batch."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog._stack_waits import Wait, waits_in
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.suspects import Suspect, seen_twice, shared, standing

CAUSE = "cpu.dataloader_starved"
BY_STACK = {"rank_elsewhere_by_stack", "rank_elsewhere_twice"}
MOST = 4  # ranks whose stacks are told


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    starved: dict[str, list[Suspect]] = {}
    proven = standing(evidence)
    for suspect in evidence.suspects.values():
        waits = suspect.view.waits
        if waits is not None and (waits.kind == "data loader" or "data loader" in waits.within):
            starved.setdefault(_strength(suspect, proven), []).append(suspect)
    for signal, some in starved.items():
        yield _starved([one.view for one in some], signal)
    for event, log, seen in evidence.job.said("loader_killed", "loader_timeout"):
        if event.rank is None:
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
