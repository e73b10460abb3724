"""A native extension calls back into Python all the time: the CPU is spent between the two.

Source   profiles with native frames, py-spy record --native or perf: an extension's frame with Python above and below
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.stacks.facts import ProcessStack
from probes.catalog.stacks.profile import callback
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView
from probes.diagnosis.profiled import profiles
from probes.diagnosis.suspects import shared
from probes.diagnosis.whose import rank_of

CAUSE = "cpu.native_callback"
LOOKS = 2
MOST_SAMPLES = 0.3  # judgement: from here on it is what the process does


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    looked = [*_in_looks(evidence), *_in_nameless(evidence)]
    yield from looked
    if not any("callbacks_in_looks" in one.signals for one in looked):  # else it is the same once more
        yield from _in_perf(evidence)
    for seen in profiles(evidence):
        profile, rank = seen.facts, rank_of(evidence, seen)
        for name, count in profile.callbacks[:1]:
            if count < MOST_SAMPLES * profile.total:
                continue
            subject: dict[str, str | int] = {"node": seen.node} if seen.node else {}
            if rank is not None:
                subject = evidence.job.view(rank).subject
            share = f"{100 * count / profile.total:.0f} % of {profile.total} samples"
            place = f", most in {profile.callback_at}" if profile.callback_at else ""
            yield Hypothesis(
                CAUSE,
                subject,
                f"{name} spends {share} in call-backs into Python{place}",
                (Reason(f"{share} have Python below {name}, called by it{place}", seen.ref),),
                ("callbacks_in_profile",),
                would_change=("a profile in which the extension does not call Python",),
                ranks=frozenset({rank}) if rank is not None else frozenset(),
                nodes=frozenset({seen.node}),
            )


def _in_perf(evidence: Evidence) -> Iterator[Hypothesis]:
    """perf's own report: shares of functions, with whose stacks they share no more than the counts."""
    for seen in evidence.of("rank.perf_shares"):
        facts, rank = seen.facts, rank_of(evidence, seen)
        if not facts.callback:
            continue
        subject: dict[str, str | int] = {"node": seen.node} if seen.node else {}
        view = evidence.job.view(rank) if rank is not None else None
        says = f"{facts.callback_percent:g} % of the samples are below {facts.callback}, which calls Python back"
        yield Hypothesis(
            CAUSE,
            view.subject if view is not None else subject,
            says,
            (Reason(says, seen.ref),),
            ("callbacks_in_perf",),
            would_change=("a profile in which the extension does not call Python",),
            ranks=frozenset({rank}) if rank is not None else frozenset(),
            nodes=frozenset({seen.node}),
        )


def _in_looks(evidence: Evidence) -> Iterator[Hypothesis]:
    """The same in dumps of stacks with native frames: several of them are a small profile."""
    found: dict[str, list[tuple[RankView, str]]] = {}
    looks = 0
    for view in evidence.job.ranks.values():
        if view.stack is None:
            continue
        for look in (view.stack.look, *view.stack.earlier):
            native = any(frame.line is None for frame in look.frames)
            looks += native
            told = callback([frame.short for frame in reversed(look.frames)]) if native else None
            if told is not None:
                found.setdefault(told[0], []).append((view, told[1]))
    for name, some in found.items():
        views = list({view.rank: view for view, _ in some}.values())
        often = len(some) >= LOOKS and len(some) >= 0.5 * looks
        subject, called = shared(views)
        says = f"{name} calls {some[0][1]} in {len(some)} of {looks} looks with native frames"
        yield Hypothesis(
            CAUSE,
            subject,
            f"{called}: {says}",
            (Reason(says, views[0].ref("rank.stack")),),
            ("callbacks_in_looks" if often else "callbacks_in_a_look",),
            would_change=("a profile in which the extension does not call Python",),
            ranks=frozenset(view.rank for view in views),
            nodes=frozenset(view.node for view in views),
        )


def _in_nameless(evidence: Evidence) -> Iterator[Hypothesis]:
    """The same of processes whose rank nothing tells."""
    nodes: dict[str, list[tuple[ProcessStack, Seen]]] = {}
    for seen in evidence.of("rank.stack"):
        nodes.setdefault(seen.node, []).extend((one, seen) for one in seen.facts.processes if one.rank is None)
    for node, some in nodes.items():
        looks = [look for one, _ in some if not one.worker for look in (one.look, *one.earlier)]
        looks = [look for look in looks if any(frame.line is None for frame in look.frames)]
        told = [one for look in looks if (one := callback([frame.short for frame in reversed(look.frames)]))]
        if not told:
            continue
        name, below = told[0]
        often = len(told) >= LOOKS and len(told) >= 0.5 * len(looks)
        says = f"{name} calls {below} in {len(told)} of {len(looks)} looks with native frames"
        yield Hypothesis(
            CAUSE,
            {"node": node} if node else {},
            f"A process{' on ' + node if node else ''}: {says}",
            (Reason(says, some[0][1].ref),),
            ("callbacks_in_looks" if often else "callbacks_in_a_look",),
            would_change=("a profile in which the extension does not call Python",),
            nodes=frozenset({node}),
        )


RULE = Rule((CAUSE,), judge)
