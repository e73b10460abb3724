"""Step times that programs print: who is slow, and what each step is spent on.

The numbers are the model of the job: a step takes as long as its slowest rank, the others wait for the rest of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.logs.read import read_log
from tests.support.hardware import judged

STRAGGLER, LOADER = "fw.rank_straggler", "cpu.dataloader_starved"


def table(steps: int, slow: int, ranks: int = 6) -> str:
    """Megatron's table: each computes for 300 ms, one for 500, and the others wait for it in their gradients."""
    rows = ""
    for step in range(1, steps + 1):
        rows += f" [2026-05-01 10:00:{step:02d}] iteration {step}/ 90 | elapsed time per iteration (ms): 560.0 |\n"
        rows += "times across ranks (ms):\n"
        for timer, usual, odd in (
            ("forward-backward", 300, 500),
            ("forward-compute", 100, 100),
            ("grads-all-reduce", 250, 50),
        ):
            rows += f"  {timer}:\n"
            rows += "".join(f"     rank {r:2d}: {(odd if r == slow else usual) + r / 10:.2f}\n" for r in range(ranks))
    return rows


def lines(form: str, steps: int, busy: dict[int, tuple[float, float]], step: float = 0.9) -> str:
    """Of each rank: data and computing in seconds; the rest of the step it waits."""
    return "".join(
        f"[rank{rank}] step {n} " + form.format(data=data, own=own, wait=step - data - own, ms=1000 * own) + "\n"
        for n in range(1, steps + 1)
        for rank, (data, own) in busy.items()
    )


def of_log(folder: Path, text: str) -> tuple[str, object, float]:
    found = judged(folder, {"train.log": text}).verdict
    return found.hypothesis.cause, found.hypothesis.subject.get("rank"), found.probability


def test_a_table_of_all_ranks_gives_the_parts_of_each() -> None:
    events = [event for event in read_log(table(5, slow=4))[0] if event.kind == "step_times"]
    assert [(event.rank, event.count, event.more["own_us"]) for event in events][4] == (4, 5, 500_400)
    assert events[1].more["wait_us"] == 250_100, "a timer within another is not added to it"


@pytest.mark.parametrize("slow", [0, 3, 5])
def test_the_rank_that_computes_longer_while_the_others_wait_is_the_straggler(tmp_path: Path, slow: int) -> None:
    assert of_log(tmp_path / "table", table(6, slow))[:2] == (STRAGGLER, slow)
    form = "data={data:.3f}s compute={own:.3f}s allreduce={wait:.3f}s"
    busy = {rank: (0.01, 0.8 if rank == slow else 0.4) for rank in range(6)}
    assert of_log(tmp_path / "lines", lines(form, 6, busy))[:2] == (STRAGGLER, slow)


def test_what_is_longer_in_its_data_is_the_loader_of_that_rank(tmp_path: Path) -> None:
    busy = {rank: (0.5 if rank == 2 else 0.01, 0.3) for rank in range(4)}
    assert of_log(tmp_path, lines("data_time: {data:.3f} fwd_bwd: {own:.3f} comm: {wait:.3f}", 9, busy))[:2] == (
        LOADER,
        2,
    )


def test_steps_of_which_most_is_data_starve_all_ranks(tmp_path: Path) -> None:
    busy = dict.fromkeys(range(4), (0.6, 0.25))
    cause, rank, share = of_log(tmp_path, lines("data {data:.2f} s forward {own:.2f} s", 9, busy))
    assert (cause, rank) == (LOADER, None)
    assert share > 0.8
    unmarked = "".join(f"10:00:0{n} iter {n} loss 2.{n} time: 1.20 data_time: 0.90 lr: 0.001\n" for n in range(9))
    assert of_log(tmp_path / "unmarked", unmarked)[0] == LOADER


