"""Which rank wrote a line: marks of launchers, a program's own environment, and the keys of a logger's JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.catalog.logs.read import read_log
from tests.support.hardware import judged

RAISED = """Traceback (most recent call last):
  File "/srv/run/loop.py", line 31, in <module>
    go()
  File "/srv/run/shards.py", line 9, in go
    return table[key]
KeyError: 'shard-0881'"""
WAITED = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=90, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, "
    "Timeout(ms)=600000) ran for 600011 milliseconds before timing out."
)


def raised_by(text: str, rank: int | None = None) -> list[int | None]:
    return [event.rank for event in read_log(text, rank=rank)[0] if event.kind == "traceback"]


def marked(mark: str, rank: int, text: str) -> str:
    return "".join(f"{mark.format(rank)}{row}\n" for row in text.split("\n"))


@pytest.mark.parametrize("mark", ["[{}]<stderr>:", "[1,{}]<stderr>: ", "[prterun-capella-991@1,{}]<stderr>: ", "[{}] "])
def test_the_marks_of_mpi_and_horovod_tell_the_rank(mark: str) -> None:
    steps = "".join(marked(mark, rank, f"step {n} loss 2.5") for n in range(9) for rank in range(4))
    assert raised_by(steps + marked(mark, 2, RAISED)) == [2]


def test_numbers_in_brackets_that_count_steps_or_processes_are_no_ranks() -> None:
    for numbers in (range(30), [4400 + n % 4 for n in range(30)], sorted([0, 1, 2] * 10)):
        rows = "".join(f"[{number}] step {n} loss 2.5\n" for n, number in enumerate(numbers))
        assert {event.rank for event in read_log(rows)[0]} == {None}


def test_a_program_that_prints_its_environment_tells_its_rank_and_a_launcher_does_not() -> None:
    assert raised_by(f"RANK=18 LOCAL_RANK=2 WORLD_SIZE=64\n{RAISED}\n") == [18]
    assert raised_by(f"RANK=1 WORLD_SIZE=4\n{RAISED}\n") == [None], "may be the number of a node"
    both = "RANK=18 LOCAL_RANK=2\nRANK=19 LOCAL_RANK=3\n"
    assert raised_by(f"{both}{RAISED}\n") == [None], "of two nobody knows whose it is"


def test_a_worker_of_ray_that_joins_its_group_tells_its_rank() -> None:
    joins = "(RayTrainWorker pid=771, ip=10.1.0.4) Setting up process group for: env:// [rank=6, world_size=8]\n"
    assert raised_by(joins + marked("(RayTrainWorker pid={}, ip=10.1.0.4) ", 771, RAISED)) == [6]


@pytest.mark.parametrize("key", ["rank", "global_rank"])
@pytest.mark.parametrize("name", ["exc_info", "exception", "message"])
def test_a_logger_that_writes_json_keeps_the_exception_beside_the_message(key: str, name: str) -> None:
    said = {"time": "2026-02-01T10:00:00Z", key: 5, "message": "it broke", name: RAISED}
    assert raised_by(json.dumps(said) + "\n") == [5]


def test_the_work_before_the_one_that_was_given_up_proves_no_short_limit(tmp_path: Path) -> None:
    rows = "".join(f"[rank{rank}]: [Rank {rank}] {WAITED}\n" for rank in range(3))
    rows += "[rank3]: [PG ID 0 PG GUID 0(default_pg) Rank 3] failure detected by watchdog at work sequence id: 89 "
    rows += "PG status: last enqueued work: 89, last completed work: 89\n"
    found = judged(tmp_path, {"train.log": rows}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_missing_collective", 3)


def test_a_rank_between_collectives_is_no_suspect_while_nobody_waits(tmp_path: Path) -> None:
    rows = "".join(f"[rank0]: step {n} loss 2.5\n" for n in range(20))
    rows += "[rank0]: [PG ID 0 PG GUID 0(default_pg) Rank 0] last enqueued work: 89, last completed work: 89\n"
    assert judged(tmp_path, {"train.log": rows}).verdict.hypothesis.cause in ("none", "unknown")


def test_a_table_of_one_ranks_steps_is_of_the_rank_that_its_file_is_called_after(tmp_path: Path) -> None:
    files = {
        f"steps_rank{rank}.csv": "iter,fwd_ms,comm_ms\n" + "".join(f"{n},{own},{wait}\n" for n in range(6))
        for rank, own, wait in ((0, 210, 160), (1, 212, 158), (2, 350, 20), (3, 211, 159))
    }
    found = judged(tmp_path, files).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_straggler", 2)


def test_structlogs_event_is_its_message_and_a_row_of_metrics_stays_one(tmp_path: Path) -> None:
    said = {"timestamp": "2026-02-01T10:00:00Z", "level": "error", "rank": 5, "event": "broke", "exception": RAISED}
    found = judged(tmp_path, {"run.jsonl": json.dumps(said) + "\n"}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_exited", 5)
    row = {"timestamp": "2026-02-01T10:00:00Z", "level": "info", "event": "step", "step": 4, "loss": 2.5}
    told = [(event.kind, event.seq, bool(event.stamp)) for event in read_log(json.dumps(row))[0]]
    assert told == [("progress", 4, True)]


@pytest.mark.parametrize("mark", ["[Rank {}] ", "[rank {}/16] ", "[R{}] ", "[rank={}] "])
def test_a_rank_in_brackets_is_whose_line_it_is(mark: str) -> None:
    assert raised_by(marked(mark, 11, RAISED) + marked(mark, 2, WAITED)) == [11]


def test_torchs_own_bracket_counts_within_a_group_and_stays() -> None:
    told, _ = read_log(f"[Rank 3] {WAITED}\n[Rank 3] some words of mine\n", rank=7)
    assert [(event.kind, event.rank, event.more.get("group_rank")) for event in told] == [("watchdog_timeout", 7, 3)]


def test_a_logger_that_names_the_rank_behind_its_level_names_who_raised() -> None:
    head = "2026-02-01 10:00:00.113 | ERROR    | loop:go:31 - [rank={}] run ended\n"
    assert raised_by(head.format(4) + RAISED + "\n") == [4]


def test_local_ranks_in_names_count_from_where_the_folders_other_files_say(tmp_path: Path) -> None:
    files = {
        f"{name}/local_rank_{local}.log": f"[rank{4 * at + local}]:[E201 10:00:00.1 a.cpp:1] [Rank 0] {WAITED}\n"
        for at, name in enumerate(("spica", "mizar"))
        for local in range(4)
    } | {"mizar/local_rank_2.log": RAISED + "\n"}
    found = judged(tmp_path, files).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_exited", 6)
