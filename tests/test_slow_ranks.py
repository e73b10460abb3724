"""A rank that is late because it works or waits for its own data: slow, not hung; and how sure one look makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from probes.catalog.logs.events import LogEvent, RankLog, RankLogs
from probes.catalog.logs.read import read_log
from probes.catalog.ranks.process_facts import Process, RankProcesses
from probes.catalog.recorder.facts import Dump
from probes.diagnosis import Diagnosis, Seen, diagnose
from tests.support.rank_facts import dump, recorders, stack, stacked, with_entries, wrote

REDUCE = ("all_reduce", 1024)
LOADER, CHECKPOINT, BUSY = "cpu.dataloader_starved", "fw.checkpoint_stall", "fw.rank_busy"
RANKS = list(range(4))


def stands(*, aged: bool = True) -> Seen:
    """Rank 1 is behind, the others wait for it; `aged`: the recorders tell for how long."""
    some = [dump(r, {"g": (RANKS, [REDUCE] if r == 1 else [REDUCE, REDUCE], r != 1)}) for r in RANKS]
    return recorders(*(one if aged else replace(one, how="file", mtime=None, at=0.0) for one in some))


def looks(kind: str, before: tuple[str, ...] = (), **words: Any) -> Seen:
    """Rank 1 is in this, all others in a collective."""
    others = [stack(r, "collective", ["collective"] * len(before)) for r in RANKS if r != 1]
    return stacked("n", *others, stack(1, kind, before, **words))


def first(*seen: Seen) -> tuple[str, Any, float]:
    found: Diagnosis = diagnose(seen)
    hypothesis = found.verdict.hypothesis
    return hypothesis.cause, hypothesis.subject.get("rank"), found.verdict.probability


@pytest.mark.parametrize(
    ("kind", "cause"),
    [("data loader", LOADER), ("checkpoint", CHECKPOINT), ("compile", BUSY), ("preprocessing", BUSY)],
)
def test_what_a_late_rank_is_in_explains_it_and_a_standstill_makes_it_sure(kind: str, cause: str) -> None:
    found, rank, share = first(stands(), looks(kind))
    assert (found, rank) == (cause, 1)
    assert share > 0.95
    found, rank, share = first(looks(kind))
    assert (found, rank) == (cause, 1)
    assert share <= 0.8, "one look proves no standstill"


def test_two_looks_and_dumps_without_an_age_lie_between() -> None:
    one, twice = first(looks("data loader"))[2], first(looks("data loader", ("data loader",)))[2]
    dumps = first(stands(aged=False), looks("data loader"))[2]
    assert one < twice < 0.97
    assert one < dumps < 0.99


def test_limits_that_ran_out_on_others_prove_that_it_stands() -> None:
    watchdog = LogEvent("watchdog_timeout", "Watchdog caught collective operation timeout", rank=0)
    assert first(looks("data loader"), wrote("n", watchdog))[2] > 0.95


def test_a_child_that_compiles_makes_its_rank_busy() -> None:
    compiler = Process(900, 1, 4, None, 101, "cicc", "R", "R")
    facts = RankProcesses(1.0, (Process(101, 1, 4, None, None, "python", "S", "S"), compiler), (), (), 0, 0)
    children = Seen("n/rank.process", "n", "rank.process", "ok", "", facts, ())
    found = diagnose([stands(), looks("user code"), children]).verdict.hypothesis
    assert (found.cause, found.subject["rank"]) == (BUSY, 1)
    assert "cicc" in found.because[0].says


def test_a_rank_that_runs_at_another_line_of_its_program_advances() -> None:
    moved = looks("user code", ("checkpoint",), active=True)
    assert first(stands(), moved)[:2] == (BUSY, 1)
    same = looks("user code", ("user code",), active=True)
    assert first(stands(), same)[:2] == ("fw.rank_missing_collective", 1)


def test_the_last_line_of_a_log_tells_of_a_checkpoint_where_there_is_no_stack() -> None:
    saving = LogEvent("checkpoint", "saving checkpoint at step 500", rank=1, line=9)
    assert first(stands(), wrote("n", saving))[:2] == (CHECKPOINT, 1)
    saved = LogEvent("checkpoint", "saved checkpoint at step 500 in 41 s", rank=1, line=10)
    assert first(stands(), wrote("n", saving, saved))[:2] == ("fw.rank_missing_collective", 1)
    went_on = LogEvent("progress", "step 501", rank=1, line=10, seq=501)
    assert first(stands(), wrote("n", saving, went_on))[:2] == ("fw.rank_missing_collective", 1)


def test_a_log_that_ends_in_the_bar_of_a_data_set_tells_of_a_busy_rank_where_others_gave_up() -> None:
    bar = "Running tokenizer on dataset (num_proc=8):  91%|#########1| 412000/450000 [29:51<02:41, 235.6 examples/s]"
    tail = RankLog(0, None, "rank0.log", events=read_log(bar, rank=0)[0])
    own = Seen("n/rank.log", "n", "rank.log", "ok", "", RankLogs((tail,)), ())
    gave_up = LogEvent("gloo_timeout", "Timed out waiting 1800000ms for recv operation to complete", rank=1)
    assert first(own, wrote("m", gave_up))[:2] == (BUSY, 0)
    assert first(own)[0] != BUSY, "nobody waits for it"


def test_ranks_of_one_node_that_wait_for_data_are_one_thing() -> None:
    behind = [
        dump(r, {"g": (list(range(6)), [REDUCE] if r in (4, 5) else [REDUCE, REDUCE], r not in (4, 5))})
        for r in range(6)
    ]
    seen = [recorders(*behind[:4], node="a"), recorders(*behind[4:], node="b")]
    seen += [stacked("a", *(stack(r, "collective") for r in range(4)))]
    seen += [stacked("b", *(stack(r, "data loader") for r in (4, 5)))]
    found = diagnose(seen).verdict
    assert (found.hypothesis.cause, dict(found.hypothesis.subject)) == (LOADER, {"node": "b"})
    assert found.probability > 0.95


# Stragglers ---------------------------------------------------------------------------------------------------------


def timed(rank: int, late: int, by_ms: float = 80.0, steps: int = 6, op: str = "all_reduce") -> Dump:
    """A rank of a job that goes on, as its recorder tells how long collectives ran: whoever comes last has the
    shortest."""
    one = dump(rank, {"g": (RANKS, [(op, 1024)] * steps, False)})
    (group,) = one.groups
    entries = tuple(
        replace(entry, duration_ms=5.0 if rank == late else 5.0 + by_ms, created_at=999.0) for entry in group.last
    )
    return replace(one, groups=(replace(group, last=entries),))


def test_the_rank_with_the_shortest_collectives_is_the_last_to_arrive() -> None:
    found = diagnose([recorders(*(timed(r, 3) for r in RANKS))])
    assert (found.verdict.hypothesis.cause, found.verdict.hypothesis.subject["rank"]) == ("fw.rank_straggler", 3)
    assert "80 ms in 6 of 6 collectives" in found.verdict.hypothesis.says


def test_a_job_whose_ranks_take_turns_at_being_last_has_no_straggler() -> None:
    turns = []
    for rank in RANKS:
        one = timed(rank, -1)
        (group,) = one.groups
        entries = tuple(
            replace(entry, duration_ms=5.0 if at % 4 == rank else 85.0) for at, entry in enumerate(group.last)
        )
        turns.append(replace(one, groups=(replace(group, last=entries),)))
    assert diagnose([recorders(*turns)]).verdict.hypothesis.cause == "none", "it goes on, and nobody is late"
    few = recorders(*(timed(r, 3, steps=2) for r in RANKS))
    assert diagnose([few]).verdict.hypothesis.cause == "none", "two collectives are no habit"
    rooted = recorders(*(timed(r, 3, op="broadcast") for r in RANKS))
    assert diagnose([rooted]).verdict.hypothesis.cause == "none", "the root of a broadcast is done first"
    near = recorders(*(timed(r, 3, by_ms=2.0) for r in RANKS))
    assert diagnose([near]).verdict.hypothesis.cause == "none", "2 ms is how kernels are launched"


def test_moments_of_calls_count_only_by_one_clock() -> None:
    def called(rank: int) -> Dump:
        one = dump(rank, {"g": (RANKS, [REDUCE] * 5, False)})
        (group,) = one.groups
        entries = tuple(
            replace(entry, created_at=900.0 + at + (0.3 if rank == 2 else 0.0)) for at, entry in enumerate(group.last)
        )
        return replace(one, groups=(replace(group, last=entries),))

    together = [recorders(*map(called, RANKS), node="a")]
    assert first(*together)[:2] == ("fw.rank_straggler", 2)
    apart = [recorders(called(r), node=f"n{r}") for r in RANKS]
    assert first(*apart)[0] != "fw.rank_straggler", "a clock that is ahead looks the same"


def test_many_ranks_with_nan_are_one_hypothesis_and_the_first_by_a_step_is_named() -> None:
    def met(*moments: float) -> Diagnosis:
        return diagnose([wrote("n", *(LogEvent("nan", "loss is nan", rank=r, at=at) for r, at in enumerate(moments)))])

    def told(found: Diagnosis) -> list[Any]:
        return [one.hypothesis.subject.get("rank") for one in found.ranked if one.hypothesis.cause == "fw.nan_gradient"]

    assert told(met(50.0, 50.1, 50.2)) == [None]
    assert told(met(57.0, 52.0, 57.1)) == [1]


def test_a_hundred_stopped_ranks_are_one_hypothesis() -> None:
    facts = RankProcesses(
        1.0, tuple(Process(r + 9, r, 128, None, None, "python", "T", "T") for r in range(100)), (), (), 0, 0
    )
    found = diagnose([Seen("n/rank.process", "n", "rank.process", "ok", "", facts, ())])
    assert [one.hypothesis.cause for one in found.ranked].count("fw.rank_stopped") == 1
    assert found.verdict.hypothesis.says.startswith("100 ranks on n are stopped")


def test_the_path_says_what_would_tell_who_comes_late() -> None:
    step = diagnose([stands()]).paths["collective-order"].steps[-1]
    assert (step.state, step.id) == ("not known", "late")
    assert "TORCH_NCCL_ENABLE_TIMING=1" in step.why
    assert with_entries(timed(0, 3), "g", duration_ms=4.0).groups[0].last[0].duration_ms == 4.0


def test_a_process_that_its_control_group_froze_is_stopped_though_it_shows_as_asleep() -> None:
    frozen = Process(9, 1, 3, None, None, "python", "S", "S", wchan="do_freezer_trap")
    facts = RankProcesses(1.0, (frozen,), (), (), 0, 0)
    seen = Seen("n/rank.process", "n", "rank.process", "ok", "", facts, ())
    assert first(stands(), seen)[:2] == ("fw.rank_stopped", 1)
