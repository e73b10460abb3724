"""The interpreter's lock is held by another thread of the trainer, or a lock of the program is never released.

Source   py-spy marks the thread that holds the lock ("active+gil"); data-loader workers are processes with a lock of
         their own, so what shares it are pin-memory, collate, logging and checkpoint threads
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.catalog.stacks.facts import ProcessStack
from probes.catalog.stacks.waits import GIVES_AWAY
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.rules import _lock_profiles as lock_profiles
from probes.diagnosis.suspects import ranks_said, shared

CAUSE = "cpu.gil_contention"
MOST = 4
CROWD = 2  # judgement: one thread that computes takes its turns; several leave little to the main thread


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    mostly = list(lock_profiles.judge(evidence))
    yield from mostly
    if mostly:
        return
    yield from _by_looks(evidence)


def _by_looks(evidence: Evidence) -> Iterator[Hypothesis]:
    held: dict[tuple[str, bool], list[tuple[RankView, Reason]]] = {}
    for view in evidence.job.ranks.values():
        if view.stack is not None and (told := _holder(view, view.stack)) is not None:
            name, twice, reason = told
            held.setdefault((name, twice), []).append((view, reason))
    crowded = [
        (view, found)
        for view in evidence.job.ranks.values()
        if view.stack is not None and (found := _crowd(view, view.stack)) is not None
    ]
    for view, (many, name, reason) in crowded[:MOST]:
        yield Hypothesis(
            CAUSE,
            view.subject,
            f"{view.headline}: {many} threads beside the main, such as {name}, compute in Python and need its lock",
            (reason,),
            ("threads_compute_beside",),
            would_change=("py-spy record --gil: whether the main thread gets the lock",),
            ranks=frozenset({view.rank}),
            nodes=frozenset({view.node}),
        )
    busy = [view.rank for view, _ in crowded]
    held = {key: [one for one in some if one[0].rank not in busy] for key, some in held.items()}
    held = {key: some for key, some in held.items() if some}
    said = {event.rank: (event, log, seen) for event, log, seen in evidence.job.said("gil_stuck")}
    for (name, twice), some in held.items():
        views = [view for view, _ in some]
        lines = [quoted(*said[view.rank]) for view in views if view.rank in said][:MOST]
        subject, called = shared(views)
        yield Hypothesis(
            CAUSE,
            subject,
            f"{called}: thread {name} holds the interpreter's lock, which the main thread needs",
            (*(reason for _, reason in some[:MOST]), *lines),
            ("lock_held_twice" if twice else "lock_held_once", *(("lock_in_log",) if lines else ())),
            would_change=("a look at which the main thread holds the lock and goes on",),
            ranks=frozenset(view.rank for view in views),
            nodes=frozenset(view.node for view in views),
        )
    alone = sorted(rank for rank in said if rank is not None)
    if alone and not held:
        views = [evidence.job.view(rank) for rank in alone]
        yield Hypothesis(
            CAUSE,
            shared(views)[0],
            f"torch's monitor could not get the interpreter's lock on {ranks_said(alone)}",
            tuple(quoted(*said[rank]) for rank in alone[:MOST]),
            ("lock_in_log",),
            would_change=("stacks with the thread that holds the lock (py-spy dump, twice)",),
            ranks=frozenset(alone),
            nodes=frozenset(view.node for view in views),
        )


def _holder(view: RankView, stack: ProcessStack) -> tuple[str, bool, Reason] | None:
    """(thread that holds the lock while the main thread needs it, whether at two looks, the reason). A main thread that
    runs needs none: one that waits for the lock sleeps."""
    main, waits = stack.main, view.waits
    if main is None or waits is None or waits.kind in GIVES_AWAY:
        return None
    looks = [stack.look, *stack.earlier]
    names = Counter(look.holder for look in looks if look.holder and look.gil is False and not look.active)
    if not names or any(look.gil for look in looks):
        return None
    name, times = names.most_common(1)[0]
    at = next((look.holder_at for look in looks if look.holder == name and look.holder_at), "")
    where = f" at {at}" if at else ""
    if len(names) > 1:  # threads of one pool
        name, times = f"{name} or another", sum(names.values())
    seen = f"in {times} of {len(looks)} looks"
    says = f"rank {view.rank}: thread {name} holds the lock{where} {seen}, main thread in {waits}"
    return name, times > 1, Reason(says, view.ref("rank.stack"))


def _crowd(view: RankView, stack: ProcessStack) -> tuple[int, str, Reason] | None:
    """(how many, one of them, the reason) where several threads compute in Python beside the main thread, at all of
    several looks. Whoever sleeps stays at its line; who computes moves or runs, and needs the lock for each line."""
    looks = [look for look in (stack.look, *stack.earlier) if look.frames]
    if len(looks) < 2 or (view.waits is not None and view.waits.kind in GIVES_AWAY):
        return None
    if any(look.gil or look.active for look in looks):
        return None
    places: dict[str, set[str]] = {}
    runs: set[str] = set()
    for look in looks:
        for name, at, active in look.beside:
            places.setdefault(name, set()).add(at)
            runs |= {name} if active else set()
    always = [name for name in places if all(any(name == one for one, _, _ in look.beside) for look in looks)]
    moves = [name for name in always if len(places[name]) > 1 or name in runs]
    if len(moves) < CROWD or not runs & set(moves):
        return None
    at = min(places[moves[0]])
    says = f"rank {view.rank}: {len(moves)} other threads run Python code at {len(looks)} looks, such as {moves[0]}"
    return len(moves), moves[0], Reason(f"{says} at {at}", view.ref("rank.stack"))


RULE = Rule((CAUSE,), judge)
