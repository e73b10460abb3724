"""The ranks of a job across all nodes: what each probe knows of a rank, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from probes.catalog.logs.events import LogEvent, RankLog
from probes.catalog.ranks.process_facts import Process
from probes.catalog.ranks.rank_facts import Rank
from probes.catalog.recorder.facts import Dump, Missing
from probes.catalog.stacks.facts import ProcessStack
from probes.catalog.stacks.waits import Wait, waits_in
from probes.diagnosis.core import Evidence, Reason, Seen

FROZEN = ("do_freezer_trap", "__refrigerator", "refrigerator")  # kernel/freezer.c, kernel/signal.c


OF_WORKERS = "rank.stack of workers"  # in `refs`: the reading of its loader workers' stacks


@dataclass(slots=True)
class RankView:
    """One rank. Each part is None, or empty, where no probe told it; `refs` names the reading of each part."""

    rank: int
    node: str = ""
    pid: int | None = None
    place: Rank | None = None
    process: Process | None = None
    workers: list[Process] = field(default_factory=list)
    stack: ProcessStack | None = None
    worker_stacks: list[ProcessStack] = field(default_factory=list)
    dump: Dump | None = None
    no_dump: Missing | None = None
    logs: list[RankLog] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=dict)
    _waits: tuple[ProcessStack, Wait] | None = field(default=None, repr=False, compare=False)  # asked for by many rules

    @property
    def waits(self) -> Wait | None:
        """What its main thread is in, where there is a stack."""
        if self.stack is not None and (self._waits is None or self._waits[0] is not self.stack):
            self._waits = (self.stack, waits_in(self.stack))
        return self._waits[1] if self.stack is not None and self._waits is not None else None

    @property
    def stopped(self) -> bool:
        """In state T (stopped) or t (traced), at both looks where there were two: a profiler traces for a moment."""
        if self.process is not None and self.process.wchan in FROZEN:
            return True  # by the freezer of its control group: it shows as asleep
        if self.process is not None:
            return self.process.state in ("T", "t") and self.process.state_before in ("T", "t", "")
        return self.stack is not None and self.stack.state in ("T", "t")

    @property
    def subject(self) -> dict[str, str | int]:
        """The rank and, where known, its node: whom a hypothesis blames."""
        subject: dict[str, str | int] = {"rank": self.rank}
        return subject | {"node": self.node} if self.node else subject

    @property
    def headline(self) -> str:
        """`Rank 131 on gpu-017`, to begin a sentence."""
        return f"R{self.called[1:]}"

    def ref(self, *probes: str) -> str:
        """The reading that the first of these probes gave of this rank, or of any."""
        return next((self.refs[p] for p in probes if p in self.refs), next(iter(self.refs.values()), ""))

    @property
    def called(self) -> str:
        """`rank 131 on gpu-017`"""
        return f"rank {self.rank} on {self.node}" if self.node else f"rank {self.rank}"


@dataclass(slots=True)
class Job:
    """All ranks that were seen. `world_size` is what they themselves say; None where nothing says it."""

    ranks: dict[int, RankView] = field(default_factory=dict)
    world_size: int | None = None
    name: tuple[str | None, str | None, str | None] | None = None  # run id, Slurm job, master; None: nothing tells it
    others: int = 0  # other jobs on the same nodes
    processes: dict[int, dict[tuple[str, int], str]] = field(default_factory=dict)  # rank -> node and pid -> reading
    events: list[tuple[LogEvent, RankLog, Seen]] = field(default_factory=list)  # of all logs, also of launchers
    earlier: list[tuple[LogEvent, RankLog, Seen]] = field(default_factory=list)  # of processes before the present ones
    _by_kind: dict[str, list[int]] = field(default_factory=dict)
    _counted: int = -1

    def view(self, rank: int) -> RankView:
        return self.ranks.setdefault(rank, RankView(rank))

    def known(self, seen: Seen, rank: int) -> RankView:
        """The rank, that this reading tells of."""
        view = self.view(rank)
        view.node = view.node or seen.node
        view.refs.setdefault(seen.probe, seen.ref)
        return view

    @property
    def doubles(self) -> Iterator[Reason]:
        """Ranks of which two processes were seen: an earlier run's that is still there, or two jobs in one folder."""
        for rank, found in self.processes.items():
            if len(found) > 1:
                pids = " and ".join(f"{pid} on {node}" if node else str(pid) for node, pid in list(found)[:3])
                says = f"{len(found)} processes call themselves rank {rank} ({pids}): one may be of another run"
                yield Reason(says, list(found.values())[-1])

    def said(self, *kinds: str) -> Iterator[tuple[LogEvent, RankLog, Seen]]:
        """Log events of these kinds, in their order."""
        if self._counted != len(self.events):
            self._by_kind, self._counted = {}, len(self.events)
            for place, (event, _, _) in enumerate(self.events):
                self._by_kind.setdefault(event.kind, []).append(place)
        wanted = [place for kind in dict.fromkeys(kinds) for place in self._by_kind.get(kind, ())]
        return (self.events[place] for place in sorted(wanted))

    @property
    def world(self) -> range | None:
        """Every rank that should be there."""
        return range(self.world_size) if self.world_size else None


