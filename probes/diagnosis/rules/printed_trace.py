"""torchfrtrace printed that ranks ran different collectives, or that they wait for each other across groups.

Who is missing in a collective it tells as well: those are suspects, see suspects.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.stacks.trace_report import Place
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.printed import Printed, printed
from probes.diagnosis.suspects import ranks_said, shared

MISMATCH, SHAPE, CYCLE = "fw.collective_mismatch", "fw.collective_shape_mismatch", "fw.group_order_cycle"
OTHER_CALL = ("COLLECTIVE_TYPE_MISMATCH",)
OTHER_SIZE = ("SIZE_OR_SYNTAX_MISMATCH", "COLLECTIVE_DTYPE_MISMATCH")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found = printed(evidence)
    if found.seen is None:
        return
    for place, odd in found.odd:
        if place.error in OTHER_CALL or place.error in OTHER_SIZE:
            yield _mismatch(evidence, found, place, odd)
    if found.cycle:
        listed = "; ".join(
            f"{ranks_said(list(place.missing))} missing in {place.called}" for place in found.crossed[:4]
        )
        yield Hypothesis(
            CYCLE,
            {},
            f"{ranks_said(list(found.cycle)).capitalize()} wait for each other across groups: {listed}",
            tuple(Reason(f"torchfrtrace: {_says(place)}", found.seen.ref) for place in found.crossed[:4]),
            ("groups_crossed_in_report",),
            would_change=("dumps in which one of these groups goes on",),
            ranks=frozenset(found.cycle),
            nodes=frozenset(evidence.job.view(rank).node for rank in found.cycle),
        )


def _says(place: Place) -> str:
    at = f", from {place.where}" if place.where else ""
    return f"{ranks_said(list(place.missing))} missing in {place.called}{at}"


def _mismatch(evidence: Evidence, found: Printed, place: Place, odd: tuple[int, ...]) -> Hypothesis:
    cause = MISMATCH if place.error in OTHER_CALL else SHAPE
    views = [evidence.job.view(rank) for rank in odd]
    subject, called = shared(views) if views else ({}, "One rank")
    what = "another collective" if cause == MISMATCH else "other sizes or types"
    by_whom = "a table of ranks" if place.told == "table" else "torchfrtrace"
    says = f"{by_whom}: {place.called} has {place.error.lower().replace('_', ' ')}"
    by = f", culprits {ranks_said(list(place.odd))}" if place.odd else ""
    sure = "mismatch_in_report" if place.group else "mismatch_in_calls"
    if not odd:
        sure = "mismatch_in_report_by_two" if place.group else "mismatch_in_calls"
    return Hypothesis(
        cause,
        subject,
        f"{called} runs {what} than its peers at {place.called}" if odd else f"Ranks run {what} at {place.called}",
        (Reason(says + by, found.seen.ref if found.seen else ""),),
        (sure,),
        would_change=("the dumps themselves, in which the others differ",),
        ranks=frozenset(odd) or frozenset(place.expected),
        nodes=frozenset(view.node for view in views),
    )


RULE = Rule((MISMATCH, SHAPE, CYCLE), judge)
