"""Who waits for whom, link by link. Right values: what the recordings in tests/fixtures/hangs show, read by eye."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from probes.diagnosis import Seen, diagnose
from probes.explain import explain
from tests.support.brought import FIXTURES
from tests.support.rank_facts import dump, recorders, stack, stacked

HANGS = FIXTURES / "hangs"
REDUCE = ("all_reduce", 1024)


def told(folder: Path) -> list[list[str]]:
    return [[link.says for link in chain] for chain in explain([folder]).diagnosis.chains]


def chains(*seen: Seen) -> list[list[str]]:
    return [[link.says for link in chain] for chain in diagnose(seen).chains]


@pytest.mark.parametrize(
    ("hang", "links"),
    [
        (
            "sigstop",
            [
                "Ranks 0 and 2 wait in collective #41 (all_reduce [8320] Float) of default_pg",
                "Rank 1 never entered it",
                "It is stopped (state T), in do_signal_stop",
                "Rank 1's own line: main (train.py:99), called by <module> (train.py:148)",
            ],
        ),
        (
            "loader_slow",
            [
                "Ranks 0 and 2 wait in collective #14 (all_reduce [8320] Float) of default_pg",
                "Rank 1 never entered it",
                "Its main thread is in data loader: _MultiProcessingDataLoaderIter._try_get_data (dataloader.py:1291)",
                "Rank 1's own line: main (train.py:106), called by <module> (train.py:148)",
                "2 of its 2 loader workers are at TokenDataset.__getitem__ (train.py:28)",
            ],
        ),
        (
            "order",
            [
                "Ranks 0 and 2 wait in collective #6 (all_reduce [1024] Float) of default_pg",
                "Rank 1 runs broadcast [16] Float in its place",
                "Rank 1's own line: main (train.py:62), called by <module> (train.py:148)",
            ],
        ),
        (
            "order_of_groups",
            [
                "Ranks 0 and 2 wait in collective #1 (all_reduce [1024] Float) of tp for rank 1",
                "Rank 1 waits in collective #1 (all_reduce [1024] Float) of dp for ranks 0 and 2",
                "They wait for each other: nobody outside can end it",
            ],
        ),
    ],
)
def test_a_recorded_hang_is_told_from_who_waits_to_the_line_of_the_program(hang: str, links: list[str]) -> None:
    assert told(HANGS / hang) == [links]


def test_without_a_stack_it_is_said_what_would_tell() -> None:
    ranks = [0, 1, 2]
    dumps = [dump(r, {"g": (ranks, [REDUCE, REDUCE] if r else [REDUCE], bool(r))}) for r in ranks]
    ((first, second, third),) = chains(recorders(*dumps))
    assert first == "Ranks 1 and 2 wait in collective #2 (all_reduce [1024] Float) of g for 60 s"
    assert second == "Rank 0 on n never entered it" and "py-spy dump" in third


def test_where_nobody_waits_there_is_no_chain() -> None:
    ranks = [0, 1]
    assert chains(recorders(*(dump(r, {"g": (ranks, [REDUCE] * 3, False)}) for r in ranks))) == []


def test_who_holds_the_interpreters_lock_is_a_link() -> None:
    ranks = [0, 1, 2]
    dumps = [dump(r, {"g": (ranks, [REDUCE, REDUCE] if r else [REDUCE], bool(r))}) for r in ranks]
    one = stack(0, "user code")
    main = one.threads[0]
    writer = replace(main, tid=77, name="writer", gil=True, frames=(replace(main.frames[0], function="dumps"),))
    held = replace(one, threads=(replace(main, gil=False), writer))
    ((_, _, *links),) = chains(recorders(*dumps), stacked("n", held))
    assert any("Its thread writer holds the interpreter's lock: dumps" in link for link in links)
