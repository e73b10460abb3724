"""A rank raised or was killed; the others lost their connection to it, or still wait. See also launcher_says.py.

torchrun's "first observed failure" is a hint only: it takes whole seconds, and ranks that waited time out first.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

from probes.catalog.logs.events import LogEvent
from probes.core import Finding
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.log_evidence import Said, before, rank_of, tasks_are_launchers, when
from probes.diagnosis.suspects import ranks_said

EXITED = "fw.rank_exited"
# Exceptions that tell of another rank's end or of waiting: never the cause of it.
OF_OTHERS = ("CalledProcessError", "ProcessRaisedException", "ProcessExitedException", "ActorDiedError",
    "RayActorError", "RayTaskError", "WorkerCrashedError", "RendezvousTimeoutError", "RendezvousConnectionError",
    "RendezvousClosedError", "RendezvousStateError", "KeyboardInterrupt", "DistBackendError",
    "DistNetworkError", "DistStoreError", "ChildFailedError",
    "SignalException", "DistError", "BrokenPipeError", "ConnectionResetError", "ConnectionError",
    "EOFError", "TimeoutError")  # fmt: skip
WORDS_OF_OTHERS = ("onnection closed by peer", "onnection reset by peer", "Timed out waiting",
    "NCCL communicator was aborted", "ncclRemoteError", "Broken pipe", "monitoredBarrier", "failed to connect",
    "wait timeout", "DataLoader worker", "Detected mismatch between collectives", "did not receive grad",
    "finished reduction in the prior iteration", "Application timeout caused pair closure",
    "remote process exited", "NCCL error", "unhandled system error", "ncclSystemError", "ncclInternalError",
    "unhandled cuda error", "client socket", "server socket", "EADDRINUSE", "store->get", "Timeout waiting for key",
    "Socket Timeout", "No route to host", "ddress already in use", "connectFullMesh", "SO_ERROR", "connect timeout [",
    "process group watchdog", "watchdog thread", "marked as ready twice", "ready only once",
    "store based barrier", "clients joined",
    "NCCL Error", "ncclUnhandled", "ncclInvalid", "c10d::", "init_process_group")  # fmt: skip

ENDS = ("torchrun_failure", "fatal_signal", "scheduler_kill")  # what others tell of a rank's end
# What torch writes on a rank that waited too long, before it takes itself down with SIGABRT.
OF_WATCHDOG = ("watchdog_timeout", "watchdog_ended", "watchdog_status", "heartbeat", "blocking_wait")
# And what makes NCCL, gloo or the store raise in C++, which nobody catches: SIGABRT then is the consequence.
OF_NETWORK = ("nccl_error", "ib_completion", "ib_route", "ib_resource", "remote_error", "peer_closed", "store_closed",
    "bootstrap", "store_timeout", "gloo_timeout", "rendezvous", "duplicate_gpu", "nccl_version_mismatch")  # fmt: skip
TRIES = ("failed to connect", "cannot be retrieved", "keep-alive")  # written while a job starts, and tries again
BROKE = (-11, -6, -7)  # SIGSEGV, SIGABRT, SIGBUS
KILLED_AFTER_S = 20.0  # torchrun kills 30 s after SIGTERM (PContext.close); its times are whole seconds
SAME_MOMENT_S = 1.0  # judgement: ranks that raise the same within this time raise it by themselves


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
    """Tracebacks that are not about another rank's end, the earliest first by corrected time; those without last."""
    own = (one for one in _ended_so(evidence) if not of_others(one[0]))
    found = [one for one in own if not (_told(one) and went_on(evidence, one))]
    return sorted(found, key=lambda one: at if (at := when(evidence, one)) is not None else float("inf"))


def _told(one: Said) -> bool:
    """Whether an exception stands in one line, without its traceback."""
    return "bare" in one[0].more


def went_on(evidence: Evidence, one: Said) -> bool:
    """Whether the log tells of work after it: then somebody caught it."""
    place = one[0].last_place
    return any(step[0].last_place > place for step in evidence.job.said("progress", "finished") if step[1] is one[1])


