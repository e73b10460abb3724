"""Tables of times per rank, however they are laid out, and reports of RAS one after the other.

The numbers are the model of the job: a step takes as long as its slowest rank, the others wait for the rest of it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from probes.catalog.logs.read import read_log
from tests.support.hardware import judged

STRAGGLER = "fw.rank_straggler"
RANKS = 5


def busy(rank: int, slow: int) -> float:
    return (0.6 if rank == slow else 0.35) + rank / 1000


def columns(slow: int, steps: int) -> str:
    """Ranks as columns, as trainers print all-gathered times."""
    row = "".join(f"{rank:9d}" for rank in range(RANKS))
    text = ""
    for step in range(steps):
        text += f"-- after step {100 * step} --\nrank     {row}\n"
        text += "compute  " + "".join(f"{busy(rank, slow):9.3f}" for rank in range(RANKS)) + "\n"
        text += "wait     " + "".join(f"{0.65 - busy(rank, slow):9.3f}" for rank in range(RANKS)) + "\n"
    return text


def as_csv(slow: int, steps: int) -> str:
    out = io.StringIO()
    rows = csv.writer(out)
    rows.writerow(["step", "global_rank", "hostname", "forward (ms)", "backward (ms)", "allreduce (ms)"])
    for step in range(steps):
        for rank in range(RANKS):
            ms = 1000 * busy(rank, slow)
            rows.writerow([step, rank, f"pod-{rank // 3}", f"{ms / 3:.1f}", f"{2 * ms / 3:.1f}", f"{650 - ms:.1f}"])
    return out.getvalue()


def objects(slow: int, steps: int) -> str:
    rows = (
        {"rank": rank, "step": step, "compute_ms": round(1000 * busy(rank, slow)), "comm_ms": 650}
        | {"comm_ms": round(650 - 1000 * busy(rank, slow))}
        for step in range(steps)
        for rank in range(RANKS)
    )
    return "".join(json.dumps(row) + "\n" for row in rows)


def pipes(slow: int, steps: int) -> str:
    text = "| rank | fwd_bwd_s | idle_s |\n|------|-----------|--------|\n"
    one = "".join(f"| {r} | {busy(r, slow):.3f} | {0.65 - busy(r, slow):.3f} |\n" for r in range(RANKS))
    return text + one * steps


def sentences(slow: int, steps: int) -> str:
    form = "step {step} rank {rank}: compute_ms={own:.0f} sync_ms={wait:.0f}\n"
    return "".join(
        form.format(step=step, rank=rank, own=1000 * busy(rank, slow), wait=650 - 1000 * busy(rank, slow))
        for step in range(steps)
        for rank in range(RANKS)
    )


FORMS: dict[str, Callable[[int, int], str]] = {
    "times.txt": columns,
    "times.csv": as_csv,
    "times.jsonl": objects,
    "table.log": pipes,
    "said.log": sentences,
}


@pytest.mark.parametrize("slow", [0, 3])
@pytest.mark.parametrize("name", FORMS)
def test_the_rank_for_which_the_others_wait_is_found_in_every_layout(tmp_path: Path, name: str, slow: int) -> None:
    found = judged(tmp_path, {name: FORMS[name](slow, 6)}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == (STRAGGLER, slow)


@pytest.mark.parametrize("name", FORMS)
def test_ranks_that_take_equally_long_are_no_finding(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, {name: FORMS[name](-1, 6)}).verdict.hypothesis.cause in ("none", "unknown")


def test_a_table_tells_the_node_of_the_late_rank(tmp_path: Path) -> None:
    found = judged(tmp_path, {"times.csv": as_csv(4, 6)}).verdict
    assert found.hypothesis.subject == {"rank": 4, "node": "pod-1"}


def test_one_table_alone_is_not_certain(tmp_path: Path) -> None:
    found = judged(tmp_path, {"times.csv": as_csv(2, 1)}).verdict
    assert found.probability < 0.8
    steady = judged(tmp_path / "steady", {"times.csv": as_csv(2, 8)}).verdict
    assert steady.probability > 0.9


def test_parts_that_follow_each_other_are_added_and_parts_of_a_whole_are_not() -> None:
    text = "rank,forward_ms,backward_ms,forward_backward_ms\n" + "0,100,200,310\n" * 3
    (event,) = [event for event in read_log(text)[0] if event.kind == "step_times"]
    assert event.more["own_us"] == 310_000
    text = "rank,forward_ms,backward_ms\n" + "0,100,200\n" * 3
    (event,) = [event for event in read_log(text)[0] if event.kind == "step_times"]
    assert event.more["own_us"] == 300_000


def test_a_table_of_values_that_are_no_times_is_no_log(tmp_path: Path) -> None:
    found = judged(tmp_path, {"scores.csv": "rank,team,points\n1,red,90\n2,blue,80\n3,green,10\n"}).verdict
    assert found.hypothesis.cause in ("none", "unknown")


def test_numbers_that_are_no_times_are_passed_over() -> None:
    hostile = ("NaN", "Infinity", "-1", "1" + 400 * "0", "true")
    text = "".join(f'{{"rank": 1, "compute_ms": {value}, "comm_ms": {value}}}\n' for value in hostile)
    assert not [event for event in read_log(text)[0] if event.kind == "step_times"]


# NCCL RAS -------------------------------------------------------------------------------------------------------------


def ras(at: int, behind: dict[int, int]) -> str:
    ranks = [
        {"rank": rank, "host": f"pod-{rank // 4}", "pid": 900 + rank, "cuda_dev": rank % 4, "nvml_dev": rank % 4}
        | {"status": {"init_state": 0, "async_error": 0}}
        | {"collective_counts": {"AllReduce": at - behind.get(rank, 0)}}
        for rank in range(8)
    ]
    one = {"hash": "0xabc", "size": 8, "ranks_count": 8, "missing_ranks_count": 0, "ranks": ranks}
    return json.dumps({"nccl_version": "2.29.3", "communicators_count": 1, "communicators": [one]}, indent=1)


def test_a_rank_behind_in_every_report_while_all_go_on_is_the_straggler(tmp_path: Path) -> None:
    files = {f"ras/{n}.json": ras(1000 + 300 * n, {6: 20 + n}) for n in range(4)}
    found = judged(tmp_path, files).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject) == (STRAGGLER, {"rank": 6, "node": "pod-1"})


def test_another_rank_behind_in_each_report_is_a_healthy_job(tmp_path: Path) -> None:
    files = {f"ras/{n}.json": ras(1000 + 300 * n, {2 * n % 8: 3}) for n in range(4)}
    assert judged(tmp_path, files).verdict.hypothesis.cause in ("none", "unknown")


def test_two_reports_are_not_enough_to_be_certain(tmp_path: Path) -> None:
    files = {f"ras/{n}.json": ras(1000 + 300 * n, {6: 20 + n}) for n in range(2)}
    assert judged(tmp_path, files).verdict.probability < 0.8


def test_a_rank_that_stands_is_no_straggler(tmp_path: Path) -> None:
    files = {f"ras/{n}.json": ras(1000 + n, {6: 200 + n}) for n in range(4)}
    assert judged(tmp_path, files).verdict.hypothesis.cause != STRAGGLER