def test_even_ranks_two_steps_and_slow_ranks_that_nobody_waits_for_lead_to_nothing(tmp_path: Path) -> None:
    form = "data={data:.3f}s compute={own:.3f}s allreduce={wait:.3f}s"
    even = {rank: (0.05, 0.40 + rank / 100) for rank in range(6)}
    two = {rank: (0.01, 0.8 if rank == 1 else 0.4) for rank in range(6)}
    alone = lines("compute={own:.3f}s comm=0.300s", 9, two)
    for at, text in enumerate((lines(form, 9, even), lines(form, 2, two), alone)):
        assert of_log(tmp_path / str(at), text)[0] in ("none", "unknown")


METERS = {
    "timm": "Train: 3 [{n:4d}/2000 (  1%)]  Loss: 4.100 (4.10)  Time: 1.900s,  134.00/s  (1.950s,  130.00/s)  "
    "LR: 1.000e-03  Data: 1.600 (1.610)",
    "imagenet": "Epoch: [2][{n:4d}/5005]\tTime  1.900 ( 1.950)\tData  1.600 ( 1.610)\tLoss 5.9e+00 (6.0e+00)",
    "torchvision": "Epoch: [2]  [ {n}/5005]  eta: 2:00:00  lr: 0.1  img/s: 130.1  time: 1.9000  data: 1.6000",
    "mmengine": "11/02 10:00:{n:02d} - mmengine - INFO - Epoch(train)  [1][{n}/900]  lr: 1.0e-03  eta: 1:00:00  "
    "time: 1.9000  data_time: 1.6000  memory: 5000  loss: 5.9",
    "detectron2": "[10/02 10:00:{n:02d} d2.utils.events]: eta: 1:02:03  iter: {n}  total_loss: 2.2  time: 1.9000  "
    "last_time: 1.8000  data_time: 1.6000  last_data_time: 1.5000   lr: 0.01  max_mem: 7000M",
    "json": '{{"step": {n}, "loss": 5.9, "data_time_ms": 1600.0, "step_time_ms": 1900.0}}',
    "tqdm": "Epoch 0:   1%| | {n}/5200 [0:02:22<10:56:51,  1.90s/it, data=1.600]",
}


@pytest.mark.parametrize("form", METERS)
def test_the_meters_of_frameworks_tell_what_of_a_step_is_waiting_for_data(form: str) -> None:
    text = "".join(METERS[form].format(n=n) + "\n" for n in range(1, 12))
    told = next(event for event in read_log(text)[0] if event.kind == "step_times")
    assert (told.more["data_us"], told.more["total_us"]) == (1_600_000, 1_900_000)


def test_megatrons_fastest_and_slowest_times_are_a_table_too() -> None:
    rows = "(min, max) time across ranks (ms):\n"
    rows += "    forward-backward ...............................: (401.00, 410.50)\n"
    rows += "    batch-generator ................................: (350.10, 360.25)\n"
    told = next(event for event in read_log(rows * 5)[0] if event.kind == "step_times")
    # The batch generator runs within the forward pass: what is left is the rank's own.
    assert (told.more["data_us"], told.more["own_us"]) == (360_250, 50_250)