def _ended_so(evidence: Evidence) -> Iterator[Said]:
    """Tracebacks without those over which another was raised that is about others: that one ended the process."""
    written: dict[tuple[int, int | None], list[Said]] = {}
    for one in evidence.job.said("traceback"):
        written.setdefault((id(one[1]), one[0].rank), []).append(one)
    for some in written.values():
        last: Said | None = None  # of the chain
        for one in sorted(some, key=lambda one: one[0].line or one[0].offset or 0, reverse=True):
            last = last or one
            if last is one or not of_others(last[0]):
                yield one
            if not one[0].more.get("chained"):
                last = None


def of_others(event: LogEvent) -> bool:
    return (
        event.secondary
        or event.more.get("within") == "rendezvous"
        or event.rank is None
        or event.name.rpartition(".")[2] in OF_OTHERS
        or any(words in event.text for words in WORDS_OF_OTHERS)
    )


def _killed(evidence: Evidence) -> Iterator[Hypothesis]:
    """By a signal that torchrun did not send: its list shows -9, -11 ...; SIGTERM is what it sends the survivors."""
    aborted = aborted_at_exit(evidence)
    wrote = {told.rank for told, _, _ in evidence.job.events if told.kind not in ENDS}
    ends = list(own_ends(evidence))
    silent = {rank for rank, (event, _, _) in ends if event.code == -6 and rank not in wrote} - set(aborted)
    for rank, one in ends:
        event, log, seen = one
        if event.code == -6 and rank in silent:
            # torch's watchdog aborts every rank that waited: of many that only ended so, none is the first.
            signals = ("abort_of_many",) if len(silent) > 1 else ("abort_of_unknown_reason",)
            yield exited(evidence, rank, "ended by SIGABRT", (quoted(event, log, seen),), signals)
            continue
        if rank in aborted:
            reason = quoted(event, log, seen, f"rank {rank} ended by {event.name or signal_name(event.code or 0)}")
            says = "aborted while it was ending, after its program was done"
            yield exited(evidence, rank, says, (reason,), ("abort_at_exit",))
            continue
        name = event.name if event.kind == "fatal_signal" and event.name else signal_name(event.code or 0)
        says = f"rank {rank} ended by {name}"
        signals = ("exit_by_signal", *(("named_by_torchrun",) if _first(event) else ()))
        yield exited(evidence, rank, f"ended by {name}", (quoted(event, log, seen, says),), signals)


def own_ends(evidence: Evidence) -> Iterator[tuple[int, Said]]:
    """(rank, line) of ends by a signal that do not follow from waiting, or from a connection that was lost."""
    waited = _first_by_rank(evidence, (*OF_WATCHDOG, *OF_NETWORK))
    explained = {told.rank for told, _, _ in evidence.job.said("collective_mismatch")}
    explained |= {told.rank for told, _, _ in evidence.job.said("fatal_signal") if told.secondary}
    explained |= {told.rank for told, _, _ in evidence.job.said("traceback") if told.name in OF_OTHERS}
    for one in _signals(evidence):
        event = one[0]
        rank = event.rank if event.rank is not None else next(iter(event.about), rank_of(evidence, one))
        if rank is None or (event.code == -6 and rank in explained):
            continue  # gloo aborts the rank that receives more than it expects, torch whoever lost a peer
        if event.code in BROKE and rank in waited and before(evidence, one, waited[rank]) is not True:
            continue  # torch ends the ranks that waited too long, by an exception that nobody catches
        yield rank, one


def _signals(evidence: Evidence) -> Iterator[Said]:
    """Ends by a signal that nobody who cleans up has sent. srun and torchrun kill what is left when one task failed:
    with srun the first line counts, with torchrun no SIGKILL that comes as long after another end as it waits."""
    ended = [
        one for one in evidence.job.said("torchrun_failure") if one[0].about and one[0].code not in (None, -9, -15)
    ]
    first = min((at for one in ended if (at := when(evidence, one)) is not None), default=None)
    told: set[int] = set()
    launchers = tasks_are_launchers(evidence)
    for one in evidence.job.said("torchrun_failure", "fatal_signal", "scheduler_kill"):
        event, log, _ = one
        if event.kind == "scheduler_kill" and "tasks" in event.more:
            if launchers or id(log) in told or len(event.about) > 1:
                told.add(id(log))
                continue
            told.add(id(log))
        if event.secondary or event.code is None or event.code >= 0 or event.code in (-15, -2, -1):
            continue
        at = when(evidence, one)
        if event.kind == "torchrun_failure" and event.code == -9 and first and at and at - first >= KILLED_AFTER_S:
            continue
        yield one


