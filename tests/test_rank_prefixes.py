"""Which rank and which node wrote a line or a log, where something put it in front of lines or in the file's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from probes.intake.rank_prefixes import marked
from tests.support.hardware import judged

STEP = "2026-03-02 11:10:01,114 INFO step 500/50000 loss 2.31"
ERROR = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
Front = Callable[[int], str]


def host(rank: int) -> str:
    return f"kb{30 + rank // 4}"


def written(front: Front) -> str:
    lines = [f"{front(rank)}{STEP}" for rank in range(8)] + [f"{front(6)}{ERROR}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("front", "placed"),
    [
        (lambda rank: f"Rank {rank}: ", False),
        (lambda rank: f"R{rank} | ", False),
        (lambda rank: f"[{host(rank)} rank {rank}] ", True),
        (lambda rank: f"rank={rank} host={host(rank)} ", True),
        (lambda rank: f"{host(rank)}:{rank}: ", True),
    ],
)
def test_the_rank_that_stands_in_front_of_every_line(tmp_path: Path, front: Front, placed: bool) -> None:
    subject = judged(tmp_path / "incident", {"job.log": written(front)}).verdict.hypothesis.subject
    assert subject == ({"rank": 6, "node": "kb31"} if placed else {"rank": 6})


def test_a_logger_of_json_tells_the_node_as_well(tmp_path: Path) -> None:
    row = '{{"time": "2026-03-02T11:10:01Z", "rank": {0}, "hostname": "{1}", "message": "{2}"}}\n'
    text = "".join(row.format(rank, host(rank), "step 500 loss 2.31") for rank in range(8))
    text += row.format(6, host(6), ERROR)
    assert judged(tmp_path / "incident", {"job.jsonl": text}).verdict.hypothesis.subject == {"rank": 6, "node": "kb31"}


@pytest.mark.parametrize(
    "front",
    [
        lambda rank: f"Rank {rank}: " if rank == 0 else "",  # a few lines that speak of a rank
        lambda rank: "Rank 0: ",  # one rank's own log
        lambda rank: f"{host(rank)}:{rank % 4}: ",  # local ranks, which every node has
        lambda rank: f"[rank{rank}]: ",  # marked already
    ],
)
def test_what_is_no_rank_in_front_is_left_as_it_is(front: Front) -> None:
    assert marked(written(front)) == (written(front), {})


@pytest.mark.parametrize(
    "name", ["{h}/rank{r}.log", "{h}/{r}.log", "{h}_rank{r}.log", "train_rank{r}_{h}.log", "{h}.{r}.err"]
)
def test_the_node_in_the_names_of_logs(tmp_path: Path, name: str) -> None:
    steps = f"{STEP}\n{STEP.replace('500', '501').replace('10:01', '10:31')}\n"
    files = {name.format(h=host(rank), r=rank): f"{steps}{ERROR if rank == 6 else ''}\n" for rank in range(8)}
    assert judged(tmp_path / "incident", files).verdict.hypothesis.subject == {"rank": 6, "node": "kb31"}


def test_logs_of_two_runs_with_the_same_ranks_are_of_no_node(tmp_path: Path) -> None:
    files = {f"kx{n}/rank{rank}.log": f"{STEP}\n{ERROR if rank == 1 else ''}\n" for n in (1, 2) for rank in range(2)}
    assert "node" not in judged(tmp_path / "incident", files).verdict.hypothesis.subject
