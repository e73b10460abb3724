"""The communication library itself crashed, or stands while it cleans up after a failure.

A wait inside the library is not its fault: only a crash in its own code, its own "internal error", or an abort that
never ends (NVIDIA/nccl#1777) speak against it; the last is a consequence of whatever failed before.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import node_of

CAUSE = "nccl.library_fault"
CRASHES = (-11, -6, -7, -4, -8)  # signals of a process that broke; signal(7)
ABORTING = ("ncclCommAbort", "ncclCommDestroy", "commReclaim", "ncclCommRevoke")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _crashed(evidence)
    yield from _internal(evidence)
    yield from _aborting(evidence)


def _crashed(evidence: Evidence) -> Iterator[Hypothesis]:
    frames = list(evidence.job.said("nccl_frame"))
    told: set[int | None] = set()
    for one in evidence.job.said("fatal_signal"):
        event, log, _ = one
        inside = [frame for frame in frames if frame[1] is log and frame[0].rank == event.rank]
        if event.secondary or event.code not in CRASHES or not inside or event.rank in told:
            continue
        if event.code == -6 and any(other.rank == event.rank for other, _, _ in evidence.job.said("watchdog_timeout")):
            continue  # torch aborts the process, with NCCL's threads on its stacks
        told.add(event.rank)
        named = next((frame[0].name for frame in inside if frame[0].name), "")
        yield _of(evidence, event.rank, node_of(evidence, one), f"crashed inside NCCL{f' ({named})' if named else ''}",
            (quoted(*one), *(quoted(*frame) for frame in inside[:2])), "crash_in_library")  # fmt: skip


def _internal(evidence: Evidence) -> Iterator[Hypothesis]:
    said = [one for one in evidence.job.said("nccl_error") if "internal error" in one[0].name.lower()]
    said += [one for one in evidence.job.said("nccl_error") if one[0].name.startswith("ncclInternal")]
    why = (
        "ib_completion",
        "ib_async",
        "ib_route",
        "ib_resource",
        "bootstrap",
        "cuda_error",
        "shm_full",
        "duplicate_gpu",
    )
    if not said or any(True for _ in evidence.job.said(*why)):
        return
    one = min(said, key=lambda said: said[0].at if said[0].at is not None else float("inf"))
    because = tuple(quoted(*one) for one in said[:3])
    yield _of(evidence, one[0].rank, node_of(evidence, one), "got an internal error of NCCL", because, "internal_error")


def _aborting(evidence: Evidence) -> Iterator[Hypothesis]:
    for rank, view in evidence.job.ranks.items():
        threads = view.stack.threads if view.stack is not None else ()
        inside = next((f for thread in threads for f in thread.frames if f.function.startswith(ABORTING)), None)
        if inside is not None:
            because = (Reason(f"rank {rank} stands in {inside.short}", view.ref("rank.stack")),)
            against = (Reason("it cleans up after a failure: what failed came before", because[0].reading),)
            yield _of(
                evidence, rank, view.node, "stands in NCCL's own clean-up", because, "abort_does_not_end", against
            )


def _of(
    evidence: Evidence, rank: int | None, node: str, says: str, because: tuple[Reason, ...], signal: str,
    against: tuple[Reason, ...] = (),
) -> Hypothesis:  # fmt: skip
    subject: dict[str, str | int] = {"node": node} if node else {}
    view = evidence.job.view(rank) if rank is not None else None
    if view is not None:
        subject = {"rank": view.rank, **subject}
    who = f"Rank {rank}" if rank is not None else "A rank"
    return Hypothesis(
        CAUSE,
        subject,
        f"{who} on {node or 'a node'} {says}",
        because,
        (signal,),
        against=against,
        would_change=("the same crash with another version of NCCL", "an Xid on its GPU or memory that ran out"),
        ranks=frozenset({rank}) if rank is not None else frozenset(evidence.job.ranks),
        nodes=frozenset({node}),
    )


RULE = Rule((CAUSE,), judge)
