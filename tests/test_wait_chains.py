"""Who waits for whom: flight recorders of all ranks merged, across groups, pairs and devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from probes.catalog.recorder.facts import Dump
from probes.diagnosis import Evidence, diagnose
from probes.diagnosis.circles import circle
from probes.diagnosis.comparing import operation
from tests.support import flight_recorders
from tests.support.rank_facts import dump, p2p, recorders, stack, stacked, with_entries

REDUCE, GATHER = ("all_reduce", 1024), ("all_gather", 8)
MISSING, MISMATCH, CYCLE = "fw.rank_missing_collective", "fw.collective_mismatch", "fw.group_order_cycle"


def stalls(*dumps: Dump) -> Any:
    return Evidence([recorders(*dumps)]).stalls


def first(*dumps: Dump) -> tuple[str, Any]:
    found = diagnose([recorders(*dumps)]).verdict.hypothesis
    return found.cause, found.subject.get("rank")


def chance(cause: str, *dumps: Dump) -> float:
    return sum(one.probability for one in diagnose([recorders(*dumps)]).ranked if one.hypothesis.cause == cause)


# Circles ------------------------------------------------------------------------------------------------------------


def test_a_circle_is_who_leads_back_to_itself_and_nobody_beside_it() -> None:
    blocked = {1: [0], 2: [1], 3: [0], 9: [2]}
    awaited = {0: [2], 1: [1], 2: [3]}  # 1 waits for 2 and 2 for 1; 3 and 9 only hang on them
    assert circle(blocked, awaited) == ({1, 2}, {0, 1})
    assert circle({1: [0], 2: [1]}, {0: [2], 1: []}) == (set(), set())


def test_a_chain_of_ten_thousand_is_walked_without_recursion() -> None:
    many = 10_000
    around = {rank: [rank] for rank in range(many)}
    ranks, places = circle(around, {place: [(place + 1) % many] for place in range(many)})
    assert (len(ranks), len(places)) == (many, many)


@pytest.mark.parametrize("odd", [0, 2, 4])
def test_the_rank_whose_order_is_its_own_is_named_where_most_have_another(odd: int) -> None:
    ranks = list(range(5))
    some = [dump(r, {"dp" if r == odd else "tp": (ranks, [REDUCE], True)}) for r in ranks]
    assert first(*some) == (CYCLE, odd)


def test_two_ranks_in_a_circle_are_both_innocent_until_a_third_tells() -> None:
    assert first(*(dump(r, {name: ([0, 1], [REDUCE], True)}) for r, name in ((0, "tp"), (1, "dp")))) == (CYCLE, None)


def both(rank: int, order: tuple[str, str]) -> Dump:
    """Both groups enqueued on this rank, in this order, and none has ended."""
    one = dump(rank, {name: ([0, 1, 2], [REDUCE], True) for name in order})
    return with_entries(with_entries(one, order[0], record=1), order[1], record=2)


def test_groups_enqueued_in_opposite_order_are_suspect_where_all_has_been_entered() -> None:
    same = [both(r, ("tp", "dp")) for r in (0, 2)]
    assert first(*same, both(1, ("dp", "tp"))) == (CYCLE, 1)
    assert first(*same, both(1, ("tp", "dp")))[0] == "unknown"
    assert chance(CYCLE, *same, both(1, ("dp", "tp"))) < 0.8, "each may have a stream of its own"


def gloo(number: int, gave_up: str, **calls: int) -> Dump:
    """A gloo dump taken at exit: the call that failed last, in group `gave_up`, is told as if it had ended."""
    one = dump(number, {name: (range(4), [REDUCE] * many, False) for name, many in calls.items()})
    one = replace(one, groups=tuple(replace(group, backend="gloo") for group in one.groups))
    return with_entries(with_entries(one, gave_up, created_at=950.0, state="scheduled"), gave_up, record=9)


def test_a_call_that_gloo_tells_as_ended_has_not_where_others_never_entered_it() -> None:
    """Three dumps at exit show the call as ended, as its limit ran out; one was written before that."""
    ranks = [gloo(r, "pp" if r == 2 else "ep", pp=4 if r == 2 else 3, ep=3 if r == 2 else 4) for r in range(4)]
    waits = dump(1, {"pp": (range(4), [REDUCE] * 3, False), "ep": (range(4), [REDUCE] * 4, True)})
    assert first(ranks[0], waits, *ranks[2:]) == (CYCLE, 2)
    assert stalls(*ranks).all == [], "nothing tells that this job does not go on"
    ahead = [gloo(r, "ep", pp=4, ep=3) for r in range(4)]
    assert stalls(ahead[0], waits, *ahead[2:]).cycle == (), "who is behind in the one and the other is only early"


# Point to point -----------------------------------------------------------------------------------------------------


def test_a_receive_without_its_send_blames_the_rank_that_did_not_send() -> None:
    """A pipeline of four: each stage waits for the one before it, the first one for nobody."""
    stages = [10, 11, 12, 13]
    waiting = [p2p(11, stages, "recv 1<-0"), p2p(12, stages, "recv 2<-1"), p2p(13, stages, "recv 3<-2")]
    assert first(p2p(10, stages), *waiting) == (MISSING, 10)
    assert set(stalls(p2p(10, stages), *waiting).culprits) == {10}, "the numbers in calls are of the group"


def test_a_send_and_a_receive_that_met_blame_nobody() -> None:
    found = stalls(p2p(0, [0, 1], "send 0->1"), p2p(1, [0, 1], "recv 1<-0"))
    assert (found.all, found.culprits) == ([], {})


def test_a_late_rank_that_receives_from_another_late_one_is_a_bystander() -> None:
    """gloo records no receive: only the stack of rank 1 tells that it waits for somebody."""
    some = [dump(r, {"g": ([0, 1, 2, 3], [REDUCE] if r < 2 else [REDUCE, REDUCE], r >= 2)}) for r in range(4)]
    stacks = stacked("n", stack(0, "data loader"), stack(1, "p2p"), stack(2, "collective"), stack(3, "collective"))
    found = diagnose([recorders(*some), stacks])
    assert (found.verdict.hypothesis.cause, found.verdict.hypothesis.subject["rank"]) == ("cpu.dataloader_starved", 0)
    assert not any(1 in one.hypothesis.ranks for one in found.ranked)
    came = dump(0, {"g": ([0, 1, 2, 3], [REDUCE, REDUCE], True)})
    alone = diagnose([recorders(came, *some[1:]), stacks])
    assert alone.verdict.hypothesis.ranks == {1}, "where nobody else is late it is told with its stack"


def test_two_ranks_that_both_send_first_are_a_circle() -> None:
    found = stalls(p2p(0, [0, 1], "send 0->1"), p2p(1, [0, 1], "send 1->0"))
    assert found.cycle == (0, 1)


def test_calls_of_a_batch_have_ended_when_its_last_entry_has() -> None:
    def batch(state: str) -> list[dict[str, Any]]:
        calls = [
            flight_recorders.entry(
                0, record_id=at, p2p_seq_id=4, is_p2p=True, profiling_name=name, state="scheduled", retired=False
            )
            for at, name in ((1, "nccl:send 0->1"), (2, "nccl:recv 0<-1"))
        ]
        return [
            *calls,
            flight_recorders.entry(
                0, record_id=3, p2p_seq_id=4, is_p2p=True, profiling_name="nccl:coalesced", state=state
            ),
        ]

    ended = flight_recorders.facts(flight_recorders.dump(*batch("completed"))).groups[0]
    runs = flight_recorders.facts(flight_recorders.dump(*batch("started"))).groups[0]
    assert (ended.pending_count, ended.p2p) == (0, 3)
    assert runs.pending_count == 3


# Devices ------------------------------------------------------------------------------------------------------------


def test_a_rank_whose_kernel_has_not_started_while_all_others_run_it_is_behind_on_its_device() -> None:
    ranks = list(range(4))
    some = [dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}) for r in ranks]
    timed = [with_entries(one, "g", state="started" if one.rank != 2 else "scheduled") for one in some]
    assert stalls(*timed).behind == {}, "rank 2 has not shown that its starts are recorded"
    (group,) = timed[2].groups
    earlier = replace(group.last[0], duration_ms=3.0, started_at=899.0)
    timed[2] = replace(timed[2], groups=(replace(group, last=(earlier, *group.last[1:])),))
    assert set(stalls(*timed).behind) == {2}
    assert first(*timed) == ("gpu.silent_stall", 2)


def test_what_a_device_runs_elsewhere_excuses_it() -> None:
    """Rank 1's device is in "b", where rank 3 has not come: it is not to blame for "a"."""
    a = [with_entries(dump(r, {"a": ([0, 1, 2], [REDUCE], True)}), "a", state="started") for r in (0, 2)]
    held = dump(1, {"a": ([0, 1, 2], [REDUCE], True), "b": ([1, 3], [REDUCE, REDUCE], True)})
    held = with_entries(with_entries(held, "a", state="scheduled"), "b", state="started")
    assert first(*a, held, dump(3, {"b": ([1, 3], [REDUCE], False)})) == (MISSING, 3)


