"""Facts and findings of rank.map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from probes.core import Finding

ENDED = ("Z", "X")


@dataclass(frozen=True, slots=True)
class Child:
    """A data-loader worker, or another process that a rank has started. `rank` is the one it inherited."""

    rank: int
    pid: int
    ppid: int
    comm: str
    state: str
    start_time: float | None
    ns_pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rank:
    """One training process. Job: `run_id` of torchrun, `slurm_job` and `master`, each None where it is not told.

    `source` says which variables number it: "env" (RANK), "slurm", "ompi" or "pmi". `started` is in clock ticks since
    boot and tells a pid from the same pid used again; `start_time` in seconds since the epoch. `ns_pids`: the pid on
    the node, then inside each container. `wrappers`: shells and launchers that carry the same rank, innermost first.
    """

    rank: int
    world_size: int
    local_rank: int | None
    local_world_size: int | None
    node_rank: int | None
    run_id: str | None
    slurm_job: str | None
    master: str | None
    source: str
    pid: int
    ppid: int
    comm: str
    state: str
    started: int
    start_time: float | None
    uid: int | None
    ns_pids: tuple[int, ...]
    wrappers: tuple[int, ...]
    visible: Mapping[str, str]  # CUDA_VISIBLE_DEVICES and its like
    restarts: int | None  # how often torchrun had started this job again
    workers: tuple[Child, ...]

    @property
    def job(self) -> tuple[object, ...]:
        """What two ranks of one job on one node share."""
        return (self.run_id, self.slurm_job, self.master, self.world_size)


@dataclass(frozen=True, slots=True)
class Unread:
    """A process that may be a rank, but did not let its environment be read; one that ended has none any more."""

    pid: int
    ppid: int
    comm: str
    state: str
    wchan: str
    why: str


@dataclass(frozen=True, slots=True)
class RankMap:
    ranks: tuple[Rank, ...]
    orphans: tuple[Child, ...]  # data-loader workers whose rank is gone
    unread: tuple[Unread, ...]
    denied: int  # processes of others that this login may not look at
    seen: int  # processes with memory of their own
    skipped: int  # processes that were not looked at because there are too many
    cut: int  # rows that were left out because there are too many


def findings(found: RankMap) -> Iterator[Finding]:
    """Local ranks that are not there, one rank twice, workers left behind, processes that hide."""
    jobs: dict[tuple[object, ...], list[Rank]] = {}
    for rank in found.ranks:
        jobs.setdefault(rank.job, []).append(rank)
    for ranks in jobs.values():
        yield from _missing(ranks)
        yield from _twice(ranks)
    yield from _orphans(found.orphans)
    for process in found.unread:
        if process.state not in ENDED:
            where = f"state {process.state}" + (f" in {process.wchan}" if process.wchan else "")
            says = f"{process.comm} ({process.pid}, {where}) does not let itself be read; it may be a rank"
            yield Finding("rank.unread", "warn", says, {"pid": process.pid})
    if found.skipped or found.cut:
        left = f"{found.skipped} processes and {found.cut} rows" if found.cut else f"{found.skipped} processes"
        yield Finding("rank.too_many", "warn", f"{left} were left out, so ranks may be missing here")


def _missing(ranks: list[Rank]) -> Iterator[Finding]:
    """torchrun tells every rank how many there are on its node. Those of one agent count together."""
    agents: dict[tuple[int | None, int | None], list[Rank]] = {}
    for rank in ranks:
        if rank.local_rank is not None and rank.local_world_size is not None:
            agents.setdefault((rank.node_rank, rank.local_world_size), []).append(rank)
    for (_, size), here in agents.items():
        there = {rank.local_rank for rank in here}
        if size is None or size > 1024 or len(there) >= size:
            continue
        gone = [number for number in range(size) if number not in there]
        local = _list(gone)
        says = f"local rank {local} is" if len(gone) == 1 else f"local ranks {local} are"
        says = f"{says} not running: {len(there)} of {size} are there"
        first, subject = here[0], {}
        if first.source == "env" and first.local_rank is not None:  # torchrun numbers the ranks of a node in a row
            subject = {"rank": first.rank - first.local_rank + gone[0]}
        yield Finding("rank.missing", "bad", says, subject)


def _twice(ranks: list[Rank]) -> Iterator[Finding]:
    by_number: dict[int, list[Rank]] = {}
    for rank in ranks:
        by_number.setdefault(rank.rank, []).append(rank)
    for number, same in by_number.items():
        if len(same) > 1:
            pids = _list([rank.pid for rank in same])
            says = f"rank {number} of {same[0].world_size} runs {len(same)} times (processes {pids})"
            yield Finding("rank.twice", "warn", f"{says}: two jobs that look alike, or one left over", {"rank": number})


def _orphans(orphans: Iterable[Child]) -> Iterator[Finding]:
    by_number: dict[int, list[Child]] = {}
    for child in orphans:
        by_number.setdefault(child.rank, []).append(child)
    for number, left in by_number.items():
        pids = _list([child.pid for child in left])
        says = f"rank {number} is gone, but its data-loader workers still run ({pids})"
        yield Finding("rank.orphans", "warn", says, {"rank": number})


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
