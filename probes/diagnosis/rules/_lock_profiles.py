"""Another thread than the main one has the interpreter's lock for most of the time: by profiles, or by many looks.

Whoever has the lock keeps all other Python code of its process from running. In a healthy trainer nobody but the main
thread wants it for long: what runs beside waits in native code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason
from probes.diagnosis.job import RankView
from probes.diagnosis.profiled import profiles
from probes.diagnosis.suspects import shared
from probes.diagnosis.whose import rank_of

CAUSE = "cpu.gil_contention"
MOST = 0.5  # of the samples that hold the lock; judgement
HELD, MOST_LOOKS = 4, 0.6  # dumps of stacks in which it has the lock, and their share of all; judgement
NAMELESS = 3  # looks at a process of which no rank is known; judgement
SAMPLES = 50  # fewer are chance; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found = list(_in_profiles(evidence))
    yield from found or _in_looks(evidence)
    for seen in evidence.of("rank.profile"):
        profile = seen.facts
        if profile.looks and profile.beside >= NAMELESS and profile.beside >= MOST_LOOKS * profile.total:
            says = (
                f"thread {profile.beside_at} holds the interpreter's lock in {profile.beside} of {profile.total} looks"
            )
            yield Hypothesis(
                CAUSE,
                {"node": seen.node} if seen.node else {},
                f"A process of the job: {says}, and its main thread needs it",
                (Reason(says, seen.ref),),
                ("lock_held_twice",),
                would_change=("a look at which the main thread holds the lock and goes on",),
                nodes=frozenset({seen.node} if seen.node else ()),
            )


def _in_profiles(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen in profiles(evidence):
        profile, rank = seen.facts, rank_of(evidence, seen)
        if not profile.lock or profile.total < SAMPLES or profile.beside < MOST * profile.total:
            continue
        views = [evidence.job.view(rank)] if rank is not None else []
        share = f"{100 * profile.beside / profile.total:.0f} %"
        at = f", most at {profile.beside_at}" if profile.beside_at else ""
        subject, called = shared(views) if views else ({"node": seen.node} if seen.node else {}, "A rank")
        yield Hypothesis(
            CAUSE,
            subject,
            f"{called}: other threads than the main one have the interpreter's lock for {share} of the time{at}",
            (Reason(f"{share} of the samples with the lock are in other threads{at}", seen.ref),),
            ("lock_held_in_profile",),
            would_change=("the same profile with that thread stopped",),
            ranks=frozenset(view.rank for view in views),
            nodes=frozenset({seen.node} if seen.node else ()),
        )


def _in_looks(evidence: Evidence) -> Iterator[Hypothesis]:
    """Many dumps are a small profile. Which thread it is must be the same for most of them."""
    names: Counter[str] = Counter()
    views: dict[int, RankView] = {}
    looks = forward = 0
    for view in evidence.job.ranks.values():
        if view.stack is None or view.waits is None or view.waits.kind in AWAY:
            continue
        for look in (view.stack.look, *view.stack.earlier):
            looks += 1
            if look.holder and not look.gil:
                names[look.holder] += 1
                forward += not any("run_backward" in frame.function for frame in look.frames)
                views[view.rank] = view
    name, times = max(names.items(), key=lambda one: one[1], default=("", 0))
    if times < max(HELD, MOST_LOOKS * looks) or not forward:
        return  # hooks of autograd run in its own threads, while the main thread waits for them
    some = list(views.values())
    subject, called = shared(some)
    at = next((look.holder_at for view in some if view.stack for look in (view.stack.look,) if look.holder_at), "")
    says = f"thread {name} has the interpreter's lock in {times} of {looks} looks" + (f", at {at}" if at else "")
    yield Hypothesis(
        CAUSE,
        subject,
        f"{called}: {says}",
        tuple(Reason(says, view.ref("rank.stack")) for view in some[:3]),
        ("lock_held_in_looks",),
        would_change=("py-spy record --gil: whether the main thread gets the lock",),
        ranks=frozenset(views),
        nodes=frozenset(view.node for view in some if view.node),
    )


# Native code that waits for other ranks or for the device gives the lock away: nobody is held up by who takes it.
AWAY = ("collective", "p2p", "barrier", "store", "start", "destroy", "device sync", "sleep", "stopped", "data loader")