def _first_by_rank(evidence: Evidence, kinds: tuple[str, ...]) -> dict[int | None, Said]:
    found: dict[int | None, Said] = {}
    for one in evidence.job.said(*kinds):
        if one[0].kind == "rendezvous" and one[0].name in TRIES:
            continue
        there = found.get(one[0].rank)
        if there is None or before(evidence, one, there):
            found[one[0].rank] = one
    return found


def _raised(evidence: Evidence) -> Iterator[Hypothesis]:
    """The earliest exception of its own; a later one may follow from it."""
    named = {one.rank for one, _, _ in evidence.job.said("torchrun_failure") if _first(one)}
    told: set[int] = set()
    exceptions = own_exceptions(evidence)
    together = _together(evidence, exceptions)
    if len({one[0].rank for one in together}) > 1:
        yield _all_raised(evidence, together)
        exceptions = [one for one in exceptions if one not in together]
        told |= {one[0].rank for one in together if one[0].rank is not None}
    for event, log, seen in exceptions:
        if event.rank is None or event.rank in told:
            continue
        first = "exception_in_one_line" if _told((event, log, seen)) else "own_exception"
        signals: tuple[str, ...] = (first,) if not told else ("exit_code",)
        signals += ("named_by_torchrun",) if event.rank in named else ()
        told.add(event.rank)
        place = f" at {event.where}" if event.where else ""
        says = f"rank {event.rank} raised {event.text[:160]}{place}"
        raised = f"raised {event.name or 'an exception'}{place}"
        yield exited(evidence, event.rank, raised, (quoted(event, log, seen, says),), signals)


def _together(evidence: Evidence, exceptions: list[Said]) -> list[Said]:
    """The first exception, with those of other ranks that are the same and not later."""
    if not exceptions:
        return []
    first, at = exceptions[0], when(evidence, exceptions[0])
    alike = []
    for one in exceptions:
        mine = when(evidence, one)
        same = (one[0].name, one[0].where) == (first[0].name, first[0].where)
        if same and ((mine is None and at is None) or (mine and at and mine - at <= SAME_MOMENT_S)):
            alike.append(one)
    return alike


def _all_raised(evidence: Evidence, said: list[Said]) -> Hypothesis:
    event = said[0][0]
    ranks = frozenset(one[0].rank for one in said if one[0].rank is not None)
    place = f" at {event.where}" if event.where else ""
    who = ranks_said(ranks)
    return Hypothesis(
        EXITED,
        {},
        f"{who[:1].upper()}{who[1:]} raised {event.name or 'an exception'}{place}, each by itself",
        tuple(quoted(*one) for one in said[:3]),
        ("exception_in_one_line",) if _told(said[0]) else ("exception_on_all",),
        would_change=("one of them clearly earlier than the others",),
        ranks=ranks,
        nodes=frozenset(evidence.job.view(rank).node for rank in ranks),
    )


def _gone(evidence: Evidence) -> Iterator[Hypothesis]:
    """Peers are there, a rank of the job is not, although every node that runs the job was looked at."""
    job = evidence.job
    there = {rank: view for rank, view in job.ranks.items() if view.place is not None}
    gave_up = {event.rank for event, _, _ in job.said(*OF_WATCHDOG, "gloo_timeout")}
    zombies: dict[str, list[tuple[Seen, Finding]]] = {}
    for seen, finding in evidence.findings("rank.zombie"):
        if not gave_up & {None, finding.subject.get("rank")}:  # else it ended because another did not come
            zombies.setdefault(seen.node, []).append((seen, finding))
    for node, some in zombies.items():
        many = f"{len(some)} ranks have ended; " if len(some) > 1 else ""
        yield Hypothesis(
            EXITED,
            {"node": node} if node else {},
            f"On {node or 'a node'} {many}{some[0][1].says}",
            tuple(Reason(finding.says, seen.ref) for seen, finding in some[:4]),
            ("rank_gone",),
            nodes=frozenset({node}),
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
        yield exited(evidence, rank, "has no process any more", (because,), ("rank_gone",))


def exited(
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


def signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


RULE = Rule((EXITED,), judge)
