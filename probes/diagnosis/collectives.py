"""Where the ranks of a job wait for each other: flight recorders of all ranks merged, group by group.

A rank that is late in one group may itself wait in another: only who waits for nobody, differs from its group, or
closes a cycle is to blame. Who merely waits is never accused. Time and memory grow with the number of pending entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from probes.catalog._flight_recorder_facts import Dump, Entry, Group, Signature
from probes.diagnosis.job import Job

LONG_S = 10.0  # judgement: from here on a collective stands; before, a slow step looks the same
YOUNG_S = 2.0  # judgement: below this nothing is said of a collective that waits
# Operations in which every rank of the group passes the same sizes; in the others a root differs, or each rank may.
SAME_SIZES = ("all_reduce", "allreduce", "broadcast", "_all_gather_base", "all_gather_into_tensor", "_allgather_base",
    "_reduce_scatter_base", "reduce_scatter_tensor", "reduce", "barrier", "allreduce_coalesced")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Waiting:
    """One rank's oldest collective in a group that has not ended. `age_s`: how long it is in it, None if not known."""

    rank: int
    seq: int
    what: Signature
    entry: Entry
    age_s: float | None


@dataclass(slots=True)
class Stall:
    """One group in which somebody waits, at the lowest such place.

    `late`: members that have not enqueued `seq` (with how far each is), `silent`: members without a dump,
    `unknown`: members of whom nothing can be told, `odd`: ranks
    that run another collective there than most, with what they run; empty where it is a draw and `draw` says so.
    """

    group: str
    desc: str
    seq: int
    what: Signature
    members: frozenset[int]
    waiting: dict[int, Waiting]
    late: dict[int, int] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    unknown: frozenset[int] = frozenset()
    odd: dict[int, Signature] = field(default_factory=dict)
    draw: dict[int, Signature] = field(default_factory=dict)

    @property
    def called(self) -> str:
        """`collective #41 (all_reduce [1024] Float) of default_pg`"""
        name = self.desc or f"group {self.group}"
        return f"collective #{self.seq} ({self.what}) of {name}"

    @property
    def age_s(self) -> float | None:
        """How long the first one waits; None where no dump tells."""
        return max((one.age_s for one in self.waiting.values() if one.age_s is not None), default=None)

    @property
    def complete(self) -> bool:
        """Everybody is in it, with the same operation: it was launched everywhere and does not end."""
        return (
            not (self.late or self.silent or self.unknown or self.odd or self.draw)
            and set(self.waiting) == self.members
        )


@dataclass(slots=True)
class Stalls:
    """`all`: every group that stands. `culprits`: ranks that others wait for and that wait for nobody. `cycle`: ranks
    that wait for each other across groups. `silent`: the few members without a dump where nobody waits.
    `moving`: work ended a moment ago, and no group stands."""

    all: list[Stall] = field(default_factory=list)
    culprits: dict[int, Stall] = field(default_factory=dict)
    cycle: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    moving: bool | None = None


def stalls_of(job: Job, unanswered: bool = False) -> Stalls:
    """Merge the dumps of all ranks. `unanswered`: some nodes have not told theirs, so a missing dump means nothing."""
    dumps = {rank: view.dump for rank, view in job.ranks.items() if view.dump is not None}
    found = Stalls()
    for name, groups in _by_group(dumps).items():
        stall = _stall(job, name, groups, dumps, unanswered)
        if stall is not None:
            found.all.append(stall)
    found.moving = _moving(dumps, found.all)
    if not found.all:
        found.silent = () if unanswered else _silent(job, dumps)
    found.all = [stall for stall in found.all if stall.age_s is None or stall.age_s >= YOUNG_S]
    found.all.sort(key=lambda stall: -(stall.age_s or 0.0))
    _blame(found)
    return found


GroupKey = tuple[str, frozenset[int] | None]


def _by_group(dumps: Mapping[int, Dump]) -> dict[GroupKey, dict[int, Group]]:
    """Each process group with the ranks that hold it. Groups of one name that have different members are different."""
    found: dict[GroupKey, dict[int, Group]] = {}
    for rank, dump in dumps.items():
        for group in dump.groups:
            ranks = group.ranks
            members = frozenset(ranks) if ranks is not None else None
            found.setdefault((group.name, members), {})[rank] = group
    for name, members in [key for key in found if key[1] is None]:
        named = [key for key in found if key[0] == name and key[1] is not None]
        fits = [key for key in named if set(found[name, members]) <= (key[1] or frozenset())]
        if len(fits) == 1:  # some of its ranks do not say who belongs to it, others do
            found[fits[0]] |= found.pop((name, members))
    return found