# Which dumps there are ----------------------------------------------------------------------------------------------


def test_two_dumps_of_sixteen_lead_to_no_verdict_and_say_which_are_needed() -> None:
    ranks = list(range(16))
    waits, late = dump(0, {"g": (ranks, [REDUCE, REDUCE], True)}), dump(1, {"g": (ranks, [REDUCE], False)})
    found = diagnose([recorders(waits, late)])
    assert found.verdict.hypothesis.cause == "unknown"
    assert found.verdict.hypothesis.says.startswith("Only 2 of 16 ranks' flight-recorder dumps are here: 14 ranks")
    assert max(one.probability for one in found.ranked) < 0.45
    assert "are needed" in diagnose([recorders(waits)]).verdict.hypothesis.says


def test_a_pair_in_a_large_job_does_not_blame_the_half_that_nobody_collected() -> None:
    world, pair = list(range(8)), [0, 1]
    one = dump(0, {"world": (world, [REDUCE], False), "pair": (pair, [REDUCE, REDUCE], True)})
    two = dump(2, {"world": (world, [REDUCE], False)})
    assert first(one, two)[0] == "unknown"


def test_a_collective_that_all_are_in_says_where_to_look_next() -> None:
    says = diagnose([recorders(*(dump(r, {"g": ([0, 1], [REDUCE], True)}) for r in (0, 1)))]).verdict.hypothesis.says
    assert says.startswith("All 2 ranks are in collective #1 (all_reduce [1024] Float) of g, and it does not end")


