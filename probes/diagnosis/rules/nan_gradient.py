"""A rank met NaN and reacted alone: it leaves out what the others enter. NaN by itself blocks neither NCCL nor gloo."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.logs.events import LogEvent, RankLog
from probes.catalog.logs.python import ENDS_ON_NAN
from probes.catalog.ranks.replica_facts import NanValue
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.suspects import shared

CAUSE = "fw.nan_gradient"
APART_S = 1.0  # judgement: what came by a reduction is met by all within a step
OFTEN = 3  # judgement: a scaler that skips a step or two is as it should be
MOST = 6  # ranks whose lines are told
Said = tuple[LogEvent, RankLog, Seen]


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    """Ranks that met NaN and then left something out are told one by one; those that only wrote of it together: a
    reduction hands NaN to all, so the one that wrote first says most."""
    yield from _in_values(evidence)
    late = set(evidence.suspects) | {rank for stall in evidence.stalls.all for rank in stall.odd}
    first: dict[int, Said] = {}
    for event, log, seen in evidence.job.said("nan"):
        if event.rank is not None:
            first.setdefault(event.rank, (event, log, seen))
    for rank in sorted(set(first) & late)[:MOST]:
        says = "met NaN or infinity, and then left out what the others wait in"
        yield _hypothesis([evidence.job.view(rank)], says, [first[rank]], "nan_then_behind")
    alone = sorted(set(first) - late, key=lambda rank: (first[rank][0].at is None, first[rank][0].at or 0.0, rank))
    if not alone:
        yield from _loss(evidence, bool(first))
        return
    moments = [first[rank][0].at for rank in alone[:2]]
    leads = len(moments) == 2 and None not in moments and (moments[1] or 0.0) - (moments[0] or 0.0) >= APART_S
    when = ", before all others" if leads else ""
    some = [first[rank] for rank in alone[:MOST]]
    views = [evidence.job.view(rank) for rank in (alone[:1] if leads else alone)]
    signal = "loss_stays_nan" if any(_stays(evidence, first[rank]) for rank in alone) else "nan_in_log"
    yield _hypothesis(views, f"met NaN or infinity{when}", some, signal)


def _in_values(evidence: Evidence) -> Iterator[Hypothesis]:
    """Tables and histories. A reduction hands NaN to all: whoever had it first, or alone, is where it came from."""
    told = [(one, seen) for seen in evidence.of("job.nan_values") for one in seen.facts.values]
    bad = [(one, seen) for one, seen in told if one.bad]
    if not bad:
        return
    ranked = [(one, seen) for one, seen in bad if one.rank is not None]
    first = min((one.step for one, _ in ranked if one.step is not None), default=None)
    origin = sorted({one.rank for one, _ in ranked if one.step == first})
    others = {one.rank for one, _ in told if one.rank is not None} - set(origin)
    alone = bool(origin) and len(origin) <= len(others)
    stays = any(one.stays for one, _ in bad)
    signal = "loss_stays_nan" if stays else "nan_of_one_rank" if alone else "nan_in_log"
    views = [evidence.job.view(rank) for rank in origin] if alone else []
    subject, called = shared(views) if views else ({}, "The job")
    some = [(one, seen) for one, seen in bad if not alone or one.rank in origin][:MOST]
    yield Hypothesis(
        CAUSE,
        subject,
        f"{called} has NaN or infinity" + (" before the others" if alone else ", and it stays so" if stays else ""),
        tuple(Reason(_value(one), seen.ref) for one, seen in some),
        (signal,),
        would_change=("finite values before every reduction",),
        ranks=frozenset(origin if alone else evidence.job.ranks),
        nodes=frozenset(view.node for view in views),
    )


def _value(one: NanValue) -> str:
    at = f" at step {one.step}" if one.step is not None else ""
    whose = f" of rank {one.rank}" if one.rank is not None else ""
    before = f", after {one.finite_before} numbers" if one.finite_before else ""
    return f"{one.name}{whose} is no number{at}{before}"


def _loss(evidence: Evidence, told: bool) -> Iterator[Hypothesis]:
    """Lines that no rank marks: a job prints its loss once for all."""
    said = [one for one in evidence.job.said("nan") if one[0].rank is None]
    staying = [one for one in said if _stays(evidence, one)]
    if told or not said:
        return
    some = staying or said
    yield Hypothesis(
        CAUSE,
        {},
        "The loss is NaN or infinite, and stays so" if staying else "A log tells of NaN or infinity",
        tuple(quoted(*one) for one in some[:MOST]),
        ("loss_stays_nan" if staying else "nan_in_log",),
        would_change=("finite values in later steps", "the rank that met it first: TORCH_NCCL_NAN_CHECK=1"),
    )


def _stays(evidence: Evidence, one: Said) -> bool:
    """Whether the writer told of it again and again, and of no finite step after it; or its loss scale is used up."""
    event, log, _ = one
    if event.name in ("loss scale", ENDS_ON_NAN):
        return True
    if event.count < OFTEN:
        return False
    steps = (step for step, other, _ in evidence.job.said("progress") if other is log and step.rank == event.rank)
    return all(_ended_at(step) < _ended_at(event) for step in steps)


def _ended_at(event: LogEvent) -> tuple[int, int]:
    piece = event.more.get("piece", 0)
    return event.last_place, piece if isinstance(piece, int) else 0


def _hypothesis(views: list[RankView], says: str, some: list[Said], signal: str) -> Hypothesis:
    subject, called = shared(views)
    return Hypothesis(
        CAUSE,
        subject,
        f"{called} {says}",
        tuple(quoted(*one) for one in some),
        (signal,),
        would_change=("finite values before every reduction",),
        ranks=frozenset(view.rank for view in views),
        nodes=frozenset(view.node for view in views),
    )


RULE = Rule((CAUSE,), judge)
