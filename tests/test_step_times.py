"""Step times that programs print: who is slow, and what each step is spent on.

The numbers are the model of the job: a step takes as long as its slowest rank, the others wait for the rest of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog._log_read import read_log
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