def _stall(
    job: Job, key: GroupKey, groups: Mapping[int, Group], dumps: Mapping[int, Dump], unanswered: bool
) -> Stall | None:
    waiting = {rank: one for rank, group in groups.items() if (one := _waiting(rank, group, dumps[rank]))}
    if not waiting:
        return None
    desc = next((group.desc for group in groups.values() if group.desc), "")
    seq = min(one.seq for one in waiting.values())
    here = {rank: one for rank, one in waiting.items() if one.seq == seq}
    members = key[1] or frozenset(job.world if _default(key[0], desc) and job.world else groups)
    what, _ = Counter(one.what for one in here.values()).most_common(1)[0]
    stall = Stall(key[0], desc, seq, what, members, here)
    reached = {rank: group.enqueued or 0 for rank, group in groups.items()}
    silent = members - set(dumps)
    few = not unanswered and len(silent) <= max(1, len(members) // 8)
    stall.silent = frozenset(silent) if few else frozenset()
    stall.unknown = silent if not few else frozenset()
    began = min((one.entry.created_at for one in here.values() if one.entry.created_at is not None), default=None)
    for rank in sorted(members - silent):
        if reached.get(rank, 0) >= seq:
            continue
        if _tells(rank, key, groups, dumps[rank], began):
            stall.late[rank] = reached.get(rank, 0)
        else:
            stall.unknown |= {rank}
    _differences(stall, groups, dumps)
    return stall


def _silent(job: Job, dumps: Mapping[int, Dump]) -> tuple[int, ...]:
    """Members of the dumps' groups that have none themselves: the dump of the rank that failed is often the one that is
    missing (pytorch#196968). Nothing where many are missing: then nobody collected them."""
    members = {rank for dump in dumps.values() for group in dump.groups for rank in group.ranks or ()}
    absent = sorted((members or set(job.world or ())) - set(dumps))
    return tuple(absent) if len(dumps) > 1 and len(absent) <= max(1, len(members) // 8) else ()


def _tells(rank: int, key: GroupKey, groups: Mapping[int, Group], dump: Dump, began: float | None) -> bool:
    """Whether a dump can prove that its rank is late: it was taken after the others began to wait (a second for clocks
    that differ), and it holds the group, or is known to hold all that there is."""
    moment = dump.mtime if dump.how == "file" else dump.at
    if began is not None and moment and moment < began - 1.0:
        return False
    group = groups.get(rank)
    if group is None or not group.held:
        told = group.told[0] if group is not None and group.told is not None else None
        return told is None and not dump.problems
    return True


def _default(name: str, desc: str) -> bool:
    return desc == "default_pg" or (not desc and name in ("0", ""))


def _waiting(rank: int, group: Group, dump: Dump) -> Waiting | None:
    entries = [entry for entry in group.pending if not entry.is_p2p and entry.seq is not None]
    if not entries:
        return None
    entry = min(entries, key=lambda one: one.seq or 0)
    moment = dump.mtime if dump.how == "file" else dump.at  # a file tells of the moment when it was written
    age = moment - entry.created_at if moment and entry.created_at is not None else None
    if age is not None and age < 0:
        age = None
    return Waiting(rank, entry.seq or 0, dump.signatures[entry.signature], entry, age)


def _differences(stall: Stall, groups: Mapping[int, Group], dumps: Mapping[int, Dump]) -> None:
    """The first place, up to where the group stands, at which its ranks ran different things."""
    histories = {rank: _history(group, dumps[rank]) for rank, group in groups.items()}
    places = sorted({seq for history in histories.values() for seq in history if seq <= stall.seq})
    for seq in places:
        ran = {rank: history[seq] for rank, history in histories.items() if seq in history}
        by_what: dict[object, list[int]] = {}
        for rank, signature in ran.items():
            by_what.setdefault(_comparable(signature), []).append(rank)
        if len(by_what) < 2:
            continue
        sizes = sorted((len(ranks) for ranks in by_what.values()), reverse=True)
        if sizes[0] == sizes[1]:
            stall.draw = ran
            return
        most = max(by_what.values(), key=len)
        stall.what = ran[most[0]]
        stall.odd = {rank: signature for rank, signature in ran.items() if rank not in most}
        stall.seq = seq
        return


def _history(group: Group, dump: Dump) -> dict[int, Signature]:
    """Collective -> what the rank ran there. Coalesced ones are left out: their parts may come in any order."""
    if group.history_first is None or not dump.signatures:
        return {}
    places = enumerate(group.history, group.history_first)
    return {seq: dump.signatures[marks[0]] for seq, marks in places if len(marks) == 1}


def _comparable(signature: Signature) -> object:
    """What must be the same on every rank: always the operation, and where no rank is special also sizes and types."""
    op = signature.op.lower()
    return (op, signature.input_sizes, signature.input_dtypes) if op in SAME_SIZES else (op,)


def _moving(dumps: Mapping[int, Dump], stalls: list[Stall]) -> bool | None:
    """Whether the recorders show a job that goes on: nothing stands for long, and something ended a moment ago."""
    if any(stall.age_s is None or stall.age_s >= YOUNG_S for stall in stalls):
        return False
    ages = [
        dump.at - entry.created_at
        for dump in dumps.values()
        for group in dump.groups
        for entry in group.last
        if not entry.pending and entry.created_at is not None and dump.at and dump.how == "worker server"
    ]
    return min(ages) < YOUNG_S if ages else None


# Whom to blame ------------------------------------------------------------------------------------------------------


def _blame(found: Stalls) -> None:
    waits_for: dict[int, set[int]] = {}
    for stall in found.all:
        others = set(stall.late) | set(stall.silent)
        for rank in stall.waiting:
            waits_for.setdefault(rank, set()).update(others - {rank})
    # Whoever waits in a group that stands is not free to come, whatever that group waits for.
    bound = {rank for stall in found.all for rank in stall.waiting}
    for stall in found.all:
        for rank in sorted(set(stall.late) | stall.silent):
            if rank not in bound and not waits_for.get(rank):
                found.culprits.setdefault(rank, stall)
    if found.culprits or any(stall.odd or stall.draw for stall in found.all):
        return
    found.cycle = tuple(sorted(_in_cycle(waits_for)))


def _in_cycle(waits_for: Mapping[int, set[int]]) -> set[int]:
    """Ranks from which following who waits for whom leads back to themselves."""
    return {rank for rank in waits_for if any(one == rank for one in _reachable(waits_for, rank))}


def _reachable(waits_for: Mapping[int, set[int]], begin: int) -> Iterator[int]:
    seen: set[int] = set()
    todo = list(waits_for.get(begin, ()))
    while todo:
        rank = todo.pop()
        if rank not in seen:
            seen.add(rank)
            yield rank
            todo += waits_for.get(rank, ())