# Majorities ---------------------------------------------------------------------------------------------------------


def test_one_rank_alone_in_a_collective_is_the_odd_one_not_the_seven_that_are_not_there() -> None:
    ranks = list(range(8))
    alone = dump(0, {"g": (ranks, [REDUCE, GATHER], True)})
    some = [alone, *(dump(r, {"g": (ranks, [REDUCE], False)}) for r in ranks[1:])]
    assert first(*some) == (MISMATCH, 0)
    assert chance(MISMATCH, *some) < 0.8, "all others may be held back by one thing"


def test_several_ranks_that_are_late_in_one_place_are_one_thing_on_their_node() -> None:
    ranks = list(range(6))
    here = recorders(*(dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}) for r in (0, 1, 2, 3)), node="a")
    there = recorders(*(dump(r, {"g": (ranks, [REDUCE], False)}) for r in (4, 5)), node="b")
    found = diagnose([here, there], ["a", "b"]).verdict
    assert (found.hypothesis.cause, dict(found.hypothesis.subject)) == (MISSING, {"node": "b", "group": "g"})
    assert found.hypothesis.ranks == {4, 5}
    assert found.probability > 0.9


def test_one_operation_has_one_name_in_all_versions_of_torch() -> None:
    same = ["_allgather_base", "all_gather_into_tensor", "all_gather_single", "_all_gather_base", "ALLGATHER_BASE"]
    assert len({operation(name) for name in same}) == 1
    assert len({operation(name) for name in ("_reduce_scatter_base", "reduce_scatter_tensor")}) == 1
    assert operation("all_reduce") == operation("ALLREDUCE") != operation("reduce")
    ranks = [0, 1, 2]
    some = [dump(r, {"g": (ranks, [("_allgather_base" if r else "all_gather_into_tensor", 8)], True)}) for r in ranks]
    assert first(*some)[0] == "unknown", "none of them differs"


def test_a_limit_that_ran_out_is_an_age() -> None:
    one = replace(dump(0, {"g": ([0, 1], [REDUCE], True)}), how="file", mtime=None, at=0.0)
    assert stalls(one).all[0].age_s is None
    gave_up = with_entries(one, "g", timed_out=True, timeout_ms=600_000)
    assert stalls(gave_up).all[0].age_s == 600.0


def test_dumps_of_two_jobs_in_one_folder_are_said() -> None:
    four = [replace(dump(r, {"g": ([0, 1, 2, 3], [REDUCE, REDUCE], True)}), world_size=4) for r in (0, 1, 2)]
    two = replace(dump(3, {"g": ([0, 1], [REDUCE], False)}), world_size=2)
    against = diagnose([recorders(*four, two)]).verdict.hypothesis.against
    assert any("jobs of 2 and 4 ranks" in reason.says for reason in against)


# Stacks alone -------------------------------------------------------------------------------------------------------


def test_one_rank_alone_in_another_call_is_odd_by_its_stack() -> None:
    def told(*before: str) -> tuple[str, Any, float]:
        some = [stack(r, "collective", before) for r in (0, 1, 3)]
        found = diagnose([stacked("n", *some, stack(2, "barrier", ["barrier"] * len(before)))]).verdict
        return found.hypothesis.cause, found.hypothesis.subject.get("rank"), found.probability

    cause, rank, share = told()
    assert (cause, rank) == (MISMATCH, 2)
    assert share < 0.7
    assert told("collective")[2] > 0.85
    two = stacked("n", stack(0, "collective"), stack(1, "collective"), stack(2, "barrier"), stack(3, "barrier"))
    assert diagnose([two]).verdict.hypothesis.cause == "unknown", "two may wait in a group of their own"


def test_a_node_whose_ranks_are_all_elsewhere_is_told_as_one() -> None:
    here = stacked("a", *(stack(r, "barrier") for r in (0, 1)))
    there = stacked("b", *(stack(r, "user code") for r in (2, 3)))
    found = diagnose([here, there]).verdict.hypothesis
    assert (found.cause, dict(found.subject)) == (MISSING, {"node": "b"})
    mixed = stacked("a", stack(0, "barrier"), stack(1, "user code"), stack(2, "barrier"), stack(3, "user code"))
    assert diagnose([mixed]).verdict.hypothesis.cause == "unknown"
