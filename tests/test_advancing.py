"""Whether training advances is told by two looks at every rank, and never assumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from probes.catalog.logs.events import LogEvent, RankLog, RankLogs
from probes.diagnosis import Seen
from probes.diagnosis.advancing import advancing
from tests.support.rank_facts import dump, mapped, processes, recorders, silent


def look(reached: dict[int, int], world: int = 3, pid: int = 100) -> list[Seen]:
    """Each rank on a node of its own, with so many collectives behind it."""
    ranks = range(world)
    seen = [mapped(f"n{rank}", [rank], world, pid=pid) for rank in ranks]
    calls = {rank: [("all_reduce", 4)] * count for rank, count in reached.items()}
    return seen + [recorders(dump(rank, {"0": (list(ranks), calls[rank], False)}), node=f"n{rank}") for rank in reached]


def log(rank: int, *events: LogEvent) -> Seen:
    facts = RankLogs((RankLog(rank, 100 + rank, f"/logs/{rank}", events=events),))
    return Seen(f"n{rank}/rank.log", f"n{rank}", "rank.log", "ok", "", facts, ())


def stepped(steps: Sequence[int]) -> list[Seen]:
    return [log(rank, LogEvent("progress", f"step {step}", rank, seq=step)) for rank, step in enumerate(steps)]


def test_a_job_whose_every_rank_went_on_advances() -> None:
    found = advancing(look({0: 5, 1: 5, 2: 5}), look({0: 9, 1: 9, 2: 8}))
    assert (found.state, found.says) == ("advances", "All 3 ranks advance: 3 collectives or more on each.")
    assert "n2/rank.flight_recorder" in found.readings


def test_one_rank_that_stands_is_named() -> None:
    found = advancing(look({0: 5, 1: 5, 2: 5}), look({0: 9, 1: 5, 2: 9}))
    assert (found.state, found.says) == ("stands", "Rank 1 of 3 did not advance, the others did.")


def test_entering_the_collective_that_all_waited_in_is_not_advancing() -> None:
    found = advancing(look({0: 5, 1: 4, 2: 5}), look({0: 6, 1: 5, 2: 6}))
    assert (found.state, found.says[:42]) == ("not known", "No rank advanced: it stands, or a step tak")


def hung(reached: int, ended: int, age: float = 60.0) -> list[Seen]:
    """The CPUs run ahead: `reached` collectives are enqueued, `ended` of them ended, and all ranks wait in the last."""
    seen = [mapped(f"n{rank}", [rank], 3) for rank in range(3)]
    for rank in range(3):
        told = dump(rank, {"0": ([0, 1, 2], [("all_reduce", 4)] * reached, True)}, age)
        groups = tuple(dataclasses.replace(group, completed=ended) for group in told.groups)
        seen.append(recorders(dataclasses.replace(told, groups=groups), node=f"n{rank}"))
    return seen


def test_what_is_enqueued_before_a_hung_gpu_is_no_advance() -> None:
    found = advancing(hung(10, 4), hung(14, 4))
    assert found.state == "stands"
    assert found.says.startswith("Ranks 0, 1 and 2 of 3 wait for 60 s in collective #14 (all_reduce")
    assert advancing(hung(10, 4, 3.0), hung(14, 4, 3.0)).state == "not known"


def test_a_group_that_hangs_is_not_hidden_by_one_that_goes_on() -> None:
    def both(barriers: int) -> list[Seen]:
        groups = {"0": ([0, 1, 2], [("all_reduce", 4)] * 9, True), "1": ([0, 1, 2], [("barrier", 1)] * barriers, False)}
        return look({}) + [recorders(dump(rank, groups), node=f"n{rank}") for rank in range(3)]

    assert advancing(both(4), both(8)).state == "stands"


def test_a_stopped_rank_is_told_as_such() -> None:
    stopped = dataclasses.replace(processes(1, "T"), node="n1", ref="n1/rank.process")
    later = [mapped("n1", [1], 3, pid=8), stopped, *(one for one in look({0: 5, 2: 5}) if one.node != "n1")]
    assert advancing(look({0: 5, 1: 5, 2: 5}), later).says == "Rank 1 of 3 is stopped."


def test_a_rank_that_tells_nothing_leaves_it_unknown() -> None:
    found = advancing(look({0: 5, 1: 5, 2: 5}), look({0: 9, 1: 9}))
    assert found.state == "not known"
    assert found.says == "Rank 2 could not be compared: neither its flight recorder nor its log tells how far it is."


def test_a_node_that_does_not_answer_leaves_it_unknown() -> None:
    later = [one for one in look({0: 9, 1: 9}) if one.node != "n2"] + [silent("n2", "rank.map")]
    found = advancing(look({0: 5, 1: 5, 2: 5}), later)
    assert (found.state, found.says) == ("not known", "Rank 2 could not be compared: not seen at the second look.")


def test_ranks_that_were_started_again_are_compared_from_the_next_look_on() -> None:
    restarted = look({0: 9, 1: 9, 2: 9}, pid=200)
    found = advancing(look({0: 5, 1: 5, 2: 5}), restarted)
    assert (found.state, "started anew between the looks; look again" in found.says) == ("not known", True)
    assert advancing(restarted, look({0: 12, 1: 12, 2: 12}, pid=200)).state == "advances"


def test_a_job_that_is_not_there_does_not_advance() -> None:
    found = advancing(look({0: 5, 1: 5, 2: 5}), [])
    assert (found.state, found.says[:24]) == ("not known", "No rank of the job was s")


def test_a_world_of_unknown_size_leaves_it_unknown() -> None:
    first = [recorders(dump(0, {"0": ([0], [("all_reduce", 4)] * count, False)}), node="n0") for count in (5, 9)]
    assert advancing(first[:1], first[1:]).state == "not known"


@pytest.mark.parametrize(("later", "state"), [((7, 7, 7), "advances"), ((7, 5, 7), "stands"), ((5, 5, 5), "not known")])
def test_the_steps_in_the_logs_tell_it_where_there_is_no_recorder(later: tuple[int, ...], state: str) -> None:
    assert advancing(look({}) + stepped((5, 5, 5)), look({}) + stepped(later)).state == state


@pytest.mark.parametrize(
    "event",
    [
        LogEvent("nan", "loss is nan", 1, offset=99),
        LogEvent("progress", "step 9 loss nan", 1, seq=9, offset=99, more={"loss": "nan"}),
        LogEvent("progress", "step 9 loss -inf", 1, seq=9, offset=99, more={"loss": "-inf"}),
    ],
)
def test_a_job_that_goes_on_with_nan_is_not_called_well(event: LogEvent) -> None:
    found = advancing(look({0: 5, 1: 5, 2: 5}), [*look({0: 9, 1: 9, 2: 9}), log(1, event)])
    assert (found.state, found.says) == ("stands", "It moves, but the log of rank 1 tells of NaN or infinity since.")


def test_nan_that_was_there_before_is_not_news() -> None:
    old = log(1, LogEvent("nan", "skipped a batch with nan", 1, offset=7))
    assert advancing([*look({0: 5, 1: 5, 2: 5}), old], [*look({0: 9, 1: 9, 2: 9}), old]).state == "advances"
