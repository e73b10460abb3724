"""Ranks of one group that run different things at the same place, or that wait for each other across groups.

Who is wrong is decided by the majority. Two ranks that disagree are a draw: both are named, none is blamed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from probes.catalog._flight_recorder_facts import Signature
from probes.catalog._log_events import LogEvent
from probes.diagnosis.collectives import Stall
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.suspects import ranks_said

MISMATCH, SHAPE, CYCLE = "fw.collective_mismatch", "fw.collective_shape_mismatch", "fw.group_order_cycle"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for stall in evidence.stalls.all:
        for rank, ran in stall.odd.items():
            yield _odd(evidence, stall, rank, ran)
        if stall.draw:
            yield _draw(evidence, stall)
    yield from _said(evidence)
    if evidence.stalls.cycle:
        yield _cycle(evidence, evidence.stalls.cycle)


def _cause(one: Signature, other: Signature) -> str:
    return MISMATCH if one.op != other.op else SHAPE


def _odd(evidence: Evidence, stall: Stall, rank: int, ran: Signature) -> Hypothesis:
    view = evidence.job.view(rank)
    cause = _cause(ran, stall.what)
    others = [one for one in stall.members if one not in stall.odd]
    place = f"#{stall.seq} of {stall.desc or stall.group}"
    because = [
        Reason(f"rank {rank} runs {ran} as collective {place}", view.ref("rank.flight_recorder")),
        Reason(
            f"{ranks_said(others)} run {stall.what} there", evidence.job.view(min(others)).ref("rank.flight_recorder")
        ),
    ]
    if (waits := view.waits) is not None and waits.at is not None:
        because.append(Reason(f"its main thread is in {waits}", view.ref("rank.stack")))
    at = f" at {waits.at.short}" if waits is not None and waits.at is not None else ""
    return Hypothesis(
        cause,
        {**view.subject, "group": stall.desc or stall.group},
        f"{view.headline} runs {ran} where {ranks_said(others)} run {stall.what}, collective {place}{at}",
        tuple(because),
        ("other_operation" if cause == MISMATCH else "other_size",),
        would_change=("dumps that hold the collectives before this one and differ earlier",),
        ranks=frozenset(stall.members),
        nodes=frozenset({view.node}),
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


def _said(evidence: Evidence) -> Iterator[Hypothesis]:
    """What the logs say: each names itself and one that differs, so the rank that most lines name is the odd one."""
    events = list(evidence.job.said("collective_mismatch"))
    for event, log, seen in events:
        if event.name.startswith("gloo") and event.rank is not None:
            yield from _too_much(evidence, event, quoted(event, log, seen))
    named = Counter(rank for event, _, _ in events for rank in dict.fromkeys(event.about))
    if not named:
        return
    ops = {(event.op, event.more.get("peer_op")) for event, _, _ in events if event.op}
    cause = MISMATCH if any(one != other for one, other in ops) else SHAPE
    rank = _most(named)
    view = evidence.job.view(rank) if rank is not None else None
    what = "another collective" if cause == MISMATCH else "other sizes or types"
    says = f"{view.headline} runs {what} than its peers" if view else f"Ranks run {what}, and each names another"
    yield Hypothesis(
        cause,
        view.subject if view is not None else {},
        says,
        tuple(quoted(*one) for one in events[:3]),
        ("mismatch_in_log",),
        would_change=("a line of another rank that names somebody else",),
        ranks=frozenset(evidence.job.ranks),
        nodes=frozenset(evidence.nodes),
    )


def _too_much(evidence: Evidence, event: LogEvent, reason: Reason) -> Iterator[Hypothesis]:
    """Gloo aborts the rank that receives more than it expects. In its ring a rank receives from the next one, so either
    this one passed too little or the next one too much: nothing on this side proves which. Where the two numbers are
    those of float32 and float64 for one count, the rank with float64 is nearly always the one that slipped.

    Source: gloo/allreduce.cc, ring algorithm ("recvRank", "segmentBytes")."""
    rank = event.rank or 0
    world = evidence.job.world_size or len(evidence.job.ranks)
    sender = (rank + 1) % world if world > 1 else rank
    expected, received = event.more.get("expected"), event.more.get("received")
    doubled = isinstance(expected, int) and isinstance(received, int) and _wider(expected, received, world)
    for one, word in ((rank, "less"), (sender, "more")):
        view = evidence.job.view(one)
        signals = ("draw",) if one == sender else ("draw", "aborted_on_receipt")
        if doubled and one == sender:
            signals, word = ("draw", "float64_among_float32"), "a wider type"
        yield Hypothesis(
            SHAPE,
            view.subject,
            f"{view.headline} passed {word} than its peers, or rank {sender if one == rank else rank} did the reverse",
            (reason,),
            signals,
            would_change=("the sizes and types that each rank passes at this place",),
            ranks=frozenset(evidence.job.ranks),
            nodes=frozenset({view.node}),
        )


def _wider(expected: int, received: int, world: int) -> bool:
    """Whether these are the segments of one count of elements, of 4 bytes here and of 8 bytes there."""
    parts = 2 * max(world, 1)

    def segment(count: int, size: int) -> int:
        return math.ceil(math.ceil(count * size / parts) / size) * size

    counts = range(max(1, (expected - 4) * parts // 4), expected * parts // 4 + 1)
    return len(counts) < 10_000 and any(segment(n, 4) == expected and segment(n, 8) == received for n in counts)


def _most(named: Counter[int]) -> int | None:
    """The rank named by most lines, unless two are named equally often."""
    top = named.most_common(2)
    if not top or (len(top) == 2 and top[0][1] == top[1][1]):
        return None
    return top[0][0]


def _cycle(evidence: Evidence, cycle: Sequence[int]) -> Hypothesis:
    stalls = [stall for stall in evidence.stalls.all if set(stall.waiting) & set(cycle)]
    fewest = min(stalls, key=lambda stall: len(stall.waiting))
    sizes = sorted(len(stall.waiting) for stall in stalls)
    odd = sorted(fewest.waiting) if len(sizes) > 1 and sizes[0] < sizes[1] else []
    subject: dict[str, str | int] = {"rank": odd[0]} if len(odd) == 1 else {}
    if subject and (node := evidence.job.view(odd[0]).node):
        subject["node"] = node
    listed = "; ".join(f"{ranks_said(list(stall.waiting))} in {stall.called}" for stall in stalls[:4])
    who = f", {ranks_said(odd)} in an order of {'its' if len(odd) == 1 else 'their'} own" if odd else ""
    return Hypothesis(
        CYCLE,
        subject,
        f"Ranks wait for each other in a circle across groups{who}: {listed}",
        tuple(
            Reason(
                f"{ranks_said(list(stall.waiting))} in {stall.called}",
                evidence.job.view(min(stall.waiting)).ref("rank.flight_recorder"),
            )
            for stall in stalls[:6]
        ),
        ("groups_crossed",),
        would_change=("a dump in which one of these groups goes on",),
        ranks=frozenset(cycle),
        nodes=frozenset(evidence.job.view(rank).node for rank in cycle),
    )


RULE = Rule((MISMATCH, SHAPE, CYCLE), judge)
