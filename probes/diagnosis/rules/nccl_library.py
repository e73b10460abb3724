"""The communication library itself crashed, or stands while it cleans up after a failure.

A wait inside the library is not its fault: only a crash in its own code, its own "internal error", or an abort that
never ends (NVIDIA/nccl#1777) speak against it; the last is a consequence of whatever failed before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import node_of

CAUSE = "nccl.library_fault"
CRASHES = (-11, -6, -7, -4, -8)  # signals of a process that broke; signal(7)
ABORTING = ("ncclCommAbort", "ncclCommDestroy", "commReclaim", "ncclCommRevoke")
ASKS = ("ncclPollProxyResponse", "ncclProxyCallBlocking", "ncclProxyCallAsync")
# Where it stays while a peer that it took sends nothing more: in the accept of one, or in reading an operation of one.
TAKES = ("ncclSocketAccept", "socketTryAccept", "socketFinalizeAccept", "ncclSocketProgress", "socketProgressState",
    "ncclSocketRecv", "socketWait")  # fmt: skip
NO_ROOM = "waits for room in NCCL's own queue, which nobody empties"
BUSY, ABORT = 80.0, 6  # percent of a CPU, judgement: in its usual wait, poll(), it uses none; SIGABRT
_IN_LIBRARY = re.compile(r"^(?:nccl|rccl|pnccl)[A-Z]|@lib[nr]ccl\.so|(?:^|::)nccl[A-Z]")
# socketFinalizeAccept: somebody who speaks another language has connected, such as a scanner.
_STRANGE = re.compile(r"wrong (?:magic|type) ")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _crashed(evidence)
    yield from _internal(evidence)
    yield from _aborting(evidence)
    yield from _native(evidence)


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
                evidence,
                rank,
                view.node,
                "stands in NCCL's own clean-up",
                because,
                "abort_does_not_end",
                against=against,
            )


def _native(evidence: Evidence) -> Iterator[Hypothesis]:
    """Stacks of native code: a crash in the library, or its own service thread that no longer answers its rank."""
    told: set[str] = set()
    for seen in evidence.of("rank.native"):
        rank = evidence.places.pids.get((seen.node, seen.facts.pid)) if seen.facts.pid else None
        first = seen.facts.threads[0]
        inside = next((frame for frame in first.frames[:12] if _IN_LIBRARY.search(frame)), "")
        if -seen.facts.signal in CRASHES and seen.facts.signal != ABORT and inside:
            because: tuple[Reason, ...] = (Reason(f"signal {seen.facts.signal} in {inside}", seen.ref),)
            yield _of(evidence, rank, seen.node, f"crashed inside NCCL ({inside})", because, "crash_in_library")
            continue
        if aborts := next((one for one in seen.facts.threads if one.calls(*ABORTING)), None):
            told_so = (Reason(f"thread {aborts.tid} stands in {aborts.calls(*ABORTING)}", seen.ref),)
            against = (Reason("it cleans up after a failure: what failed came before", seen.ref),)
            says = "stands in NCCL's own clean-up"
            yield _of(evidence, rank, seen.node, says, told_so, "abort_does_not_end", against=against)
            continue
        if waits := _no_room_for_work([(one.tid, one.frames) for one in seen.facts.threads]):
            yield _of(evidence, rank, seen.node, NO_ROOM, (Reason(waits, seen.ref),), "proxy_queue_stuck")
            told.add(seen.ref)
            continue
        asks = [one for one in seen.facts.threads if one.calls(*ASKS)]
        serves = next((one for one in seen.facts.threads if one.calls("ncclProxyService") and one.calls(*TAKES)), None)
        if not asks or serves is None:
            continue
        thread = f"thread {serves.tid} ({serves.name or 'NCCL Service'})"
        says_so = [Reason(f"{thread} is in {serves.calls(*TAKES)}, its rank waits in {asks[0].calls(*ASKS)}", seen.ref)]
        signals = ["proxy_serves_not"]
        for load in evidence.of("host.load"):
            busy = [one for one in load.facts.processes if one.pid == serves.tid and (one.cpu_percent or 0) >= BUSY]
            if busy and load.node == seen.node:
                says_so.append(Reason(f"{thread} uses {busy[0].cpu_percent:.0f} % of a CPU", load.ref))
                signals.append("proxy_spins")
        strange = [one for one in evidence.job.said("nccl_warn") if _STRANGE.search(one[0].text)]
        if strange := [one for one in strange if node_of(evidence, one) in (seen.node, "")]:
            says_so += [quoted(*one) for one in strange[:2]]
            signals.append("stranger_connected")
        says = "waits for NCCL's own service thread, which is stuck in taking a connection"
        yield _of(evidence, rank, seen.node, says, tuple(says_so), *signals)
    yield from _by_py_spy(evidence, told)


def _by_py_spy(evidence: Evidence, told: set[str]) -> Iterator[Hypothesis]:
    """The same by py-spy --native, which shows native frames among those of Python."""
    for rank, view in evidence.job.ranks.items():
        threads = view.stack.threads if view.stack is not None and view.ref("rank.stack") not in told else ()
        native = [(one.tid or 0, [frame.function for frame in one.frames]) for one in threads]
        if waits := _no_room_for_work(native):
            because = (Reason(waits, view.ref("rank.stack")),)
            yield _of(evidence, rank, view.node, NO_ROOM, because, "proxy_queue_stuck")


def _no_room_for_work(threads: Sequence[tuple[int, Sequence[str]]]) -> str:
    """proxy.cc: who launches takes a free operation of a pool, and yields until there is one. The thread that ends
    operations sleeps only where none is posted and none is under way: then all should be free. (number, its frames) ->
    what to say, "" where it is not so. NVIDIA/nccl#2353."""

    def inside(of: str, *within: str) -> int | None:
        return next(
            (tid for tid, frames in threads if _calls(frames, of) and any(_calls(frames, w) for w in within)), None
        )

    puts, sleeps = (
        inside("ncclLocalOpAppend", "sched_yield"),
        inside("ncclProxyGetPostedOps", "cond_wait", "futex_wait"),
    )
    if puts is None or sleeps is None:
        return ""
    return (
        f"thread {puts} yields in ncclLocalOpAppend until an operation is free, while thread {sleeps}, which ends "
        "them, sleeps in ncclProxyGetPostedOps: it has none left"
    )


def _calls(frames: Sequence[str], part: str) -> bool:
    return any(part in frame for frame in frames)


def _of(
    evidence: Evidence, rank: int | None, node: str, says: str, because: tuple[Reason, ...],
    *signals: str, against: tuple[Reason, ...] = (),
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
        signals,
        against=against,
        would_change=("the same crash with another version of NCCL", "an Xid on its GPU or memory that ran out"),
        ranks=frozenset({rank}) if rank is not None else frozenset(evidence.job.ranks),
        nodes=frozenset({node}),
    )


RULE = Rule((CAUSE,), judge)
