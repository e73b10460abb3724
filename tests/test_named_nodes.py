"""Whose evidence is, whatever people call their machines: racks and units, words, names that a cloud made."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from probes.explain import explain
from probes.intake.names import named
from probes.intake.rank_prefixes import marked

KILLED = (
    "[812211.1] Out of memory: Killed process 41210 (python3) total-vm:912331221kB, anon-rss:881201220kB, "
    "file-rss:1024kB, shmem-rss:0kB, UID:1004 pgtables:1802100kB oom_score_adj:0\n"
)
QUIET = "[11.2] systemd[1]: Started Journal Service.\n[33.1] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready\n"
PAIRS = [
    ("r12-u07", "r12-u09"), ("sirius", "vega"), ("llm-worker-7c9f8d6b54-x2k9p", "llm-worker-7c9f8d6b54-q8d2z"),
    ("gke-pool-a3-5f2d81c3-k7wq", "gke-pool-a3-5f2d81c3-p2lm"), ("i-0a1b2c3d4e5f67890", "i-0a1b2c3d4e5f67777"),
]  # fmt: skip


def killed_on(folder: Path, files: dict[str, str]) -> object:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    verdict = explain([folder]).diagnosis.verdict.hypothesis
    assert verdict.cause == "host.memory_oom_kill"
    return verdict.subject.get("node")


@pytest.mark.parametrize(("node", "other"), PAIRS)
def test_a_kernel_log_is_its_nodes_whatever_that_is_called(tmp_path: Path, node: str, other: str) -> None:
    by_file = {f"dmesg_{node}.txt": KILLED, f"dmesg_{other}.txt": QUIET}
    assert killed_on(tmp_path / "files", by_file) == node
    by_folder = {f"{node}/dmesg.txt": KILLED, f"{other}/dmesg.txt": QUIET}
    assert killed_on(tmp_path / "folders", by_folder) == node
    lines = "".join(f"{who}: {line}\n" for who, log in ((other, QUIET), (node, KILLED)) for line in log.splitlines())
    assert killed_on(tmp_path / "pdsh", {"pdsh.txt": lines}) == node
    assert killed_on(tmp_path / "heads", {"notes.txt": f"== {other} ==\n{QUIET}== {node} ==\n{KILLED}"}) == node


@pytest.mark.parametrize("word", ["before", "boot", "full"])
def test_a_word_for_which_look_it_was_is_no_node(tmp_path: Path, word: str) -> None:
    assert killed_on(tmp_path, {f"dmesg_{word}.txt": KILLED, "dmesg_after.txt": QUIET}) is None


@pytest.mark.parametrize(
    ("name", "rank"), [("r12-u07", None), ("r3-n2.log", None), ("r12.log", 12), ("r3-step100.log", 3)]
)
def test_a_rack_and_its_unit_are_no_rank(name: str, rank: int | None) -> None:
    assert named(PurePosixPath(name)).rank == rank


def test_a_local_rank_of_a_folder_counts_as_one_of_a_name() -> None:
    assert named(PurePosixPath("local_rank_2/spy0.txt")).local == 2


def test_numbers_in_brackets_are_ranks_where_each_writes_often() -> None:
    lines = "".join(f"[{rank}] step {step} loss 2.1\n" for step in range(3) for rank in range(4))
    assert marked(lines)[0].startswith("[rank0]: step 0 loss 2.1\n[rank1]: ")
    for other in ("[0] read the log\n[1] ask the node\n[2] write it down\n", lines.replace("[0]", "[7]")):
        assert marked(other) == (other, {})


def test_the_name_of_prrte_before_a_rank_is_none_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text(
        "".join(
            f"[prterun-n1-8812@1,{rank}]<stdout>:step {step} data_time {3.2 if rank == 5 else 0.02}s iter_time 3.9s\n"
            for step in range(20)
            for rank in range(8)
        )
    )
    verdict = explain([tmp_path]).diagnosis.verdict.hypothesis
    assert (verdict.cause, verdict.subject["rank"]) == ("cpu.dataloader_starved", 5)


LOOK = """Process 4126: python3 train.py{}
Python v3.11.9 (/usr/bin/python3.11)

Thread 4126 (idle): "MainThread"
    forward (model.py:44)
    <module> (train.py:140)
Thread 4999 (active+gil): "ckpt-writer"
    write (ckpt.py:41)
    run (threading.py:982)
"""


@pytest.mark.parametrize(
    ("arguments", "rank"), [(" --rank 13 --world 16", 13), (" --node_rank=1 --local_rank=5", None)]
)
def test_a_rank_that_a_command_line_asks_for_is_its_processes(tmp_path: Path, arguments: str, rank: int | None) -> None:
    (tmp_path / "p.txt").write_text(LOOK.format(arguments) * 4)
    verdict = explain([tmp_path]).diagnosis.verdict.hypothesis
    assert (verdict.cause, verdict.subject.get("rank")) == ("cpu.gil_contention", rank)


def test_numbers_of_looks_at_one_process_of_a_node_are_no_ranks(tmp_path: Path) -> None:
    (tmp_path / "gpu-7").mkdir()
    for look in range(4):
        (tmp_path / "gpu-7" / f"spy_{look}.txt").write_text(
            LOOK.format("").replace("ckpt.py:41", f"ckpt.py:{41 + look}")
        )
    found = explain([tmp_path]).diagnosis.ranked
    assert not any("rank" in one.hypothesis.subject for one in found)
    assert found[0].hypothesis.cause == "cpu.gil_contention"