def quoted(event: LogEvent, log: RankLog, seen: Seen, says: str = "") -> Reason:
    """A claim that stands on a line of a log: `says`, or the line itself, with file and line number."""
    file = log.file.rpartition("/")[2] or "log"
    line = f" line {event.line}" if event.line else ""
    return Reason(f"{says} ({file}{line})" if says else f"{file}{line}: {event.text[:200]}", seen.ref)


def job_of(evidence: Evidence) -> Job:
    """Put together what the rank probes saw. Where two processes say that they are the same rank, the later one counts
    (a job that was started again)."""
    job = Job()
    placed = [(one, rank) for one in evidence.of("rank.map") for rank in one.facts.ranks]
    sizes = Counter(_named(rank) for _, rank in placed)
    job.name = max(sizes, key=lambda name: sizes[name], default=None)
    job.others = len(sizes) - 1 if sizes else 0
    for one, rank in placed:
        if _named(rank) == job.name:
            _place(job, one, rank)
    for one in evidence.of("rank.process"):
        for process in one.facts.processes:
            _process(job, one, process)
    for one in evidence.of("rank.stack"):
        for stack in one.facts.processes:
            _stack(job, one, stack)
    for one in evidence.of("rank.flight_recorder"):
        for dump in one.facts.dumps:
            if not _another(job, dump):
                _dump(job, one, dump)
        for missing in one.facts.missing:
            if _another(job, missing):
                continue
            view = job.view(missing.rank)
            if view.dump is None:
                view.no_dump = missing
                view.refs.setdefault(one.probe, one.ref)
                view.node = view.node or one.node
    from probes.diagnosis.job_logs import add_logs

    add_logs(job, evidence)
    if job.world_size is None and job.ranks:
        told = [n for event, _, _ in job.events if (n := event.more.get("ranks")) and isinstance(n, int)]
        job.world_size = max(told, default=None)
    return job


def _named(of: Rank | Dump | Missing) -> tuple[str | None, str | None, str | None]:
    return (of.run_id, of.slurm_job, of.master)


def _another(job: Job, of: Dump | Missing) -> bool:
    """Whether this tells of another job on the same nodes. What says nothing of its job may be of this one."""
    said = _named(of)
    return job.name is not None and any(said) and said != job.name


def _sized(job: Job, world_size: int | None) -> None:
    if world_size:
        job.world_size = max(job.world_size or 0, world_size)


def _place(job: Job, seen: Seen, rank: Rank) -> None:
    _seen_as(job, seen, rank.rank, rank.pid)
    there = job.view(rank.rank)
    if there.place is not None and (there.place.start_time or 0) > (rank.start_time or 0):
        return
    there.place, there.node, there.pid = rank, seen.node, rank.pid
    there.refs[seen.probe] = seen.ref
    _sized(job, rank.world_size)


def _of_another_process(job: Job, seen: Seen, rank: int, pid: int | None) -> bool:
    """Where the job's own process of this rank is known, another one with the same number is of another job."""
    there = job.ranks.get(rank)
    return there is not None and there.place is not None and (there.node, there.pid) != (seen.node, pid)


def _process(job: Job, seen: Seen, process: Process) -> None:
    view = job.known(seen, process.rank)
    if process.worker_of is not None:
        if view.pid in (None, process.worker_of):
            view.workers.append(process)
        return
    _seen_as(job, seen, process.rank, process.pid)
    if view.pid in (None, process.pid) and view.node == seen.node:
        view.process, view.pid = process, process.pid
        _sized(job, process.world_size)


def _stack(job: Job, seen: Seen, stack: ProcessStack) -> None:
    if stack.rank is None or (not stack.worker and _of_another_process(job, seen, stack.rank, stack.pid)):
        return
    view = job.known(seen, stack.rank)
    if stack.worker:
        view.worker_stacks.append(stack)
        view.refs.setdefault(OF_WORKERS, seen.ref)
        return
    _seen_as(job, seen, stack.rank, stack.pid)
    if view.stack is None or (not view.stack.threads and stack.threads):
        view.stack = stack
        view.refs["rank.stack"] = seen.ref  # not that of a worker's file, which may have come first
        view.pid = view.pid or stack.pid


def _seen_as(job: Job, seen: Seen, rank: int, pid: int | None) -> None:
    if pid is not None:
        job.processes.setdefault(rank, {}).setdefault((seen.node, pid), seen.ref)


def _dump(job: Job, seen: Seen, dump: Dump) -> None:
    view = job.known(seen, dump.rank)
    if view.dump is None or _later(dump, view.dump):
        view.dump = dump
        view.refs[seen.probe] = seen.ref
    _sized(job, dump.world_size)


def _later(one: Dump, other: Dump) -> bool:
    """A dump that the rank gave now counts before a file, a later file before an earlier, one with stacks before one
    without."""
    return (one.how == "worker server", one.mtime or 0, one.form == "pickle") > (
        other.how == "worker server",
        other.mtime or 0,
        other.form == "pickle",
    )
