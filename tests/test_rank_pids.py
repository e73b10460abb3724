"""Which process each rank is, where somebody wrote it down beside stacks that tell no rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.intake.rank_pids import ranks_told
from tests.support.brought import told

LOOK = """Process {pid}: /env/bin/python -u pretrain.py
Python v3.11.9 (/env/bin/python3.11)

Thread {pid} (idle): "MainThread"
    {inner}
    <module> (pretrain.py:88)

"""
WAITS = "barrier (torch/distributed/distributed_c10d.py:4811)\n    main (pretrain.py:61)"
SAVES = "save (torch/serialization.py:965)\n    write_state (pretrain.py:40)\n    main (pretrain.py:59)"
PIDS = {4411: 8, 4420: 9, 4437: 10, 4452: 11}
STACKS = "".join(LOOK.format(pid=pid, inner=SAVES if rank == 10 else WAITS) for pid, rank in PIDS.items())


def pairs(form: str) -> str:
    return "".join(form.format(rank=rank, pid=pid) for pid, rank in PIDS.items())


FORMS = [
    pairs("{rank} {pid}\n"),
    pairs("{pid}\t{rank}\n"),
    pairs("rank{rank}: {pid}\n"),
    pairs("RANK={rank} {pid}\n"),
    "# ranks and their pids on this host\nrank -> pid: " + pairs("{rank}={pid}, ") + "\n",
    "pid => rank\n" + pairs("{pid} => {rank}\n"),
    "ranks 8-11 are pids 4411 4420 4437 4452\n",
    pairs("rank {rank} is pid {pid}\n"),
    pairs("pid {pid} = rank {rank}, ") + "\n",
]


@pytest.mark.parametrize("form", FORMS)
def test_a_list_of_ranks_and_pids_names_the_rank_of_a_stack(tmp_path: Path, form: str) -> None:
    found = told(tmp_path, {"stacks.txt": STACKS, "whose.txt": form})
    assert (found.cause, found.subject["rank"]) == ("fw.checkpoint_stall", 10)


def test_a_list_above_the_stacks_in_one_file_does_too(tmp_path: Path) -> None:
    found = told(tmp_path, {"dl-a07.txt": "rank -> pid: " + pairs("{rank}={pid}, ") + "\n" + STACKS})
    assert (found.cause, found.subject["rank"]) == ("fw.checkpoint_stall", 10)


def test_the_same_pids_on_two_nodes_are_those_of_the_lists_own_node(tmp_path: Path) -> None:
    files = {"gpu-a01/stacks.txt": STACKS, "gpu-a02/stacks.txt": STACKS}
    files["gpu-a01/pids.txt"] = pairs("{rank} {pid}\n")
    found = told(tmp_path, files)
    assert (found.subject["rank"], found.subject["node"]) == (10, "gpu-a01")


@pytest.mark.parametrize(
    "text",
    [
        "1 2\n3 4\n5 6\n",
        "[rank0]: waits for pid 3000\n",
        "local_rank 0 pid 4411\n",
        "step 10\nstep 20\n",
        "0 4411\n9 4420\n",
    ],
)
def test_other_numbers_in_pairs_are_no_ranks(text: str) -> None:
    assert ranks_told(text) == ({}, False)


def test_numbers_that_no_evidence_knows_as_pids_name_no_rank(tmp_path: Path) -> None:
    found = told(tmp_path, {"stacks.txt": STACKS, "hist.txt": "0 310\n1 322\n2 340\n3 395\n"})
    assert "rank" not in found.subject
