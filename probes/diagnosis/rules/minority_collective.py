"""Ranks of one group that run different things at the same place, or that wait for each other across groups.

Who is wrong is decided by the majority. Two ranks that disagree are a draw: both are named, none is blamed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from probes.catalog.recorder.facts import Signature
from probes.diagnosis.circles import circle
from probes.diagnosis.comparing import comparable, operation
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.stalls import Stall
from probes.diagnosis.suspects import ranks_said, shared

MISMATCH, SHAPE, CYCLE = "fw.collective_mismatch", "fw.collective_shape_mismatch", "fw.group_order_cycle"
MOST_STALLS = 256  # that are compared for their order
LONELY = 3  # judgement: so many that are not there make it likelier that the one is wrong


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for stall in evidence.stalls.all:
        by_what: dict[object, list[int]] = {}
        for rank, ran in stall.odd.items():
            by_what.setdefault(comparable(ran), []).append(rank)
        for ranks in by_what.values():
            yield _odd(evidence, stall, ranks, stall.odd[ranks[0]])
        if stall.draw:
            yield _draw(evidence, stall)
        yield from _alone(evidence, stall)
    if evidence.stalls.cycle:
        yield _cycle(evidence, evidence.stalls.cycle)
    elif not evidence.stalls.culprits:
        yield from _by_order(evidence)


def _cause(one: Signature, other: Signature) -> str:
    return MISMATCH if operation(one.op) != operation(other.op) else SHAPE


def _odd(evidence: Evidence, stall: Stall, ranks: list[int], ran: Signature) -> Hypothesis:
    views = [evidence.job.view(rank) for rank in ranks]
    subject, called = shared(views)
    cause = _cause(ran, stall.what)
    others = [one for one in stall.members if one not in stall.odd and one not in stall.unknown]
    place = f"#{stall.seq} of {stall.desc or stall.group}"
    runs, at = "runs" if len(ranks) == 1 else "run", ""
    because = [
        Reason(f"{ranks_said(ranks)} {runs} {ran} as collective {place}", views[0].ref("rank.flight_recorder")),
        Reason(
            f"{ranks_said(others)} run {stall.what} there", evidence.job.view(min(others)).ref("rank.flight_recorder")
        ),
    ]
    if (waits := views[0].waits) is not None and waits.at is not None:
        because.append(Reason(f"rank {ranks[0]}: main thread in {waits}", views[0].ref("rank.stack")))
        at = f" at {waits.at.short}"
    return Hypothesis(
        cause,
        {**subject, "group": stall.desc or stall.group},
        f"{called} {runs} {ran} where {ranks_said(others)} run {stall.what}, collective {place}{at}",
        tuple(because),
        ("other_operation" if cause == MISMATCH else "other_size",),
        would_change=("dumps that hold the collectives before this one and differ earlier",),
        ranks=frozenset(stall.members),
        nodes=frozenset(view.node for view in views),
    )


def _draw(evidence: Evidence, stall: Stall) -> Hypothesis:
    ran = list(stall.draw.items())
    cause = _cause(ran[0][1], next((what for _, what in ran if what != ran[0][1]), ran[0][1]))
    listed = "; ".join(f"rank {rank} {what}" for rank, what in ran[:4])
    return Hypothesis(
        cause,
        {"group": stall.desc or stall.group},
        f"Ranks disagree in collective #{stall.seq} of {stall.desc or stall.group}, and no majority tells: {listed}",
        tuple(
            Reason(f"rank {rank} runs {what}", evidence.job.view(rank).ref("rank.flight_recorder"))
            for rank, what in ran[:4]
        ),
        ("draw",),
        would_change=("a third rank of this group",),
        ranks=frozenset(stall.draw),
        nodes=frozenset(evidence.job.view(rank).node for rank in stall.draw),
    )


def _cycle(evidence: Evidence, cycle: Sequence[int]) -> Hypothesis:
    """Whose order is the odd one is decided by the majority of the ranks that are in it."""
    stalls = evidence.stalls.crossed
    fewest = min(stalls, key=lambda stall: len(set(stall.waiting) & set(cycle)))
    sizes = sorted(len(set(stall.waiting) & set(cycle)) for stall in stalls)
    odd = sorted(set(fewest.waiting) & set(cycle)) if sizes[0] < sizes[1] else []
    listed = "; ".join(f"{ranks_said(list(stall.waiting))} in {stall.called}" for stall in stalls[:4])
    because = tuple(_in(evidence, stall) for stall in stalls[:6])
    says = "Ranks wait for each other in a circle across groups"
    signal = "groups_crossed" if all(stall.sure or not stall.perhaps for stall in stalls) else "groups_crossed_by_guess"
    return _crossed(evidence, odd, cycle, f"{says}{{}}: {listed}", because, signal)


def _in(evidence: Evidence, stall: Stall) -> Reason:
    ref = evidence.job.view(min(stall.waiting)).ref("rank.flight_recorder")
    return Reason(f"{ranks_said(list(stall.waiting))} in {stall.called}", ref)


def _crossed(
    evidence: Evidence, odd: list[int], ranks: Sequence[int], says: str, because: tuple[Reason, ...], signal: str
) -> Hypothesis:
    """`says` has a place for whose order it is."""
    views = [evidence.job.view(rank) for rank in odd]
    who = f", {ranks_said(odd)} in an order of {'its' if len(odd) == 1 else 'their'} own" if odd else ""
    return Hypothesis(
        CYCLE,
        shared(views)[0] if views else {},
        says.format(who),
        because,
        (signal,),
        would_change=("a dump in which one of these groups goes on",),
        ranks=frozenset(ranks),
        nodes=frozenset(evidence.job.view(rank).node for rank in ranks),
    )


def _by_order(evidence: Evidence) -> Iterator[Hypothesis]:
    """Everybody has entered everything, and nothing ends: the device may run one group first on some ranks and another
    first on others. Told by the order in which each rank enqueued them, which is how its device takes them."""
    stalls = [stall for stall in evidence.stalls.all if stall.complete and not stall.p2p]
    queued: dict[int, list[tuple[int, int]]] = {}
    for at, stall in enumerate(stalls[:MOST_STALLS]):
        for rank, one in stall.waiting.items():
            if one.entry.record is not None:
                queued.setdefault(rank, []).append((one.entry.record, at))
    orders: dict[tuple[int, int], dict[bool, list[int]]] = {}
    for rank, places in queued.items():
        for first, second in itertools.combinations([at for _, at in sorted(places)[:8]], 2):
            pair = (min(first, second), max(first, second))
            orders.setdefault(pair, {}).setdefault(first < second, []).append(rank)
    for (one, other), sides in orders.items():
        if len(sides) == 2:
            few, many = sorted(sides.values(), key=len)
            listed = f"{stalls[one].called} and {stalls[other].called}"
            says = f"Ranks enqueued two groups in opposite order{{}}: {listed}"
            because = tuple(_in(evidence, stalls[at]) for at in (one, other))
            odd = few if len(few) < len(many) else []
            yield _crossed(evidence, odd, few + many, says, because, "groups_enqueued_crosswise")
            return
    heads = {rank: [at for _, at in sorted(places)[:1]] for rank, places in queued.items()}
    later = {at: [rank for rank in stall.waiting if at not in heads.get(rank, [at])] for at, stall in enumerate(stalls)}
    ring, crossing = circle(heads, later)  # of more groups than two, no two of which share two ranks
    if len(crossing) > 1:
        crossed = [stalls[at] for at in sorted(crossing)]
        says = "Ranks enqueued groups in orders that make a circle{}: " + "; ".join(one.called for one in crossed[:4])
        because = tuple(_in(evidence, stall) for stall in crossed[:6])
        yield _crossed(evidence, [], sorted(ring), says, because, "groups_enqueued_crosswise")


def _alone(evidence: Evidence, stall: Stall) -> Iterator[Hypothesis]:
    """One rank has entered what nobody else has: the branch may be its own, and the others not late."""
    free = [rank for rank in stall.late if rank in evidence.stalls.culprits]
    if stall.p2p or len(stall.waiting) != 1 or len(free) < LONELY or 2 * len(free) < len(stall.members):
        return
    (rank,) = stall.waiting
    view = evidence.job.view(rank)
    yield Hypothesis(
        MISMATCH,
        {**view.subject, "group": stall.desc or stall.group},
        f"{view.headline} alone has entered {stall.called}: the others have not come to it",
        (
            Reason(f"rank {rank} waits in {stall.called}", view.ref("rank.flight_recorder")),
            Reason(f"{ranks_said(free)} have not entered it, and wait nowhere",
                evidence.job.view(free[0]).ref("rank.flight_recorder")),
        ),
        ("alone_in_collective",),
        would_change=("another rank that enters it", "stacks that say what holds the others back"),
        ranks=frozenset({rank}),
        nodes=frozenset({view.node}),
    )  # fmt: skip


RULE = Rule((MISMATCH, SHAPE, CYCLE), judge)
