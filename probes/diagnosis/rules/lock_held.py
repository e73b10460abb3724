"""The interpreter's lock is held by another thread of the trainer, or a lock of the program is never released.

Source   py-spy marks the thread that holds the lock ("active+gil"); data-loader workers are processes with a lock of
         their own, so what shares it are pin-memory, collate, logging and checkpoint threads
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.catalog._stack_facts import ProcessStack
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.suspects import ranks_said, shared

CAUSE = "cpu.gil_contention"
# Native code that waits for other ranks or for the device gives the lock away: nobody is held up by who takes it.
GIVES_AWAY = ("collective", "p2p", "barrier", "store", "start", "destroy", "device sync", "sleep", "stopped")
MOST = 4


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    held: dict[tuple[str, bool], list[tuple[RankView, Reason]]] = {}
    for view in evidence.job.ranks.values():
        if view.stack is not None and (told := _holder(view, view.stack)) is not None:
            name, twice, reason = told
            held.setdefault((name, twice), []).append((view, reason))
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
    seen = f"in {times} of {len(looks)} looks"
    says = f"rank {view.rank}: thread {name} holds the lock{where} {seen}, main thread in {waits}"
    return name, times > 1, Reason(says, view.ref("rank.stack"))


RULE = Rule((CAUSE,), judge)
