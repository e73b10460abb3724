"""What a log tells of the pace of ranks: who was busy when the others gave up, and whether the limit was too short."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.logs.read import read_log
from tests.support.hardware import judged

TIMED_OUT = (
    "[rank{rank}]:[E1005 04:10:00.000000000 ProcessGroupNCCL.cpp:688] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, Timeout(ms)={limit}) ran for "
    "{limit} milliseconds before timing out.\n"
)
ACCOUNT = (
    "[rank{rank}]:[E1005 04:10:00.200000000 ProcessGroupNCCL.cpp:2299] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  "
    "failure detected by watchdog at work sequence id: 77 PG status: last enqueued work: 77, last completed work: 76\n"
)


@pytest.mark.parametrize(
    ("line", "ms"),
    [
        ("step 4 loss 2.1 3.25 s/step seq 4096", 3250),
        ("step 4 loss 2.1 870 ms/step, batch 512", 870),
        ("iter 12 loss 1.0 step_time=0.5s tokens 9000", 500),
        ("step 9 | loss 1.5 | sec/step: 2.0 | lr 0.1", 2000),
        ("step 9 | loss 1.5 | ms/it: 40 | lr 0.1", 40),
    ],
)
def test_the_time_of_a_step_is_the_number_that_its_unit_belongs_to(line: str, ms: int) -> None:
    (event,) = read_log(line + "\n")[0]
    assert event.more["step_ms"] == ms


def test_ranks_whose_account_is_cut_off_wait_in_the_group_that_the_others_name(tmp_path: Path) -> None:
    text = "".join(TIMED_OUT.format(rank=rank, limit=600000) for rank in range(6))
    text += "".join(ACCOUNT.format(rank=rank) for rank in (1, 4))
    verdict = judged(tmp_path, {"train.log": text}).verdict
    assert verdict.hypothesis.cause != "fw.group_order_cycle"


def test_a_rank_that_prepares_data_while_others_wait_to_set_up_is_busy(tmp_path: Path) -> None:
    missed = (
        "[rank{rank}]: torch.distributed.DistBackendError: [{rank}] is setting up NCCL communicator and retrieving "
        "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after "
        "600000ms, keys: /default_pg/0//cuda//0\n"
    )
    bar = "Map (num_proc=4):  61%|######    | 610/1000 [10:02<06:20,  1.01 examples/s]\n"
    text = "".join(missed.format(rank=rank) for rank in (1, 2, 3)) + bar
    found = judged(tmp_path, {"job.log": text}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_busy", 0)


def gathers(took: list[float], limit_ms: int, waiting: range) -> str:
    steps = "".join(f"step {n}: rollout 90.0s, gather {one:.1f}s, update 20.0s\n" for n, one in enumerate(took))
    return steps + "".join(TIMED_OUT.format(rank=rank, limit=limit_ms) for rank in waiting)


def test_collectives_that_grew_to_the_limit_make_it_too_short(tmp_path: Path) -> None:
    found = judged(tmp_path / "grown", {"job.log": gathers([40.0, 47.0, 55.0], 60_000, range(4))}).verdict
    assert found.hypothesis.cause == "fw.timeout_too_short"
    found = judged(tmp_path / "quick", {"job.log": gathers([4.0, 4.1, 4.0], 60_000, range(4))}).verdict
    assert found.hypothesis.cause != "fw.timeout_too_short"


STACK = """Process 41: python3 -m app.main
Python v3.11.4 (/usr/bin/python3.11)

Thread 41 (active): "MainThread"
    {frame}
    main (app/main.py:12)
    <module> (app/main.py:30)
"""


def test_a_stack_in_a_checkpoint_and_the_limits_of_all_others_are_a_checkpoint_stall(tmp_path: Path) -> None:
    log = "".join(TIMED_OUT.format(rank=rank, limit=600_000) for rank in (1, 2, 5, 6))
    files = {"job.log": log, "pyspy_rank3.txt": STACK.format(frame="save_file (safetensors/torch.py:286)")}
    found = judged(tmp_path / "saves", files).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.checkpoint_stall", 3)
    files["job.log"] += TIMED_OUT.format(rank=3, limit=600_000)
    found = judged(tmp_path / "waited", files).verdict.hypothesis
    assert found.cause != "fw.checkpoint_stall", "it timed out itself: its stack is of another time"


def test_a_function_that_counts_what_it_loads_is_a_checkpoint_and_its_name_alone_is_none() -> None:
    told = read_log("2026-01-02 10:00:00 INFO load_checkpoint: shard 7/32 (2.1 GB)\n")[0]
    assert [event.kind for event in told] == ["checkpoint"]
    told = read_log("2026-01-02 10:00:00 INFO config load_checkpoint: true\n")[0]
    assert "checkpoint" not in [event.kind for event in told]


def evaluated(*took: float, last: str) -> str:
    """An evaluation at the end of each epoch, and one that the limit of 600 s cut off."""
    told = "".join(f"2025-01-07 0{n}:10:00 epoch {n} validation done in {one:.0f} s\n" for n, one in enumerate(took))
    return told + f"2025-01-07 09:10:00 {last}\n" + "".join(TIMED_OUT.format(rank=r, limit=600_000) for r in (1, 3))


@pytest.mark.parametrize(
    ("took", "last", "cause"),
    [
        ([560.0, 580.0], "epoch 2 validation started, 900 batches", "fw.timeout_too_short"),
        ([], "validation batch 861/900", "fw.timeout_too_short"),
        ([30.0, 31.0], "validation batch 120/900", "fw.rank_busy"),
    ],
    ids=["as long as the limit before", "nearly done", "far from done"],
)
def test_an_evaluation_that_needs_about_the_limit_makes_it_too_short(
    tmp_path: Path, took: list[float], last: str, cause: str
) -> None:
    assert judged(tmp_path, {"job.log": evaluated(*took, last=last)}).verdict.hypothesis.cause == cause
