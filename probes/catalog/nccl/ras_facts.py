"""What NCCL's RAS says of a job: the facts of nccl.ras, and which of its mismatches last.

RAS counts LAUNCHES, not completions: ranks are never in perfect step, so one poll that differs proves nothing, and a
job whose counts agree may hang all the same (in the network or on a GPU).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of one communicator. `rank` counts within the communicator; gpu is the CUDA index of its process."""

    rank: int
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    nvml: int | None = None
    state: str = ""  # RUNNING, INIT, FINALIZE, ABORT, NOCOMM; "" not told
    error: str = ""  # of initialisation or asynchronous; "" none
    counts: Mapping[str, int] = field(default_factory=dict)  # operation -> launches so far


@dataclass(frozen=True, slots=True)
class Missing:
    """A rank that RAS has no data of. Not unresponsive: its process answered, but no longer has this communicator."""

    rank: int | None  # None: a process, told for the whole job
    host: str = ""
    pid: int | None = None
    gpus: str = ""
    unresponsive: bool | None = None
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """`number` ranks have launched `count` operations; `ranks` names those that the report names."""

    op: str
    count: int
    number: int
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Communicator:
    hash: str  # as in NCCL's log lines, without 0x
    size: int | None = None
    answered: int | None = None  # ranks that RAS has data of
    status: str = ""
    errors: tuple[str, ...] = ()  # MISMATCH, ERROR, INCOMPLETE
    members: tuple[Member, ...] = ()  # JSON: all, of large ones the node's own and who stands out; text: the latter
    missing: tuple[Missing, ...] = ()
    counts: tuple[Counted, ...] = ()  # of operations in which ranks differ, the most frequent count first


@dataclass(frozen=True, slots=True)
class Group:
    """A line of the text report's table: communicators alike in size, nodes, status and errors."""

    communicators: int
    nodes: int
    ranks_per_communicator: int
    ranks: int
    status: str
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """One answer to VERBOSE STATUS."""

    version: str = ""
    driver: int | None = None  # CUDA driver version, 12080 is 12.8
    communicators: tuple[Communicator, ...] = ()
    groups: tuple[Group, ...] = ()
    processes: tuple[Missing, ...] = ()  # missing or dead, of the whole job
    timeouts: int = 0
    total: int | None = (
        None  # communicators of the job; JSON of a large job holds those of the node and what stands out
    )
    left_off: int = 0  # of these: ranks that the node left out: in step with most others, and on other nodes


@dataclass(frozen=True, slots=True)
class Lag:
    """A rank that was out of step in both polls, and in the second still not where the others were in the first."""

    communicator: str
    op: str
    rank: int
    count: int  # in the second poll
    usual: int  # what most ranks had launched in the first poll (behind), or in the second (ahead)
    behind: bool
    moved: bool  # it launched something between the polls
    host: str = ""
    pid: int | None = None
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Ras:
    address: str
    report: Report  # the last poll
    polls: int
    apart_s: float | None  # between the polls
    lags: tuple[Lag, ...] = ()
    moved: bool | None = None  # any count rose between the polls; None: not known
    other: tuple[str, ...] = ()  # addresses that did not answer, with why


def lags(one: Report, two: Report) -> Iterator[Lag]:
    """What persists from one poll to the next, communicator by communicator."""
    before = {communicator.hash: communicator for communicator in one.communicators}
    for communicator in two.communicators:
        if communicator.hash in before:
            yield from _lags(before[communicator.hash], communicator)


def _lags(one: Communicator, two: Communicator) -> Iterator[Lag]:
    seats = {member.rank: member for member in two.members}
    for op in dict.fromkeys(counted.op for counted in two.counts):
        first, usual_first = _odd(one, op)
        second, usual_second = _odd(two, op)
        for rank, count in second.items():
            if rank not in first or usual_first is None or usual_second is None:
                continue
            behind = first[rank] < usual_first and count < usual_first
            ahead = first[rank] > usual_first and usual_second < first[rank]
            if behind or ahead:
                seat = seats.get(rank, Member(rank))
                usual = usual_first if behind else usual_second
                moved = count != first[rank]
                yield Lag(two.hash, op, rank, count, usual, behind, moved, seat.host, seat.pid, seat.gpu)


def _odd(communicator: Communicator, op: str) -> tuple[dict[int, int], int | None]:
    """Ranks that are not where most are, with their counts; and where most are."""
    groups = [counted for counted in communicator.counts if counted.op == op]
    if not groups:
        return {}, None
    usual = max(groups, key=lambda counted: (counted.number, counted.count))
    return {rank: other.count for other in groups if other is not usual for rank in other.ranks}, usual.count


def moved(one: Report, two: Report) -> bool | None:
    """Whether any rank launched anything between two polls. Only JSON tells the counts of ranks that are in step."""
    known = {(c.hash, m.rank): m.counts for c in one.communicators for m in c.members if m.counts}
    pairs = [
        (known[c.hash, m.rank], m.counts)
        for c in two.communicators
        for m in c.members
        if m.counts and (c.hash, m.rank) in known
    ]
    return any(before != after for before, after in pairs) if pairs and not two.groups else None


def counted(members: tuple[Member, ...], tally: Mapping[str, Mapping[int, int]] | None = None) -> tuple[Counted, ...]:
    """For each operation in which these ranks differ: how many launched how many, the most frequent first.

    `tally` (operation -> count -> ranks) holds the numbers where the node left ranks out of `members`.
    """
    found: list[Counted] = []
    for op in dict.fromkeys(op for member in members for op in member.counts):
        by_count: dict[int, list[int]] = {}
        for member in members:
            if op in member.counts:
                by_count.setdefault(member.counts[op], []).append(member.rank)
        if len(by_count) > 1:
            known = (tally or {}).get(op, {})
            numbers = {count: max(known.get(count, 0), len(ranks)) for count, ranks in by_count.items()}
            most = max(numbers, key=lambda count: (numbers[count], count))
            for count in sorted(numbers, key=lambda count: (count != most, -numbers[count], -count))[:256]:
                # Of the crowd its number is enough: what matters is who is not in it.
                ranks = () if count == most else tuple(sorted(by_count[count])[:256])
                found.append(Counted(op, count, numbers[count], ranks))
    return tuple(found)
