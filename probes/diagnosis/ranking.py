"""From hypotheses to probabilities that sum to 1, root causes apart from their consequences.

weight = prior of the cause (causes.toml) x the likelihood ratio of each of its signals (likelihoods.toml), tempered
(tempering.toml). Signals of one group tell the same thing, so only the strongest of a group counts. A hypothesis that
another one explains (a stopped rank explains a missing one) no longer competes: its signals count for the one that
explains it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from probes.diagnosis.core import Hypothesis, Reason
from probes.reference import rows

WEAK = 50.0  # judgement: a ratio below this makes a cause no explanation of others
PLACES = frozenset(("node", "rank", "gpu", "bus_id", "hca", "switch"))
CLEARLY = 5.0  # judgement: a place of which so much less speaks is not meant
# Told by a log that often names no place -> causes which, on a node that is named, made it so.
UNPLACED = {"gpu.app_fault": "gpu.", "fw.checkpoint_stall": "host.storage_stall",
    "nccl.library_fault": "host.library_mismatch"}  # fmt: skip
MANY = 8  # judgement: what is weak at more nodes than this is said once


@dataclass(frozen=True, slots=True)
class Ranked:
    """A hypothesis with its share. `consequences` are what it explains."""

    hypothesis: Hypothesis
    probability: float
    consequences: tuple[Hypothesis, ...] = ()


@functools.cache
def causes() -> Mapping[str, dict[str, Any]]:
    """The closed list, by id."""
    return {row["id"]: row for row in rows("causes")}


@functools.cache
def likelihoods() -> Mapping[str, dict[str, Any]]:
    """Likelihood ratios by signal."""
    return {row["signal"]: row for row in rows("likelihoods")}


@functools.cache
def explains() -> Mapping[str, frozenset[str]]:
    """Cause -> causes that it makes appear on the same ranks or node, also through others."""
    direct: dict[str, set[str]] = {}
    for row in rows("explains"):
        direct.setdefault(row["cause"], set()).update(row["explains"])
    found = {}
    for cause in direct:
        reached: set[str] = set()
        todo = list(direct[cause])
        while todo:
            one = todo.pop()
            if one not in reached:
                reached.add(one)
                todo += direct.get(one, ())
        found[cause] = frozenset(reached - {cause})
    return found


@functools.cache
def tempering() -> float:
    """How far the ratios are taken at their word: weight = prior x ratio ^ tempering. See likelihoods.toml."""
    return float(rows("tempering")[0]["exponent"])


def strength(signals: Sequence[str]) -> float:
    """The product of the signals' ratios, the strongest of each group. Raises KeyError for an unknown signal."""
    best: dict[str, float] = {}
    for signal in dict.fromkeys(signals):
        row = likelihoods()[signal]
        group = row.get("group", signal)
        best[group] = max(best.get(group, 0.0), float(row["ratio"]))
    product = 1.0
    for ratio in best.values():
        product *= ratio
    return float(product ** tempering())


def rank(
    hypotheses: Sequence[Hypothesis], quiet: Sequence[str] = (), on: Sequence[Reason] = (), gap: str = ""
) -> tuple[Ranked, ...]:
    """Most probable first, "none" and "unknown" included. `quiet` are signals for that nothing is wrong, which stand
    `on` these readings; `gap` says what was not seen at all and may hold the answer."""
    found = _merged(hypotheses)
    roots: list[tuple[Hypothesis, list[Hypothesis]]] = []
    by_cause: dict[str, list[Hypothesis]] = {}
    for one in found:
        by_cause.setdefault(one.cause, []).append(one)
    place = {id(one): number for number, one in enumerate(found)}
    stronger = {one: [by for by in by_cause if one in explains().get(by, ())] for one in by_cause}
    for one in found:
        if not any(_explained(one, other) for cause in stronger[one.cause] for other in by_cause[cause]):
            weaker = (cause for cause in explains().get(one.cause, ()) if cause in by_cause)
            under = [other for cause in weaker for other in by_cause[cause] if _explained(other, one)]
            roots.append((_with_its_rank(one, under), sorted(under, key=lambda other: place[id(other)])))
    doubt = strength(quiet)  # what speaks for "nothing is wrong" speaks against each cause
    weighed = [(_weight(one, under) / doubt, one, tuple(under)) for one, under in roots]
    weighed += [
        (_base("none") * strength(quiet), _nothing(quiet, on, bool(found)), ()),
        (_base("unknown"), _else(bool(roots), gap), ()),
    ]
    if max(weighed, key=lambda one: one[0])[1].cause == "unknown":
        weighed[-1] = (_base("unknown"), _else(False, gap), ())
    total = sum(weight for weight, _, _ in weighed)
    ranked = [Ranked(one, weight / total, under) for weight, one, under in weighed]
    return tuple(sorted(ranked, key=lambda item: -item.probability))


