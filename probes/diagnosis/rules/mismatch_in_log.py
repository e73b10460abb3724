"""Logs that say it themselves: ranks ran different collectives, or passed different sizes.

Source   torch's TORCH_DISTRIBUTED_DEBUG=DETAIL compares fingerprints; gloo/allreduce.cc aborts on a wrong length;
         DDP and FSDP compare models when they wrap them
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.wrappers import COUNTS, LISTED, ORDER, PARAMETERS
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said
from probes.diagnosis.suspects import shared

MISMATCH, SHAPE, MISSING = "fw.collective_mismatch", "fw.collective_shape_mismatch", "fw.rank_missing_collective"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    """What the logs say: each names itself and one that differs, so the rank that most lines name is the odd one."""
    said = list(evidence.job.said("collective_mismatch"))
    yield from _by_wrapper(evidence, said)
    yield from _listed(evidence, said)
    events = [one for one in said if one[0].name not in (ORDER, PARAMETERS, COUNTS, LISTED)]
    for event, log, seen in events:
        if event.name.startswith("gloo"):
            yield from _too_much(evidence, event, quoted(event, log, seen))
    named = Counter(rank for event, _, _ in events for rank in dict.fromkeys(event.about))
    if not named:
        return
    if events and all(map(_counts_differ, (event for event, _, _ in events if event.about))):
        yield from _of_other_count(evidence, events, named)
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


def _by_wrapper(evidence: Evidence, said: list[Said]) -> Iterator[Hypothesis]:
    """FSDP compares all ranks and names the first two that differ; DDP compares each with rank 0."""
    kinds = (
        (ORDER, MISMATCH, "gathers other parameters"),
        (COUNTS, MISMATCH, "gathers other parameters, or in another order,"),
        (PARAMETERS, SHAPE, "has other sizes"),
    )
    for kind, cause, what in kinds:
        events = [one for one in said if one[0].name == kind]
        if not events:
            continue
        rank = _second(events[0][0]) if kind == ORDER else _unlike_zero(evidence, events)
        view = evidence.job.view(rank) if rank is not None else None
        yield Hypothesis(
            cause,
            view.subject if view is not None else {},
            f"{view.headline if view else 'A rank'} {what} than its peers"
            + (", when the model is wrapped or first run" if kind != COUNTS else ""),
            tuple(quoted(*one) for one in events[:3]),
            ("mismatch_in_log",),
            would_change=("the same model and branch on every rank, and the error all the same",),
            ranks=frozenset(evidence.job.ranks),
            nodes=frozenset(evidence.nodes),
        )


def _listed(evidence: Evidence, said: list[Said]) -> Iterator[Hypothesis]:
    """accelerate lists the shape of each process; the smaller side is odd."""
    events = [one for one in said if one[0].name == LISTED]
    if not events:
        return
    shapes = {rank: str(event.more.get("shape", "")) for event, _, _ in events for rank in event.about}
    usual = Counter(shapes.values()).most_common(2)
    draw = len(usual) < 2 or usual[0][1] == usual[1][1]
    odd = [] if draw else sorted(rank for rank, one in shapes.items() if one != usual[0][0])
    subject, called = shared([evidence.job.view(rank) for rank in odd]) if odd else ({}, "Ranks")
    yield Hypothesis(
        SHAPE,
        subject,
        f"{called} gave another shape than the others" if odd else "Ranks gave different shapes to one operation",
        tuple(quoted(*one) for one in sorted(events, key=lambda one: not set(one[0].about) & set(odd))[:4]),
        ("mismatch_in_log",),
        would_change=("the same shapes on all ranks, and the error all the same",),
        ranks=frozenset(evidence.job.ranks),
        nodes=frozenset(evidence.nodes),
    )


def _counts_differ(event: LogEvent) -> bool:
    """One call and size on both sides, and only the number of calls differs."""
    here, there = event.seq, event.more.get("peer_seq")
    same = event.op == event.more.get("peer_op") and _dims(event.more.get("peer_shape")) == event.sizes
    return here is not None and isinstance(there, int) and here != there and bool(event.op) and same


def _dims(told: object) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,18}", str(told))[:16]) if told is not None else ()


def _of_other_count(evidence: Evidence, events: list[Said], named: Counter[int]) -> Iterator[Hypothesis]:
    """Who has made fewer calls than the others left one out, or the others made one more: most lines decide."""
    odd = _most(named) if len(named) > 1 or sum(named.values()) > 1 else None
    behind: set[int] = set()
    for event, _, _ in events:
        reporter, peer = event.more.get("reporter"), event.about[0] if event.about else None
        fewer = reporter if (event.seq or 0) < int(event.more.get("peer_seq", 0)) else peer
        behind |= {fewer} if isinstance(fewer, int) else set()
    late = odd is not None and odd in behind
    rank = odd if odd is not None else next(iter(behind)) if len(behind) == 1 else None
    view = evidence.job.view(rank) if rank is not None else None
    who = view.headline if view else "A rank"
    yield Hypothesis(
        MISSING if late else MISMATCH,
        view.subject if view is not None else {},
        f"{who} has made fewer calls than its peers"
        if late
        else f"{who} has made another number of calls than its peers",
        tuple(quoted(*one) for one in events[:3]),
        ("fewer_calls_in_log" if late else "other_count_in_log",),
        would_change=("lines of the other ranks, which tell who is alone",),
        ranks=frozenset(evidence.job.ranks),
        nodes=frozenset(evidence.nodes),
    )


def _second(event: LogEvent) -> int | None:
    """Pairs are compared in order: all below the second rank are like the first. Of the first two either may be odd."""
    first, second = event.more.get("first"), event.more.get("second")
    return second if isinstance(second, int) and first == 0 and second > 1 else None


def _unlike_zero(evidence: Evidence, events: list[Said]) -> int | None:
    """Who differs from rank 0; where several do, it is rank 0 that differs."""
    ranks = {event.rank for event, _, _ in events if event.rank is not None}
    world = max(evidence.job.world_size or len(evidence.job.ranks), max(ranks, default=0) + 1)
    if len(ranks) > 1:
        return 0
    return min(ranks, default=None) if world > 2 else None


def _too_much(evidence: Evidence, event: LogEvent, reason: Reason) -> Iterator[Hypothesis]:
    """Gloo aborts the rank that receives more than it expects. In its ring a rank receives from the next one, so either
    this one passed too little or the next one too much: nothing on this side proves which. Where the two numbers are
    those of float32 and float64 for one count, the rank with float64 is nearly always the one that slipped.

    Source: gloo/allreduce.cc, ring algorithm ("recvRank", "segmentBytes")."""
    if event.rank is None:
        says = "A rank got more data from a peer than it expected: they passed different sizes or types"
        yield Hypothesis(SHAPE, {}, says, (reason,), ("mismatch_in_log",), ranks=frozenset(evidence.job.ranks))
        return
    rank = event.rank
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


RULE = Rule((MISMATCH, SHAPE, MISSING), judge)