def test_who_reports_for_all_ranks_is_not_the_one_that_its_lines_tell_of(tmp_path: Path) -> None:
    busy = {0: 0.41, 1: 0.40, 2: 0.74, 3: 0.42}
    rows = "".join(
        f"of rank {rank}: compute={own:.2f}s allreduce={0.8 - own:.2f}s step_time=0.80s\n"
        for _ in range(4)
        for rank, own in busy.items()
    )
    found = judged(tmp_path, {"worker_rank0.log": rows}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == (STRAGGLER, 2)


def test_a_local_rank_in_the_log_of_one_rank_does_not_move_its_times() -> None:
    rows = "".join(f"rank 1 here, step {n}: compute=0.40s allreduce=0.10s step_time=0.50s\n" for n in range(5))
    assert [event.rank for event in read_log(rows, rank=9)[0] if event.kind == "step_times"] == [9]


def of_each(steps: int, slow: int, ranks: int = 6, least: float = 300.0) -> list[list[tuple[float, float]]]:
    """Of each step and rank: ms that it computes, ms that it then waits for the slowest."""
    rows = []
    for step in range(steps):
        busy = [least * (1.6 if rank == slow else 1.0) + (step + rank) % 4 for rank in range(ranks)]
        rows.append([(one, max(busy) + 5 - one) for one in busy])
    return rows


@pytest.mark.parametrize("slow", [1, 4])
@pytest.mark.parametrize("form", ["r{rank}_compute_ms,r{rank}_wait_ms", "rank{rank}.fwd_ms,rank{rank}.allreduce_ms",
                                  "compute_ms[rank {rank}],wait_ms[rank {rank}]"])  # fmt: skip
def test_columns_of_each_rank_in_one_wide_table_tell_the_straggler(tmp_path: Path, slow: int, form: str) -> None:
    head = "when," + ",".join(form.format(rank=rank) for rank in range(6))
    rows = [
        f"10:20:{step:02d}," + ",".join(f"{own:.1f},{wait:.1f}" for own, wait in row)
        for step, row in enumerate(of_each(9, slow))
    ]
    found = judged(tmp_path, {"timers.csv": "\n".join([head, *rows]) + "\n"}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == (STRAGGLER, slow)


@pytest.mark.parametrize("legend", ["# compute ms / wait ms", "# fwd+bwd / wait-in-allreduce (ms)"])
@pytest.mark.parametrize("before", [True, False])
def test_values_with_strokes_between_them_mean_what_their_legend_says(
    tmp_path: Path, legend: str, before: bool
) -> None:
    rows = [
        f"[timer] step={70 + step} " + " ".join(f"r{n}={own:.0f}/{wait:.0f}" for n, (own, wait) in enumerate(row))
        for step, row in enumerate(of_each(8, 2))
    ]
    text = "\n".join([legend, *rows] if before else [f"{row}   {legend}" for row in rows])
    assert of_log(tmp_path / "told", text + "\n")[:2] == (STRAGGLER, 2)
    assert of_log(tmp_path / "bare", "\n".join(rows) + "\n")[0] != STRAGGLER, "without it nobody knows"


def test_when_a_rank_enters_a_collective_is_no_time_that_it_waits_there(tmp_path: Path) -> None:
    rows = [
        f"{step},{rank},{own:.1f},{own + 2:.1f},{wait:.1f}"
        for step, row in enumerate(of_each(6, 3))
        for rank, (own, wait) in enumerate(row)
    ]
    for head in ("step,rank,fwd_bwd_ms,enter_allreduce_ms,wait_in_allreduce_ms",
                 "step,rank,other_ms,arrive_at_barrier_ms,barrier_wait_ms"):  # fmt: skip
        found = judged(tmp_path / head[-9:], {"trace.csv": "\n".join([head, *rows]) + "\n"}).verdict
        assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == (STRAGGLER, 3), head


def test_even_columns_of_each_rank_lead_to_nothing(tmp_path: Path) -> None:
    head = "step," + ",".join(f"rank{rank}_compute_ms,rank{rank}_wait_ms" for rank in range(6))
    rows = [
        f"{step}," + ",".join(f"{own:.1f},{wait:.1f}" for own, wait in row)
        for step, row in enumerate(of_each(9, slow=99))
    ]
    assert judged(tmp_path, {"timers.csv": "\n".join([head, *rows]) + "\n"}).verdict.hypothesis.cause in (
        "none",
        "unknown",
    )


def test_stages_of_a_pipeline_that_differ_but_wait_alike_hold_nobody_up(tmp_path: Path) -> None:
    rows = [
        f"{step},{rank},{420 if rank == 3 else 300},{waits},{step % 3}"
        for step in range(9)
        for rank, waits in enumerate((120, 118, 121, 119))
    ]
    head = "step,rank,fwd_ms,p2p_wait_ms,tokens"
    assert judged(tmp_path, {"stages.csv": "\n".join([head, *rows]) + "\n"}).verdict.hypothesis.cause != STRAGGLER
