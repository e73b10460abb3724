"""Ranks that others wait for, as far as the watchdog's lines of the others tell it.

Weak on purpose: a rank whose log nobody brought looks like one that never came. torch's "from rank N" names the first
that reported, not the one at fault, and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.ranks.rank_facts import ENDED
from probes.diagnosis.core import Evidence, Reason
from probes.diagnosis.job import Job, quoted
from probes.diagnosis.log_evidence import Said
from probes.diagnosis.rules.watchdog_mismatch import by_group
from probes.diagnosis.suspects import TOGETHER, WORKS, Suspect, ranks_said

IDLE, LESS, ABSENT, UNREAD = "idle_at_dump", "enqueued_less", "absent_from_waiting", "absent_unread"
LONE_STACK = "elsewhere_by_lone_stack"
LEAST = 2  # ranks; judgement: of two the one that is left may as well be slow to end


def by_watchdog(evidence: Evidence) -> Iterator[Suspect]:
    waits = [waiting for waiting in by_group(evidence).values() if _at_one_place(waiting)]
    for waiting in waits:
        yield from _behind(evidence, waiting)
    yield from _idle(evidence, {rank for waiting in waits for rank in waiting})
    yield from _absent(evidence)
    yield from _by_setup(evidence)
    yield from _by_lone_stack(evidence)
    yield from _outlived(evidence)


def _outlived(evidence: Evidence) -> Iterator[Suspect]:
    """Whose process is still there where the others gave up waiting and ended, and their launcher has not noticed."""
    gave_up = next(evidence.job.said("gloo_timeout", "watchdog_timeout", "watchdog_ended"), None)
    known = {rank: view for rank, view in evidence.job.ranks.items() if view.process is not None}
    ended = {rank for rank, view in known.items() if view.process is not None and view.process.state in ENDED}
    left = known.keys() - ended
    if gave_up is None or len(ended) < LEAST or len(left) > max(1, len(ended) // 2):
        return
    for rank in left:
        says = f"the process of rank {rank} is there, those of {ranks_said(sorted(ended))} have ended (state Z)"
        yield Suspect(
            known[rank],
            "is still there, and the others gave up and ended",
            (Reason(says, known[rank].ref("rank.process")), quoted(*gave_up)),
            (ABSENT,),
            waiting=frozenset(ended),
        )


def _at_one_place(waiting: dict[int, Said]) -> bool:
    return len(waiting) > 1 and len({(one[0].seq, one[0].op) for one in waiting.values()}) == 1


def _behind(evidence: Evidence, waiting: dict[int, Said]) -> Iterator[Suspect]:
    """Who has not even enqueued what the others wait in, by its own account of the same group."""
    first = next(iter(waiting.values()))
    seq, group = first[0].seq or 0, first[0].group
    for rank, one in _accounts(evidence, group).items():
        enqueued = one[0].more.get("enqueued")
        if rank in waiting or not isinstance(enqueued, int) or enqueued >= seq:
            continue
        says = f"rank {rank} had enqueued {enqueued} last, {ranks_said(list(waiting))} wait in #{seq} of that group"
        yield Suspect(
            evidence.job.view(rank),
            f"has not enqueued what {ranks_said(list(waiting))} wait in",
            (quoted(*one, says), quoted(*first)),
            (LESS,),
            waiting=frozenset(waiting),
        )


def _accounts(evidence: Evidence, group: str) -> dict[int, Said]:
    """The latest that each rank told of itself in this group."""
    return {
        one[0].rank: one
        for one in evidence.job.said("watchdog_status", "dump_signal")
        if one[0].rank is not None and one[0].group == group and "enqueued" in one[0].more
    }


def _idle(evidence: Evidence, waiting: set[int]) -> Iterator[Suspect]:
    """Who had completed all that it had enqueued when others timed out: it was outside of collectives."""
    told: dict[int, Said] = {}
    busy: set[int] = set()
    for one in evidence.job.said("dump_signal", "watchdog_status"):
        event = one[0]
        if event.rank is None or "enqueued" not in event.more:
            continue
        if event.more["enqueued"] == event.more["completed"]:
            told.setdefault(event.rank, one)
        else:
            busy.add(event.rank)
    idle = {rank: one for rank, one in told.items() if rank not in busy | waiting}
    others = (busy | waiting) - set(idle)
    if not others or len(idle) > max(1, len(others) // 2):
        return
    for rank, one in idle.items():
        says = f"rank {rank} had completed all it had enqueued ({one[0].more['enqueued']}) when the others timed out"
        yield Suspect(
            evidence.job.view(rank),
            "was outside of collectives when the others timed out",
            (quoted(*one, says),),
            (IDLE,),
            waiting=frozenset(others),
        )


def _absent(evidence: Evidence) -> Iterator[Suspect]:
    """Of a group that holds the whole job all ranks but a few wait."""
    job, world = evidence.job, _world(evidence)
    whole = {group: some for group, some in by_group(evidence).items() if _at_one_place(some) and spans_job(some)}
    if not world or not whole:
        return
    its_group, by_rank = max(whole.items(), key=lambda one: len(one[1]))
    elsewhere = {one[0].rank for waiting in by_group(evidence).values() for one in waiting.values()}
    elsewhere |= set(evidence.stalls.behind)  # enqueued it, says its recorder, and its device has not come to it
    first: Said = by_rank[min(by_rank)]
    accounts = _accounts(evidence, its_group)  # and so does a rank's own account of that group
    elsewhere |= {rank for rank, one in accounts.items() if first[0].seq and _enqueued(one) >= first[0].seq}
    absent = [rank for rank in range(world) if rank not in by_rank and rank not in elsewhere]
    nodes = {job.view(rank).node for rank in absent}
    one_node = len(nodes) == 1 and nodes != {""} and len(absent) * 2 < world
    if not absent or (len(absent) > max(1, world // 8) and not one_node):
        return
    read = {one.rank for one, _, _ in job.events}
    for rank in absent:
        says = f"{ranks_said(list(by_rank))} timed out in {first[0].op} #{first[0].seq}, rank {rank} did not"
        known = rank in read
        against = () if known else (Reason(f"nothing of the log of rank {rank} was read", first[2].ref),)
        yield Suspect(
            job.view(rank),
            "is not among the ranks that timed out",
            (quoted(*first, says),),
            (ABSENT if known else UNREAD,),
            against=against,
            waiting=frozenset(by_rank),
        )


def all_timed_out(evidence: Evidence) -> bool:
    """Whether every rank of the job timed out in the same place of a group that holds the whole job, or says that it
    had enqueued more than that: each of them has launched the collective, and it ends nowhere."""
    world = _world(evidence) or 0
    for group, waiting in by_group(evidence).items():
        if len(waiting) < max(world, 2) or not spans_job(waiting):
            continue
        latest = max(one[0].seq or 0 for one in waiting.values())
        accounts = _accounts(evidence, group)
        launched = (one[0].seq == latest or _enqueued(accounts.get(rank)) >= latest for rank, one in waiting.items())
        if all(launched):
            return True
    return False


def _enqueued(account: Said | None) -> int:
    number = account[0].more.get("enqueued") if account is not None else None
    return number if isinstance(number, int) else -1


def spans_job(waiting: dict[int, Said]) -> bool:
    """Whether ranks count in this group as in the job: then it holds the job from its first rank on."""
    return all(event.more.get("group_rank", rank) == rank for rank, (event, _, _) in waiting.items())


def _world(evidence: Evidence) -> int | None:
    counted = [n for event, _, _ in evidence.job.events if isinstance(n := event.more.get("ranks"), int)]
    size: int | None = evidence.job.world_size or max(counted, default=None)
    seen = set(evidence.job.ranks)  # where nothing tells more: all from 0 on that wrote, but for a gap between them
    least = max(seen, default=0) + 1
    gaps = least - len(seen)
    return size or (least if (len(seen) > 2 and not gaps) or (len(seen) > 3 and gaps <= max(1, least // 8)) else None)


def _by_setup(evidence: Evidence) -> Iterator[Suspect]:
    """Who should have begun a communicator that others wait to join."""
    said: list[Said] = list(evidence.job.said("setup_missed"))
    waiting = frozenset(rank for one in said if (rank := one[0].rank) is not None)
    for one in said[:1]:
        for rank in one[0].about:
            if rank in waiting:
                continue
            says = f"{ranks_said(waiting) if waiting else 'others'} waited for rank {rank} to begin a communicator"
            yield Suspect(
                evidence.job.view(rank),
                "never came to set up a communicator",
                (quoted(*one, says),),
                ("named_by_setup",),
                waiting=waiting,
            )


def _gave_up(evidence: Evidence) -> set[int]:
    """Ranks whose limit ran out in one and the same collective."""
    at: dict[object, set[int]] = {}
    for event, _, _ in evidence.job.said("watchdog_timeout"):
        if event.rank is not None and event.seq is not None:
            at.setdefault((event.seq, event.op, event.sizes), set()).add(event.rank)
    return next(iter(at.values())) if len(at) == 1 else set()


def _by_lone_stack(evidence: Evidence) -> Iterator[Suspect]:
    """Nobody took stacks of those that wait, their logs tell it: whoever has a stack elsewhere is not among them."""
    job: Job = evidence.job
    waits = {rank: view.waits for rank, view in job.ranks.items() if view.stack is not None and view.stack.threads}
    if not waits or any(wait is not None and wait.kind in TOGETHER for wait in waits.values()):
        return
    gave_up = _gave_up(evidence)
    if len(gave_up) < 2 or 2 * len(waits) > len(gave_up) or set(waits) & _waited(evidence):
        return
    said = next(one for one in job.said("watchdog_timeout") if one[0].rank in gave_up)
    for rank, wait in waits.items():
        if wait is None or wait.kind not in WORKS:
            continue  # what else it may be in, when is not known: that accuses nobody
        view = job.ranks[rank]
        own = Reason(f"rank {rank}: main thread in {wait}", view.ref("rank.stack"))
        peers = quoted(*said, f"{ranks_said(sorted(gave_up))} timed out in {said[0].op} #{said[0].seq}")
        yield Suspect(
            view,
            "is not in the collective in which the others timed out",
            (peers, own),
            (LONE_STACK,),
            waiting=frozenset(gave_up),
        )


def _waited(evidence: Evidence) -> set[int]:
    told = ("watchdog_timeout", "gloo_timeout", "blocking_wait", "store_timeout", "setup_missed")
    return {event.rank for event, _, _ in evidence.job.said(*told) if event.rank is not None}
