"""Ranks that the others wait for, from whatever tells it: flight recorders, stacks, logs, NCCL's RAS.

One list for all rules: whatever explains why a rank is late (its loader, a dead disk, a checkpoint) starts from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.torch import HOROVOD
from probes.catalog.nccl.ras_facts import Report
from probes.diagnosis.collectives import LONG_S, Stall
from probes.diagnosis.core import Evidence, Reason
from probes.diagnosis.job import Job, RankView, quoted

# What a main thread is in while it waits for other ranks, or for its own device.
TOGETHER = {"collective", "p2p", "barrier", "backward", "store", "device sync", "native wait", "destroy", "start"}
UNTOLD = {"user code", "unknown"}  # kinds of which nobody can say that they are not where the others are
FOR_OTHERS = {"collective", "p2p", "barrier", "store", "start"}  # of these, what only another rank can end
WORKS = {
    "checkpoint",
    "compile",
    "preprocessing",
    "generating",
}  # what a rank that others wait for may be doing for minutes


@dataclass(frozen=True, slots=True)
class Suspect:
    """A rank that others wait for: how it shows, and what `signals` of likelihoods.toml that makes."""

    view: RankView
    says: str
    because: tuple[Reason, ...]
    signals: tuple[str, ...]
    stalls: tuple[Stall, ...] = ()
    against: tuple[Reason, ...] = ()
    waiting: frozenset[int] = field(default_factory=frozenset)


def suspects(evidence: Evidence) -> dict[int, Suspect]:
    """Suspects by rank; what several sources say of one rank is put together."""
    from probes.diagnosis.log_suspects import by_watchdog
    from probes.diagnosis.report_suspects import by_report
    from probes.diagnosis.stack_suspects import by_stack

    found: dict[int, Suspect] = {}
    for source in (_by_recorder, _by_absence, _by_barrier, _by_desync, _by_ras, by_stack, by_watchdog, by_report):
        for one in source(evidence):
            there = found.get(one.view.rank)
            found[one.view.rank] = one if there is None else _together(there, one)
    return found


STANDSTILL = ("watchdog_timeout", "gloo_timeout", "blocking_wait", "heartbeat", "barrier_missed", "desync")


def standing(evidence: Evidence) -> bool:
    """Whether something proves that the job stands: a wait of known age, or a limit that ran out. One stack per rank
    does not, nor do dumps that do not tell of which moment they are."""
    aged = any(stall.age_s is not None and stall.age_s >= LONG_S for stall in evidence.stalls.all)
    return aged or next(evidence.job.said(*STANDSTILL), None) is not None


def seen_twice(view: RankView) -> bool:
    """Whether an earlier dump of the rank's stack shows the same line of its program, or the same call."""
    stack, waits = view.stack, view.waits
    if stack is None or waits is None:
        return False
    marks = {frame for frame in (waits.at, waits.frame) if frame is not None}
    return any(marks & set(look.frames) for look in stack.earlier)


def shared(views: list[RankView]) -> tuple[dict[str, str | int], str]:
    """(whom to blame, how to call them) where one thing holds several ranks: their node if all are on one."""
    if len(views) == 1:
        return views[0].subject, views[0].headline
    nodes = {view.node for view in views}
    said = ranks_said([view.rank for view in views])
    said = said[:1].upper() + said[1:]
    if len(nodes) == 1 and (node := nodes.pop()):
        return {"node": node}, f"{said} on {node}"
    return {}, said


def _together(one: Suspect, other: Suspect) -> Suspect:
    return replace(
        one,
        because=tuple(dict.fromkeys(one.because + other.because)),
        against=tuple(dict.fromkeys(one.against + other.against)),
        signals=tuple(dict.fromkeys(one.signals + other.signals)),
        waiting=one.waiting | other.waiting,
    )


def ranks_said(ranks: Iterator[int] | frozenset[int] | list[int]) -> str:
    """`ranks 0, 2 and 5`, or `511 ranks`"""
    listed = sorted(ranks)
    if len(listed) == 1:
        return f"rank {listed[0]}"
    if len(listed) > 6:
        return f"{len(listed)} ranks"
    return f"ranks {', '.join(map(str, listed[:-1]))} and {listed[-1]}"


def _by_recorder(evidence: Evidence) -> Iterator[Suspect]:
    bystanders = _in_calls_that_no_recorder_tells(evidence)
    by_stall: dict[int, tuple[Stall, list[int]]] = {}
    for rank, stall in evidence.stalls.culprits.items():
        if rank not in bystanders:
            by_stall.setdefault(id(stall), (stall, []))[1].append(rank)
    for stall, ranks in by_stall.values():
        yield from _late(evidence, stall, ranks)


def _late(evidence: Evidence, stall: Stall, ranks: list[int]) -> Iterator[Suspect]:
    job: Job = evidence.job
    waits = "waits" if len(stall.waiting) == 1 else "wait"
    long = f" for {stall.age_s:.0f} s" if stall.age_s is not None else ""
    peers = Reason(
        f"{ranks_said(list(stall.waiting))} {waits}{long} in {stall.called}",
        job.view(next(iter(stall.waiting))).ref("rank.flight_recorder"),
    )
    uncollected = (Reason("a dump that nobody collected looks the same", peers.reading),)
    behind = (_behind(evidence, stall, sum(rank in stall.late for rank in ranks)),)
    waiting = frozenset(stall.waiting)
    for rank in ranks:
        view = job.view(rank)
        ref = view.ref("rank.flight_recorder")
        if rank in stall.silent:
            asked = view.place is not None or view.process is not None
            why = view.no_dump.why if view.no_dump is not None else "none was found"
            own = Reason(f"rank {rank} has no flight-recorder dump: {why}", ref)
            silent = ("rank_without_dump" if asked else "rank_without_file",)
            yield Suspect(view, f"never entered {stall.called}", (peers, own), silent, (stall,), uncollected, waiting)
            continue
        reached = stall.late.get(rank, 0)
        said = f"entered #{reached} last of that group" if reached else "entered none of that group"
        own = Reason(f"rank {rank} {'has no such call that waits' if stall.p2p else said}", ref)
        yield Suspect(view, f"never entered {stall.called}", (peers, own), behind, (stall,), (), waiting)


