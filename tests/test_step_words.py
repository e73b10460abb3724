"""Lines of steps that tell in words of their own how long they waited for data."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.logs.step_words import parts_in
from tests.support.hardware import judged, shares

WAITED = [
    "Train Epoch: 1 [ 51200/1281167 (4%)] Data (t): 2.110 Batch (t): 2.530, 212.2/s, 53.1/s/gpu LR: 0.000500 Loss: 6.9",
    "epoch: [1/100], iter: [20/1251], lr: 0.1, loss: 7.1, batch_cost: 2.53 s, reader_cost: 2.11 s, ips: 101.2 images/s",
    "global step 10, avg_reader_cost: 2.11 sec, avg_batch_cost: 2.53 sec, avg_samples: 8.00000",
    "step 812: data loading took 2.11s, total step 2.53s",
    "iter 100 waited 2.11 s for the next batch; step took 2.53 s",
    "step 100 | batch fetch: 2110 ms | iter: 2530 ms | loss 2.2",
    "step: 10 time_metrics/end_to_end(s): 2.53 time_metrics/data_loading(s): 2.11 time_metrics/data_loading(%): 83.4",
    "Step 100: train_step_timing in s: 2.53, dataloader_timing in s: 2.11",
    "step 40 t_data=2.11 t_step=2.53",
    "[train] it=100 speed=0.4 it/s data_time=2.11 batch_time=2.53",
    "epoch 1 iter 20 batch_time 2.53 (2.51) data_time 2.11 (2.10) loss 2.2",
    '{"step": 40, "data_s": 2.11, "step_s": 2.53, "loss": 1.0}',
]


@pytest.mark.parametrize("line", WAITED)
def test_the_wait_for_data_and_the_whole_step_are_told_apart(line: str) -> None:
    found = parts_in(line)
    assert (found["data"], found["total"]) == (pytest.approx(2.11), pytest.approx(2.53))


def test_a_share_of_the_step_that_is_waited_counts_but_not_how_far_the_data_has_come() -> None:
    assert parts_in("step 100 dataloader wait 80% of step time 2.50 s")["data"] == pytest.approx(2.0)
    assert "data" not in parts_in("epoch 3 data 80% step time 2.50 s")


@pytest.mark.parametrize(
    "line",
    [
        "step 40 batch 512 loss 2.5 lr 0.0003 samples 20480 tokens 1048576",
        "epoch 4 iter 120/5000 data 12/40 shards, input 4096",
        "Loading batch norm statistics from step 2000",
        "step 5 grad_norm 0.31 gpu_mem 71.2 batch 8",
    ],
)
def test_what_counts_something_is_no_time(line: str) -> None:
    assert "data" not in parts_in(line)
    assert "total" not in parts_in(line)


@pytest.mark.parametrize("line", [WAITED[0], WAITED[1], WAITED[6], WAITED[9], WAITED[10]])
def test_a_job_that_says_so_at_every_step_waits_for_its_data(tmp_path: Path, line: str) -> None:
    lines = "".join(f"2026-01-01 10:00:{second:02} {line}\n" for second in range(12))
    assert shares(judged(tmp_path / "much", {"train.log": lines}))["cpu.dataloader_starved"] > 0.8
    little = lines.replace("2.11", "0.01")
    assert shares(judged(tmp_path / "little", {"train.log": little})).get("cpu.dataloader_starved", 0.0) == 0
