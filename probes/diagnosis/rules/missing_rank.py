"""A rank never entered the collective that its group waits in: how it looks, whatever made it late.

Several that are late in one place are one thing: their node, or what they share, has to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView
from probes.diagnosis.suspects import Suspect, ranks_said, shared

SAYS_NOTHING = ("unknown", "stopped")
MOST = 6  # reasons that are told of many ranks


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    together: dict[object, list[Suspect]] = {}
    for rank, suspect in evidence.suspects.items():
        place = id(suspect.stalls[0]) if suspect.stalls else suspect.says if suspect.waiting else rank
        key = (place, suspect.signals)  # one that is proven to be late is not the same as one that is not seen
        together.setdefault(key, []).append(suspect)
    for some in together.values():
        yield _one(some[0]) if len(some) == 1 else _several(some)


def _is_in(suspect: Suspect) -> str:
    """`it is in data loader, at ...`. The stack of a rank that left no dump may be of any moment: it may have died."""
    view, waits = suspect.view, suspect.view.waits
    if waits is None or waits.kind in SAYS_NOTHING:
        return ""
    when = "is" if view.dump is not None or view.place is not None else "was, when its stack was taken,"
    return f"{when} in {waits}"


def _one(suspect: Suspect) -> Hypothesis:
    view = suspect.view
    because = list(suspect.because)
    is_in = _is_in(suspect)
    if is_in and not any("main thread" in reason.says for reason in because):
        because.append(Reason(f"its main thread {is_in}", view.ref("rank.stack")))
    subject = view.subject
    if suspect.stalls:
        subject["group"] = suspect.stalls[0].desc or suspect.stalls[0].group
    return Hypothesis(
        "fw.rank_missing_collective",
        subject,
        f"{view.headline} {suspect.says}" + (f": it {is_in}" if is_in else ""),
        tuple(because),
        suspect.signals,
        against=suspect.against,
        would_change=("a later dump in which it has entered that collective", "a stack that says why it is late"),
        ranks=frozenset({view.rank}),
        nodes=frozenset({view.node}),
    )


def _several(some: list[Suspect]) -> Hypothesis:
    views = [one.view for one in some]
    subject, called = shared(views)
    if some[0].stalls:
        subject["group"] = some[0].stalls[0].desc or some[0].stalls[0].group
    places: dict[str, list[RankView]] = {}
    for one in some:
        if is_in := _is_in(one):
            places.setdefault(is_in.partition(" in ")[2], []).append(one.view)
    stacks = [
        Reason(f"{ranks_said([view.rank for view in there])} in {place}", there[0].ref("rank.stack"))
        for place, there in sorted(places.items(), key=lambda item: -len(item[1]))
    ]
    because = [reason for one in some[:MOST] for reason in one.because]
    return Hypothesis(
        "fw.rank_missing_collective",
        subject,
        f"{called} {some[0].says.replace('is not', 'are not')}",
        tuple(dict.fromkeys([*because[:MOST], *stacks[:MOST]])),
        tuple(dict.fromkeys(signal for one in some for signal in one.signals)),
        against=some[0].against,
        would_change=("later dumps in which they have entered that collective", "stacks that say why they are late"),
        ranks=frozenset(view.rank for view in views),
        nodes=frozenset(view.node for view in views),
    )


RULE = Rule(("fw.rank_missing_collective",), judge)