def _in_calls_that_no_recorder_tells(evidence: Evidence) -> set[int]:
    """Late ranks that themselves wait for a rank, by their stacks, where another late one does not: gloo records no
    send, recv or monitored barrier, and nothing records what waits for the store."""
    by_stall: dict[int, list[int]] = {}
    for rank, stall in evidence.stalls.culprits.items():
        by_stall.setdefault(id(stall), []).append(rank)
    found: set[int] = set()
    for ranks in by_stall.values():
        waits = {rank for rank in ranks if (wait := evidence.job.view(rank).waits) and wait.kind in FOR_OTHERS}
        if len(waits) < len(ranks):
            found |= waits
    return found


def _behind(evidence: Evidence, stall: Stall, free: int) -> str:
    if len(stall.unknown) > len(stall.members) / 2:
        return "rank_behind_few_dumps"
    if free > len(stall.waiting) + len(stall.unknown):
        return "most_behind"
    if stall.age_s is None:
        return "rank_behind" if standing(evidence) else "rank_behind_age_unknown"
    return "rank_behind" if stall.age_s >= LONG_S else "rank_behind_young"


def _by_absence(evidence: Evidence) -> Iterator[Suspect]:
    """Nobody waits any more, and one rank has left no dump."""
    for rank in evidence.stalls.silent:
        view = evidence.job.view(rank)
        why = view.no_dump.why if view.no_dump is not None else "none was found"
        others = [one for one, other in evidence.job.ranks.items() if other.dump is not None]
        because = Reason(
            f"{ranks_said(others)} left flight-recorder dumps, rank {rank} did not: {why}",
            evidence.job.view(others[0]).ref("rank.flight_recorder"),
        )
        against = Reason("a dump that nobody collected looks the same", because.reading)
        yield Suspect(
            view, "left no flight-recorder dump, the others did", (because,), ("dump_missing",), against=(against,)
        )


def _by_barrier(evidence: Evidence) -> Iterator[Suspect]:
    for event, log, seen in evidence.job.said("barrier_missed"):
        for rank in event.about:
            says = f"{_who(event)} waited for rank {rank} at a monitored barrier"
            yield Suspect(
                evidence.job.view(rank),
                "did not reach a monitored barrier",
                (quoted(event, log, seen, says),),
                ("named_by_barrier",),
            )


def _by_desync(evidence: Evidence) -> Iterator[Suspect]:
    said = list(evidence.job.said("desync"))
    never = any(event.name.startswith("never joined") for event, _, _ in said)
    for event, log, seen in said:
        if never and event.name.startswith("joined"):
            continue  # it waits for who has not joined
        for rank in event.about[:8]:
            says = f"{'Horovod' if event.name == HOROVOD else 'a desync report'} names rank {rank}: {event.text[:160]}"
            signal = "named_by_stall_inspector" if event.name == HOROVOD else "named_by_desync"
            because = (quoted(event, log, seen, says),)
            yield Suspect(evidence.job.view(rank), "left out a collective", because, (signal,))


def _by_ras(evidence: Evidence) -> Iterator[Suspect]:
    """NCCL itself: a rank that was behind at two looks. It counts launches within one communicator, so a rank is known
    by its process, or by its number where the communicator holds the whole job."""
    job: Job = evidence.job
    by_pid = {(view.node, view.pid): view for view in job.ranks.values() if view.pid is not None}
    for seen in evidence.of("nccl.ras"):
        sizes = {one.hash: one.size for one in seen.facts.report.communicators}
        for lag in seen.facts.lags:
            view = by_pid.get((lag.host, lag.pid)) or by_pid.get((seen.node, lag.pid))
            size = sizes.get(lag.communicator) or _all_in_step(seen.facts.report, lag.communicator)
            if view is None and size is not None and size == (job.world_size or size):
                view = job.view(lag.rank)
            if view is None or not lag.behind:
                continue
            says = f"NCCL: rank {view.rank} has launched {lag.op} {lag.count} times, the others {lag.usual} times"
            yield Suspect(view, "is behind in a communicator", (Reason(says, seen.ref),), ("behind_in_ras",))


def _all_in_step(report: Report, communicator: str) -> int | None:
    """The size of a communicator of a text report, where it is the only one of the largest size: that of the job."""
    counted = next((one.counts for one in report.communicators if one.hash == communicator), ())
    largest = max((group.ranks_per_communicator for group in report.groups), default=0)
    told = {op: sum(one.number for one in counted if one.op == op) for op in {one.op for one in counted}}
    alone = sum(group.communicators for group in report.groups if group.ranks_per_communicator == largest) == 1
    return largest if alone and largest > 1 and largest in told.values() else None


def _who(event: LogEvent) -> str:
    return f"rank {event.rank}" if event.rank is not None else "a rank"
