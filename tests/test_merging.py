"""The merge of flight recorders across ranks: who is late, who differs, and who only waits."""

from __future__ import annotations

from typing import Any

import pytest

from probes.catalog.recorder.facts import Dump
from probes.diagnosis import Evidence, diagnose
from tests.support.rank_facts import dump, recorders


def evidence(*dumps: Dump) -> Evidence:
    return Evidence([recorders(*dumps)])


def first(*dumps: Dump) -> tuple[str, Any]:
    found = diagnose(evidence(*dumps).readings).verdict.hypothesis
    return found.cause, found.subject.get("rank")


REDUCE, GATHER = ("all_reduce", 1024), ("all_gather", 8)


def test_a_bystander_that_waits_elsewhere_is_never_accused() -> None:
    """Rank 5 left out a call of its pair. Its partner 1 waits for it there, and everybody waits for 1 and 5 in the
    world: torch's own analyser names 1 and 5 first."""
    world = list(range(8))
    others = [dump(r, {"world": (world, [REDUCE, REDUCE], True)}) for r in (0, 2, 3, 4, 6, 7)]
    partner = dump(1, {"world": (world, [REDUCE], False), "pair": ([1, 5], [REDUCE, REDUCE], True)})
    culprit = dump(5, {"world": (world, [REDUCE], False), "pair": ([1, 5], [REDUCE], False)})
    assert first(*others, partner, culprit) == ("fw.rank_missing_collective", 5)
    assert first(culprit, partner, *others) == ("fw.rank_missing_collective", 5), "in whatever order they come"


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_the_majority_decides_who_is_wrong_also_when_the_wrong_one_comes_first(odd: int) -> None:
    ranks = list(range(4))
    dumps = [dump(r, {"g": (ranks, [REDUCE, ("all_reduce", 512) if r == odd else REDUCE], True)}) for r in ranks]
    assert first(*dumps) == ("fw.collective_shape_mismatch", odd)
    dumps = [dump(r, {"g": (ranks, [REDUCE, GATHER if r == odd else REDUCE], True)}) for r in ranks]
    assert first(*dumps) == ("fw.collective_mismatch", odd)


def test_two_ranks_that_disagree_are_both_named_and_none_is_blamed() -> None:
    one, other = (dump(r, {"g": ([0, 1], [REDUCE, call], True)}) for r, call in ((0, REDUCE), (1, GATHER)))
    assert first(one, other) == ("fw.collective_mismatch", None)


def test_ranks_in_a_circle_across_groups_are_said_and_the_odd_one_is_named() -> None:
    ranks = [0, 1, 2]
    some = [dump(r, {"tp": (ranks, [REDUCE], True)}) for r in (0, 2)]
    odd = dump(1, {"dp": (ranks, [REDUCE], True)})
    assert first(*some, odd) == ("fw.group_order_cycle", 1)


def test_the_earliest_difference_counts_not_the_one_at_which_it_stands() -> None:
    ranks = [0, 1, 2]
    usual = [REDUCE, REDUCE, GATHER, REDUCE]
    dumps = [dump(r, {"g": (ranks, [REDUCE, GATHER, *usual[2:]] if r == 2 else usual, True)}) for r in ranks]
    (stall,) = evidence(*dumps).stalls.all
    assert (stall.seq, set(stall.odd)) == (2, {2})


def test_a_wait_of_seconds_says_little_and_of_less_nothing() -> None:
    ranks = [0, 1, 2]

    def after(age: float) -> float:
        waiting = [dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}, age) for r in (0, 1)]
        found = diagnose(evidence(*waiting, dump(2, {"g": (ranks, [REDUCE], False)}, age)).readings)
        return sum(one.probability for one in found.ranked if one.hypothesis.cause == "fw.rank_missing_collective")

    assert after(60) > 0.95
    assert 0.5 < after(5) < 0.9
    assert after(1) == 0


def test_a_collective_that_all_have_entered_accuses_no_rank() -> None:
    ranks = [0, 1, 2]
    dumps = [dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}) for r in ranks]
    (stall,) = evidence(*dumps).stalls.all
    assert stall.complete
    assert first(*dumps)[0] == "unknown"


def test_gathers_whose_sizes_may_differ_by_rank_are_no_mismatch() -> None:
    ranks = [0, 1, 2]
    dumps = [dump(r, {"g": (ranks, [("gather", 8 * (r + 1)), REDUCE], True)}) for r in ranks]
    (stall,) = evidence(*dumps).stalls.all
    assert (stall.odd, stall.draw) == ({}, {})
