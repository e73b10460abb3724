"""Ranks that the others wait for, from whatever tells it: flight recorders, stacks, logs, NCCL's RAS.

One list for all rules: whatever explains why a rank is late (its loader, a dead disk, a checkpoint) starts from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from probes.catalog._log_events import LogEvent
from probes.diagnosis.collectives import LONG_S, Stall
from probes.diagnosis.core import Evidence, Reason
from probes.diagnosis.job import Job, RankView, quoted

# What a main thread is in while it waits for other ranks, or for its own device.
TOGETHER = {"collective", "p2p", "barrier", "backward", "store", "device sync", "native wait", "destroy", "start"}


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

    found: dict[int, Suspect] = {}
    for source in (_by_recorder, _by_absence, _by_barrier, _by_desync, _by_ras, _by_stack, by_watchdog):
        for one in source(evidence):
            there = found.get(one.view.rank)
            found[one.view.rank] = one if there is None else _together(there, one)
    return found


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
    job: Job = evidence.job
    for rank, stall in evidence.stalls.culprits.items():
        view = job.view(rank)
        waits = "waits" if len(stall.waiting) == 1 else "wait"
        long = f" for {stall.age_s:.0f} s" if stall.age_s is not None else ""
        peers = Reason(
            f"{ranks_said(list(stall.waiting))} {waits}{long} in {stall.called}",
            job.view(next(iter(stall.waiting))).ref("rank.flight_recorder"),
        )
        against: tuple[Reason, ...] = ()
        if rank in stall.silent:
            signals: tuple[str, ...] = ("rank_without_dump",)
            why = view.no_dump.why if view.no_dump is not None else "none was found"
            own = Reason(f"rank {rank} has no flight-recorder dump: {why}", view.ref("rank.flight_recorder"))
            against = (Reason("a dump that nobody collected looks the same", peers.reading),)
        else:
            signals = (_behind(stall.age_s),)
            reached = stall.late.get(rank, 0)
            said = f"entered #{reached} last" if reached else "entered none"
            own = Reason(f"rank {rank} {said} of that group", view.ref("rank.flight_recorder"))
        waiting = frozenset(stall.waiting)
        yield Suspect(view, f"never entered {stall.called}", (peers, own), signals, (stall,), against, waiting)


def _behind(age_s: float | None) -> str:
    if age_s is None:
        return "rank_behind_age_unknown"
    return "rank_behind" if age_s >= LONG_S else "rank_behind_young"


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
    for event, log, seen in evidence.job.said("desync"):
        for rank in event.about[:8]:
            says = f"torch's desync report names rank {rank}: {event.text[:160]}"
            yield Suspect(
                evidence.job.view(rank),
                "left out a collective",
                (quoted(event, log, seen, says),),
                ("named_by_desync",),
            )


def _by_ras(evidence: Evidence) -> Iterator[Suspect]:
    """NCCL itself: a rank that was behind at two looks. It counts launches within one communicator, so a rank is known
    by its process, or by its number where the communicator holds the whole job."""
    job: Job = evidence.job
    for seen in evidence.of("nccl.ras"):
        sizes = {one.hash: one.size for one in seen.facts.report.communicators}
        for lag in seen.facts.lags:
            by_pid = (view for view in job.ranks.values() if lag.pid is not None and view.pid == lag.pid)
            view = next((view for view in by_pid if view.node in (lag.host, seen.node)), None)
            if view is None and sizes.get(lag.communicator) == job.world_size is not None:
                view = job.view(lag.rank)
            if view is None or not lag.behind:
                continue
            says = f"NCCL: rank {view.rank} has launched {lag.op} {lag.count} times, the others {lag.usual} times"
            yield Suspect(view, "is behind in a communicator", (Reason(says, seen.ref),), ("behind_in_ras",))


def _by_stack(evidence: Evidence) -> Iterator[Suspect]:
    """Where most ranks are in a collective, those that are not. Weak: one look at a stack proves no standstill, and a
    rank that is elsewhere by recorder and stack is counted once."""
    job: Job = evidence.job
    waits = {rank: view.waits for rank, view in job.ranks.items() if view.stack is not None and view.stack.threads}
    within = {rank for rank, wait in waits.items() if wait is not None and wait.kind in TOGETHER}
    outside = [rank for rank in waits if rank not in within]
    if not outside or len(within) < 2 * len(outside):
        return
    if evidence.stalls.moving or evidence.stalls.culprits or evidence.stalls.cycle:
        return
    if any(stall.odd or stall.draw or stall.complete for stall in evidence.stalls.all):
        return
    kinds = Counter(str(wait.kind) for rank, wait in waits.items() if rank in within and wait is not None)
    for rank in outside:
        view, wait = job.ranks[rank], waits[rank]
        peers = Reason(
            f"{ranks_said(list(within))}: main thread in {kinds.most_common(1)[0][0]}",
            job.ranks[min(within)].ref("rank.stack"),
        )
        own = Reason(f"rank {rank}: main thread in {wait}", view.ref("rank.stack"))
        yield Suspect(
            view,
            "is not in the collective that the others are in",
            (peers, own),
            ("rank_elsewhere_by_stack",),
            waiting=frozenset(within),
        )


def _who(event: LogEvent) -> str:
    return f"rank {event.rank}" if event.rank is not None else "a rank"
