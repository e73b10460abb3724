"""A rank raised or was killed; the others lost their connection to it, or still wait.

torchrun's "first observed failure" is a hint only: it takes whole seconds, and ranks that waited time out first.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

from probes.catalog._log_events import LogEvent, RankLog
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.suspects import ranks_said

EXITED = "fw.rank_exited"
# Exceptions that tell of another rank's end or of waiting: never the cause of it.
OF_OTHERS = ("DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError",
    "SignalException", "DistError", "BrokenPipeError", "ConnectionResetError", "ConnectionError",
    "EOFError", "TimeoutError")  # fmt: skip
WORDS_OF_OTHERS = ("onnection closed by peer", "onnection reset by peer", "Timed out waiting",
    "NCCL communicator was aborted", "ncclRemoteError", "Broken pipe", "monitoredBarrier", "failed to connect",
    "wait timeout", "DataLoader worker", "Detected mismatch between collectives", "did not receive grad",
    "finished reduction in the prior iteration", "Application timeout caused pair closure",
    "remote process exited", "NCCL error", "unhandled system error", "ncclSystemError")  # fmt: skip

# What torch writes on a rank that waited too long, before it takes itself down with SIGABRT.
OF_WATCHDOG = ("watchdog_timeout", "watchdog_ended", "watchdog_status", "heartbeat", "blocking_wait")

Said = tuple[LogEvent, RankLog, Seen]


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _killed(evidence)
    yield from _raised(evidence)
    yield from _gone(evidence)


def aborted_at_exit(evidence: Evidence) -> set[int]:
    """Ranks whose process was aborted by C++ without an exception and without a Python frame: while it was ending."""
    said = list(evidence.job.said("fatal_signal"))
    terminated = {event.rank for event, _, _ in said if "without an active exception" in event.text}
    raised = {event.rank for event, _, _ in evidence.job.said("traceback") if not event.secondary}
    return {rank for rank in terminated - raised if rank is not None}


def own_exceptions(evidence: Evidence) -> list[Said]:
    """Tracebacks that are not about another rank's end, the earliest first; those without a time last."""
    found = [one for one in evidence.job.said("traceback") if not _of_others(one[0])]
    return sorted(found, key=lambda one: one[0].at if one[0].at is not None else float("inf"))


def _of_others(event: LogEvent) -> bool:
    return (
        event.secondary
        or event.rank is None
        or event.name.rpartition(".")[2] in OF_OTHERS
        or any(words in event.text for words in WORDS_OF_OTHERS)
    )


def _killed(evidence: Evidence) -> Iterator[Hypothesis]:
    """By a signal that torchrun did not send: its list shows -9, -11 ...; SIGTERM is what it sends the survivors."""
    waited = {event.rank for event, _, _ in evidence.job.said(*OF_WATCHDOG)}
    aborted = aborted_at_exit(evidence)
    for event, log, seen in evidence.job.said("torchrun_failure", "fatal_signal", "scheduler_kill"):
        rank = event.rank if event.rank is not None else next(iter(event.about), None)
        if rank is None or event.secondary or event.code is None or event.code >= 0 or event.code in (-15, -2, -1):
            continue
        if event.code == -6 and any(one.rank == rank for one, _, _ in evidence.job.said("collective_mismatch")):
            continue  # gloo aborts the rank that receives more than it expects: told by another rule
        if event.code == -6 and rank in waited:
            continue  # torch's watchdog ends the ranks that waited too long, by an exception that nobody catches
        if event.code == -6 and not any(one.rank == rank for one, _, _ in evidence.job.events):
            yield _exited(evidence, rank, "ended by SIGABRT", (quoted(event, log, seen),), ("abort_of_unknown_reason",))
            continue
        if rank in aborted:
            reason = quoted(event, log, seen, f"rank {rank} ended by {event.name or _signal(event.code)}")
            says = "aborted while it was ending, after its program was done"
            yield _exited(evidence, rank, says, (reason,), ("abort_at_exit",))
            continue
        name = event.name or _signal(event.code)
        says = f"rank {rank} ended by {name}"
        signals = ("exit_by_signal", *(("named_by_torchrun",) if _first(event) else ()))
        yield _exited(evidence, rank, f"ended by {name}", (quoted(event, log, seen, says),), signals)


def _raised(evidence: Evidence) -> Iterator[Hypothesis]:
    """The earliest exception of its own; a later one may follow from it."""
    named = {one.rank for one, _, _ in evidence.job.said("torchrun_failure") if _first(one)}
    told: set[int] = set()
    for event, log, seen in own_exceptions(evidence):
        if event.rank is None or event.rank in told:
            continue
        signals: tuple[str, ...] = ("own_exception",) if not told else ("exit_code",)
        signals += ("named_by_torchrun",) if event.rank in named else ()
        told.add(event.rank)
        place = f" at {event.where}" if event.where else ""
        says = f"rank {event.rank} raised {event.text[:160]}{place}"
        yield _exited(
            evidence,
            event.rank,
            f"raised {event.name or 'an exception'}{place}",
            (quoted(event, log, seen, says),),
            signals,
        )


def _gone(evidence: Evidence) -> Iterator[Hypothesis]:
    """Peers are there, a rank of the job is not, although every node that runs the job was looked at."""
    job = evidence.job
    there = {rank: view for rank, view in job.ranks.items() if view.place is not None}
    for seen, finding in evidence.findings("rank.zombie"):
        says = Reason(finding.says, seen.ref)
        yield Hypothesis(
            EXITED,
            {"node": seen.node} if seen.node else {},
            f"On {seen.node or 'a node'} {finding.says}",
            (says,),
            ("rank_gone",),
            nodes=frozenset({seen.node}),
        )
    if not there or job.world is None or len(there) < len(job.world) / 2:
        return
    if evidence.unanswered("rank.map"):
        return  # the rank may be where nobody could look
    absent = [rank for rank in job.world if rank not in there]
    if not absent or len(absent) > max(1, len(job.world) // 8):
        return
    because = Reason(
        f"{len(there)} of {len(job.world)} ranks have a process; {ranks_said(absent)} none on any node",
        next(iter(there.values())).ref("rank.map"),
    )
    for rank in absent[:8]:
        yield _exited(evidence, rank, "has no process any more", (because,), ("rank_gone",))


def _exited(
    evidence: Evidence, rank: int, says: str, because: tuple[Reason, ...], signals: tuple[str, ...],
    against: tuple[Reason, ...] = (),
) -> Hypothesis:  # fmt: skip
    view: RankView = evidence.job.view(rank)
    return Hypothesis(
        EXITED,
        view.subject,
        f"{view.headline} {says}",
        because,
        signals,
        against=against,
        would_change=("its process, still there", "an earlier exception on another rank"),
        ranks=frozenset({rank}),
        nodes=frozenset({view.node}),
    )


def _first(event: LogEvent) -> bool:
    return bool(event.more.get("root_cause") or event.more.get("first"))


def _signal(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


RULE = Rule((EXITED,), judge)