def _base(cause: str) -> float:
    return float(causes()[cause]["prior"])


def _weight(one: Hypothesis, under: Sequence[Hypothesis]) -> float:
    """What speaks against a consequence does not speak against its root."""
    likely = [other for other in under if strength(other.signals) > 1]
    signals = [*one.signals, *(signal for other in likely for signal in other.signals)]
    return _base(one.cause) * strength(signals)


def _explained(one: Hypothesis, by: Hypothesis) -> bool:
    """Whether `by` would make `one` appear: on the same rank, or on the same node where no rank is named."""
    if one is by or one.cause not in explains().get(by.cause, ()):
        return False
    together = one.ranks & by.ranks if one.ranks and by.ranks else one.nodes & by.nodes
    made = UNPLACED.get(one.cause)
    if made and one.nodes <= {""} and by.nodes - {""} and by.cause.startswith(made):
        together = by.nodes  # a rank that nothing places is from the node whose GPU, storage or libraries fail
    if not together or _of_two_adapters(one, by):
        return False
    # An oddity takes over nothing. But where one rank is tells why that rank is late, however little it says alone.
    return bool(by.ranks and by.ranks <= one.ranks) or strength(by.signals) >= WEAK


def _of_two_adapters(one: Hypothesis, other: Hypothesis) -> bool:
    """What is wrong with one adapter makes none of another appear. A PCI address may be either's."""
    hcas = {str(hca) for hca in (one.subject.get("hca"), other.subject.get("hca")) if hca and ":" not in str(hca)}
    return len(hcas) > 1


