"""Where the ranks of a job wait for each other: flight recorders of all ranks merged, group by group.

A rank that is late in one group may itself wait in another: only who waits for nobody, differs from its group, or
closes a circle is to blame. Who merely waits is never accused. Time and memory grow with the number of pending entries.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from probes.catalog.logs.events import LogEvent, RankLog
from probes.catalog.recorder.facts import Dump, Entry, Group
from probes.diagnosis.comparing import difference
from probes.diagnosis.given_up import given_up
from probes.diagnosis.job import Job
from probes.diagnosis.stalls import Stall, Stalls, Waiting, blame

__all__ = ["LONG_S", "YOUNG_S", "Stall", "Stalls", "Waiting", "stalls_of"]

LONG_S = 10.0  # judgement: from here on a collective stands; before, a slow step looks the same
YOUNG_S = 2.0  # judgement: below this nothing is said of a collective that waits
FEW = 8  # judgement: where more than one in so many dumps is missing, nobody collected them
STEPS = 2  # the first may have been all but done
GOING_ON = {
    "progress",
    "step_times",
    "phase_time",
    "slow_rank",
    "dump_signal",
    "dump_written",
    "checkpoint",
    "bandwidth",
}
_P2P = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})")


GroupKey = tuple[str, frozenset[int] | None]


def stalls_of(job: Job, unanswered: bool = False) -> Stalls:
    """Merge the dumps of all ranks. `unanswered`: some nodes have not told theirs, so a missing dump means nothing."""
    dumps = {rank: view.dump for rank, view in job.ranks.items() if view.dump is not None}
    found = Stalls()
    by_group = _by_group(dumps)
    members = {rank for _, ranks in by_group for rank in ranks or ()} | set(job.world or ()) | set(dumps)
    absent = members - set(dumps)
    collected = not unanswered and len(dumps) > 1 and len(absent) <= max(1, len(members) // FEW)
    found.uncollected = frozenset() if collected or not dumps else frozenset(absent)
    stands = _stands(job, dumps)
    for key, groups in by_group.items():
        stall = _stall(job, key, groups, dumps, collected, stands)
        found.all += [stall] if stall is not None else []
        found.all += _pairs(key, groups, dumps, collected)
    found.moving = _moving(dumps, found.all)
    if stepped := _stepped(job):  # whatever the dumps show waiting came to its end
        return Stalls(uncollected=found.uncollected, moving=True, stepped=stepped)
    if not found.all and collected:
        found.silent = tuple(sorted(absent))
    found.all = [stall for stall in found.all if stall.age_s is None or stall.age_s >= YOUNG_S]
    _guess_members(found.all)
    found.all.sort(key=lambda stall: -(stall.age_s or 0.0))
    blame(found)
    return found


def _stepped(job: Job) -> str:
    """The reading of a log that tells of further steps after its ranks were asked for their dumps, of no failure and
    of no start: the job was dumped while it ran. Steps are taken together, so one writer speaks for all."""
    asked: dict[int, int] = {}
    # What goes on after a dump makes the dump one of earlier.
    for event, log, _ in itertools.chain(job.earlier, job.said("dump_signal")):
        if event.kind == "dump_signal":
            asked[id(log)] = max(event.line or 0, asked.get(id(log), 0))
    if not asked:
        return ""

    def after(event: LogEvent, log: RankLog) -> bool:
        return id(log) in asked and (event.line or 0) > asked[id(log)]

    told = itertools.chain(job.earlier, job.events)
    broken = {id(log) for event, log, _ in told if event.kind not in GOING_ON and after(event, log)}
    for event, log, seen in job.said("progress"):
        steps = event.seq is not None and event.count >= STEPS
        if steps and id(log) in asked and id(log) not in broken and _goes_on(event, asked[id(log)]):
            return seen.ref
    return ""


def _goes_on(event: LogEvent, line: int) -> bool:
    """Whether lines of this kind go on below a line: all of them, or as many as are steps that were not under way."""
    last = event.more.get("last_place")
    return (event.line or 0) > line or (isinstance(last, int) and last - line >= STEPS)


def _by_group(dumps: Mapping[int, Dump]) -> dict[GroupKey, dict[int, Group]]:
    """Each process group with the ranks that hold it. Groups of one name that have different members are different."""
    found: dict[GroupKey, dict[int, Group]] = {}
    known: dict[object, frozenset[int] | None] = {None: None}
    for rank, dump in dumps.items():
        for group in dump.groups:
            if group.spans not in known:
                known[group.spans] = frozenset(group.ranks or ())
            found.setdefault((group.name, known[group.spans]), {})[rank] = group
    by_name: dict[str, list[GroupKey]] = {}
    for key in found:
        by_name.setdefault(key[0], []).append(key)
    for name, members in [key for key in found if key[1] is None]:
        named = [key for key in by_name[name] if key[1] is not None]
        fits = [key for key in named if set(found[name, members]) <= (key[1] or frozenset())]
        if len(fits) == 1:  # some of its ranks do not say who belongs to it, others do
            found[fits[0]] |= found.pop((name, members))
    return found


def _stands(job: Job, dumps: Mapping[int, Dump]) -> bool:
    """Whether a collective waits for long, or a limit ran out: what moves looks as if some had given up."""
    waits = (one for rank, dump in dumps.items() for group in dump.groups if (one := _waiting(rank, group, dump)))
    if any(one.age_s is None or one.age_s >= LONG_S for one in waits):
        return True
    return next(job.said("gloo_timeout", "watchdog_timeout"), None) is not None


def _stall(
    job: Job, key: GroupKey, groups: Mapping[int, Group], dumps: Mapping[int, Dump], collected: bool, stands: bool
) -> Stall | None:
    waiting = {rank: one for rank, group in groups.items() if (one := _waiting(rank, group, dumps[rank]))}
    if stands:
        ended = given_up(groups, dumps, lambda rank, began: _tells(rank, key, groups, dumps[rank], began))
        waiting |= {rank: _in(rank, entry, groups[rank], dumps[rank]) for rank, entry in ended.items()}
    if not waiting:
        return None
    desc = next((group.desc for group in groups.values() if group.desc), "")
    seq = min(one.seq for one in waiting.values())
    here = {rank: one for rank, one in waiting.items() if one.seq == seq}
    members = key[1] or frozenset(job.world if _default(key[0], desc) and job.world else groups)
    what, _ = Counter(one.what for one in here.values()).most_common(1)[0]
    stall = Stall(key[0], desc, seq, what, members, here, sure=key[1] is not None or _default(key[0], desc))
    silent = members - set(dumps)
    stall.silent, stall.unknown = (silent, frozenset()) if collected else (frozenset(), silent)
    began = min((one.entry.created_at for one in here.values() if one.entry.created_at is not None), default=None)
    untold = set()
    for rank in sorted(members - silent):
        reached = (groups[rank].enqueued or 0) if rank in groups else 0
        if reached >= seq:
            continue
        if _tells(rank, key, groups, dumps[rank], began):
            stall.late[rank] = reached
        else:
            untold.add(rank)
    stall.unknown |= untold
    if (found := difference(groups, dumps, stall.seq, len(members))) is not None:
        if found.most is None:
            stall.draw = found.ran
        else:
            stall.what, stall.odd, stall.seq = found.most, found.odd, found.seq
    runs = sum(one.on_device is True for one in here.values())
    stall.queued = frozenset(rank for rank, one in here.items() if runs and one.on_device is False)
    stall.behind = stall.queued if len(stall.queued) < runs else frozenset()
    return stall


def _guess_members(stalls: list[Stall]) -> None:
    """Groups whose members no dump tells: who waits in one of them may be who the others wait for. Where that closes a
    circle, it is the likeliest reason that both stand."""
    unsure = [stall for stall in stalls if not stall.sure and not stall.p2p]
    times = Counter(rank for stall in unsure for rank in stall.waiting)
    for stall in unsure if len(unsure) > 1 else ():
        stall.perhaps = frozenset(rank for rank in times if rank not in stall.members)


def _pairs(key: GroupKey, groups: Mapping[int, Group], dumps: Mapping[int, Dump], collected: bool) -> Iterator[Stall]:
    """Sends and receives that wait for the other side. Their numbers are ranks of the group, in its order
    (ProcessGroupNCCL.cpp, send and recv)."""
    order = next((group.ranks for group in groups.values() if group.p2p and group.ranks), None)
    pending: dict[tuple[str, int, int], Waiting] = {}
    for rank, group in groups.items():
        for entry in group.pending if group.p2p else ():
            what = dumps[rank].signatures[entry.signature]
            named = _P2P.fullmatch(what.op) if entry.is_p2p else None
            place = int(named[3]) if named else -1
            if named and order is not None and place < len(order) and order[place] != rank:
                age, runs = _age(entry, dumps[rank]), _on_device(group, entry)
                one = Waiting(rank, entry.p2p_seq or 0, what, entry, age, runs)
                pending.setdefault((named[1], rank, order[place]), one)
    for (way, rank, peer), one in pending.items():
        if ("recv" if way == "send" else "send", peer, rank) in pending:
            continue  # both have come: what does not end is below them
        group = groups[rank]
        stall = Stall(group.name, group.desc, one.seq, one.what, frozenset({rank, peer}), {rank: one}, p2p=True)
        if peer not in dumps:
            stall.silent, stall.unknown = (
                (frozenset({peer}), stall.unknown) if collected else (stall.silent, frozenset({peer}))
            )
        elif _tells(peer, key, groups, dumps[peer], one.entry.created_at):
            stall.late = {peer: groups[peer].p2p if peer in groups else 0}
        else:
            stall.unknown = frozenset({peer})
        yield stall


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
    return _in(rank, min(entries, key=lambda one: one.seq or 0), group, dump)


def _in(rank: int, entry: Entry, group: Group, dump: Dump) -> Waiting:
    what = dump.signatures[entry.signature]
    return Waiting(rank, entry.seq or 0, what, entry, _age(entry, dump), _on_device(group, entry))


def _age(entry: Entry, dump: Dump) -> float | None:
    """How long a rank was in it when the dump was taken: a file tells of the moment when it was written. Where torch's
    watchdog gave it up, as long as its limit at least."""
    moment = dump.mtime if dump.how == "file" else dump.at
    age = moment - entry.created_at if moment and entry.created_at is not None else None
    if age is None or age < 0:
        age = entry.timeout_ms / 1000 if entry.timed_out and entry.timeout_ms else None
    return age


def _on_device(group: Group, entry: Entry) -> bool | None:
    """Whether its kernel runs. Only where some entry of the group shows that starts are recorded at all."""
    if entry.state == "started" or entry.started_at is not None:
        return True
    timed = any(one.started_at is not None or one.state == "started" or one.duration_ms is not None
        for one in (*group.last, *group.pending))  # fmt: skip
    return False if timed and entry.state == "scheduled" and group.backend != "gloo" else None


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
