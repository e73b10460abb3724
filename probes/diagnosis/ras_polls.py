"""Several reports of NCCL's RAS, each in a file of its own: which rank is behind in each while all go on.

RAS counts launches, and no two ranks launch at the same moment: one report proves nothing, and in healthy jobs another
rank is behind each time.

Shape    lagging(evidence) -> Lagging, None where no rank is behind again and again
Errors   none
"""

from __future__ import annotations

from dataclasses import dataclass

from probes.catalog.nccl.ras_facts import Communicator, Member
from probes.diagnosis.core import Evidence, Seen

SHARE = 0.8  # of the reports in which anybody is behind; judgement
Poll = tuple[int, Communicator, Seen]  # how far most ranks are, in launches of one operation


@dataclass(frozen=True, slots=True)
class Lagging:
    """`rank` counts within the communicator. `behind`: by how many launches, report by report."""

    rank: int
    op: str
    behind: tuple[int, ...]
    polls: int
    seat: Member
    communicator: Communicator
    seen: Seen


def lagging(evidence: Evidence) -> Lagging | None:
    """The rank that is behind in most reports, of those in which the job has gone on from one to the next."""
    found = [one for (_, op), polls in _polls(evidence).items() if (one := _of(op, polls)) is not None]
    return max(found, key=lambda one: (len(one.behind), one.behind), default=None)


def _polls(evidence: Evidence) -> dict[tuple[str, str], list[Poll]]:
    """{(communicator, operation): its reports}, by how far they are."""
    by_op: dict[tuple[str, str], dict[int, Poll]] = {}
    for seen in evidence.of("nccl.ras"):
        for one in seen.facts.report.communicators:
            ops = {op for member in one.members for op in member.counts} | {counted.op for counted in one.counts}
            for op in ops:
                usual = _usual(one, op)
                if usual is not None:
                    by_op.setdefault((one.hash, op), {}).setdefault(usual, (usual, one, seen))
    return {key: [polls[usual] for usual in sorted(polls)] for key, polls in by_op.items() if len(polls) > 1}


def _usual(one: Communicator, op: str) -> int | None:
    told = [counted for counted in one.counts if counted.op == op]
    if told:
        return max(told, key=lambda counted: (counted.number, counted.count)).count
    return next((member.counts[op] for member in one.members if op in member.counts), None)


def _of(op: str, polls: list[Poll]) -> Lagging | None:
    behind: dict[int, list[int]] = {}
    last: dict[int, int] = {}
    for usual, one, _ in polls:
        for counted in one.counts:
            if counted.op == op and counted.count < usual:
                for rank in counted.ranks:
                    if last.get(rank) != counted.count:  # it moves: who stands is no straggler
                        behind.setdefault(rank, []).append(usual - counted.count)
                    last[rank] = counted.count
    if not behind:
        return None
    rank = max(behind, key=lambda one: len(behind[one]))
    count, others = len(behind[rank]), [len(some) for one, some in behind.items() if one != rank]
    if count < 2 or count < SHARE * len(polls) or max(others, default=0) > (1 - SHARE) * len(polls):
        return None
    _, communicator, seen = polls[-1]
    seats = (member for _, one, _ in reversed(polls) for member in one.members if member.rank == rank)
    return Lagging(rank, op, tuple(behind[rank]), len(polls), next(seats, Member(rank)), communicator, seen)