def _merged(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Several rules, or one rule twice, may say the same of the same thing."""
    found: dict[tuple[object, ...], Hypothesis] = {}
    for one in hypotheses:
        key = (one.cause, tuple(sorted((name, str(value)) for name, value in one.subject.items())))
        there = found.get(key)
        if there is None:
            found[key] = one
            continue
        found[key] = _together(there, one)
    return _from_two_sides(list(found.values()))


def _together(one: Hypothesis, other: Hypothesis) -> Hypothesis:
    """Both as one, in the words of the one with more weight."""
    if strength(other.signals) > strength(one.signals):
        one, other = other, one
    return replace(
        one,
        subject={**one.subject, **other.subject},
        because=_once(one.because + other.because),
        against=_once(one.against + other.against),
        signals=tuple(dict.fromkeys(one.signals + other.signals)),
        would_change=tuple(dict.fromkeys(one.would_change + other.would_change)),
        ranks=one.ranks | other.ranks,
        nodes=one.nodes | other.nodes,
    )


def _from_two_sides(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """A rank's log and its node's kernel see one fault, and each names it by what it knows: the rank, or the GPU. Where
    just one other hypothesis can be meant, they are one."""
    by_cause: dict[str, list[Hypothesis]] = {}
    for one in hypotheses:
        by_cause.setdefault(one.cause, []).append(one)
    for cause, alike in by_cause.items():
        found = by_cause[cause] = _folded(alike)
        for one in sorted(found, key=lambda one: (len(one.subject), strength(one.signals))):
            others = [other for other in found if other is not one and _same_thing(one, other)]
            # And no third may be meant by that other one.
            if len(others) == 1 and [one] == [it for it in found if it is not others[0] and _same_thing(others[0], it)]:
                both = _together(others[0], one)
                found[:] = [both if other is others[0] else other for other in found if other is not one]
        _one_of_each_name(found)
        _place_the_nowhere(found)
        _place_the_rank(found)
    return [one for found in by_cause.values() for one in found]


def _place_the_nowhere(found: list[Hypothesis]) -> None:
    """A log that tells no place, and the one place where something tells of the same: they are one. Of several places
    none is taken."""
    nowhere = [one for one in found if not one.subject.keys() & PLACES]
    placed = [one for one in found if one.subject.keys() & PLACES and strength(one.signals) > 1]
    most = max((strength(one.signals) for one in placed), default=0.0)
    placed = [one for one in placed if strength(one.signals) * CLEARLY > most]
    if len(nowhere) == 1 and len(placed) == 1:
        found[:] = [one for one in found if one not in (nowhere[0], placed[0])]
        found.append(_together(placed[0], nowhere[0]))


def _one_of_each_name(found: list[Hypothesis]) -> None:
    """A rank's log, the kernel and a tool name what failed on one node each in its own way: by rank, by bus id, by
    index. Where all of them together name one of each, they are one."""
    by_node: dict[object, list[Hypothesis]] = {}
    for one in found:
        if "node" in one.subject and one.cause.startswith("gpu.") and strength(one.signals) > 1:
            by_node.setdefault(one.subject["node"], []).append(one)
    for alike in by_node.values():
        names = {(key, str(value)) for one in alike for key, value in one.subject.items()}
        if len(alike) > 2 and len(names) == len(dict(names)):
            found[:] = [*(one for one in found if one not in alike), functools.reduce(_together, alike)]


def _place_the_rank(found: list[Hypothesis]) -> None:
    """A rank of which nothing tells the node met a fault of its GPU, and one GPU or node of all has that fault."""
    ranks = [one for one in found if set(one.subject) == {"rank"} and one.cause.startswith("gpu.")]
    gpus = [one for one in found if one.subject.keys() & {"node", "gpu", "bus_id"} and "rank" not in one.subject]
    if len(ranks) == 1 and len(gpus) == 1 and strength(gpus[0].signals) > 1:
        found[:] = [one for one in found if one not in (ranks[0], gpus[0])]
        says = f"{gpus[0].says}; rank {ranks[0].subject['rank']} met it"
        found.append(replace(_together(gpus[0], ranks[0]), says=says))


def _with_its_rank(one: Hypothesis, under: Sequence[Hypothesis]) -> Hypothesis:
    """A machine check that ended one rank of its node, and no other: that rank is of its subject."""
    ended = {other.subject["rank"] for other in under if other.cause == "fw.rank_exited" and "rank" in other.subject}
    if len(ended) != 1 or "rank" in one.subject or one.cause != "host.machine_check" or "node" not in one.subject:
        return one
    return replace(one, subject={**one.subject, "rank": ended.pop()})


def _folded(alike: list[Hypothesis]) -> list[Hypothesis]:
    """One weak thing at many nodes is said once: what is so everywhere tells nothing apart."""
    by_signals: dict[tuple[str, ...], list[Hypothesis]] = {}
    for one in alike:
        weak = strength(one.signals) < WEAK and set(one.subject) == {"node"}
        by_signals.setdefault(one.signals if weak else ("", *map(str, one.subject.items())), []).append(one)
    found = []
    for some in by_signals.values():
        first = some[0]
        if len(some) > MANY and first.signals in by_signals:
            says = f"{first.says}; the same on {len(some) - 1} other nodes"
            reasons = tuple(reason for one in some[:MANY] for reason in one.because[:1])
            nodes = frozenset(node for one in some for node in one.nodes)
            ranks = frozenset(rank for one in some for rank in one.ranks)
            found.append(replace(first, subject={}, says=says, because=_once(reasons), nodes=nodes, ranks=ranks))
        else:
            found += some
    return found


def _one_tells_less(one: Hypothesis, other: Hypothesis) -> bool:
    """`mlx5_5/1` beside `mlx5_5/1 of gpu-3`: of a file that nothing tells the node of."""
    fewer, more = sorted((one.subject.keys(), other.subject.keys()), key=len)
    return fewer < more and "node" in more


def _same_thing(one: Hypothesis, other: Hypothesis) -> bool:
    """One cause, at one node or rank, and nothing by which the two would differ."""
    common = one.subject.keys() & other.subject.keys()
    if one.cause != other.cause or not common or not (common & {"node", "rank"} or _one_tells_less(one, other)):
        return False
    if any(str(one.subject[key]) != str(other.subject[key]) for key in common):
        return False
    within = len(common) in (len(one.subject), len(other.subject))
    return within or not one.ranks or not other.ranks or bool(one.ranks & other.ranks)


def _once(reasons: tuple[Reason, ...]) -> tuple[Reason, ...]:
    return tuple(dict.fromkeys(reasons))


def _nothing(quiet: Sequence[str], on: Sequence[Reason], found: bool) -> Hypothesis:
    """`found`: something odd was found all the same, which must not be denied."""
    says = "What was found does not stop the job" if found else "No probe found anything wrong"
    if "training_advances" in quiet:
        says = "Training goes on, " + ("in spite of what was found" if found else "and no probe found anything wrong")
    elif "steps_until_looked" in quiet:
        says = "The job still made its steps when the nodes were looked at"
    elif "ended_by_its_log" in quiet:
        says = "The job had ended its work, says its log"
    elif "completed_by_scheduler" in quiet:
        says = "The job ended well, says the scheduler"
    elif "ended_after_work" in quiet:
        says = "The job had ended its work: only the end of a process was not clean"
    return Hypothesis("none", {}, says, tuple(on), ())


def _else(others: bool, gap: str) -> Hypothesis:
    says = gap or ("Something else, which no rule here knows" if others else "The evidence does not decide")
    return Hypothesis("unknown", {}, says, (), ())
