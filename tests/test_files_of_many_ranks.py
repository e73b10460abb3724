"""Stacks and recorders of several ranks in one file, however somebody put them there; bars that fill one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.hardware import judged, waited
from tests.test_ranks_told_apart import FETCHES, WAITS, fault, recorder

ORDERS = {rank: [("1" if rank < 2 else "2", "tp"), ("3" if rank % 2 == 0 else "4", "dp")] for rank in range(4)}


def dumps() -> dict[int, dict[str, object]]:
    """Rank 2 never came to the second collective of its group, which rank 3 waits in."""
    found = {rank: json.loads(recorder(rank, ORDERS[rank], True)) for rank in range(4)}
    for rank, one in found.items():
        for entry in one["entries"]:
            if entry["process_group"][1] == "dp" or rank < 2:
                entry.update(state="completed", retired=True, time_discovered_completed_ns=entry["time_created_ns"] + 9)
    found[2]["entries"] = [one for one in found[2]["entries"] if (one["pg_id"], one["collective_seq_id"]) != (2, 2)]
    return found


FORMS = {
    "by rank": lambda: json.dumps({str(rank): one for rank, one in dumps().items()}),
    "by name": lambda: json.dumps({f"worker-{rank}": one for rank, one in dumps().items()}),
    "a list": lambda: json.dumps([{"rank": rank, "host": "gn-8", "fr": one} for rank, one in dumps().items()]),
    "below results": lambda: json.dumps({"results": [{"rank": rank, **one} for rank, one in dumps().items()]}),
    "lines": lambda: "".join(json.dumps({"rank": rank, **one}) + "\n" for rank, one in dumps().items()),
    "headings": lambda: "".join(f"--- rank {rank}\n{json.dumps(one)}\n" for rank, one in dumps().items()),
}


@pytest.mark.parametrize("form", FORMS)
def test_recorders_of_all_ranks_in_one_file_tell_what_single_files_tell(tmp_path: Path, form: str) -> None:
    alone = {f"fr_rank_{rank}.json": json.dumps(one) for rank, one in dumps().items()}
    expected = judged(tmp_path / "alone", alone).verdict.hypothesis
    assert (expected.cause, expected.subject.get("rank")) == ("fw.rank_missing_collective", 2)
    found = judged(tmp_path / "one", {"collected.json": FORMS[form]()}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == (expected.cause, 2)


STACKS = {rank: fault(*(FETCHES if rank == 1 else WAITS), head="") for rank in range(4)}


def test_stacks_below_the_name_of_their_rank_are_of_that_rank(tmp_path: Path) -> None:
    for at, head in enumerate(("rank {}:", "# rank {} (gn-4, pid 81{})", "=== Rank {} ===", "[rank {}]")):
        text = "".join(f"{head.format(rank, rank)}\n{stack}\n" for rank, stack in STACKS.items())
        found = judged(tmp_path / str(at), {"stacks.txt": text}).verdict.hypothesis
        assert (found.cause, found.subject.get("rank")) == ("fw.rank_missing_collective", 1), head


@pytest.mark.parametrize("mark", ["[rank{}]: ", "{}: ", "[1,{}]<stderr>:"])
def test_stacks_in_a_log_of_all_ranks_are_told_apart_by_their_marks(tmp_path: Path, mark: str) -> None:
    rows = [
        f"{mark.format(rank)}{line}\n" for rank, stack in STACKS.items() for line in [*stack.split("\n"), "step 7 done"]
    ]
    log = "".join(rows) + "".join(f"{waited(rank)}\n" for rank in (0, 2, 3))
    found = judged(tmp_path, {"job.log": log}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_missing_collective", 1)


def test_a_log_that_speaks_of_ranks_is_not_cut_into_parts(tmp_path: Path) -> None:
    log = "=== Rank 0 starts epoch 1 ===\nrank 0:\nstep 1 loss 2.0\nrank 1:\nstep 1 loss 2.0\n" + waited(0) + "\n"
    files = {"job.log": log}
    assert "watchdog" in str(judged(tmp_path, files).verdict.hypothesis) or judged(tmp_path, files).ranked


MET = "#stderr: Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to suspend process\n    1: {why}\n"


@pytest.mark.parametrize(
    ("why", "stopped"),
    [
        ("unexpected waitpid result PtraceEvent(Pid(812), SIGSTOP, 128) to 812", True),
        ("EPERM: Operation not permitted", False),
    ],
)
def test_what_py_spy_could_not_stop_is_stopped_already(tmp_path: Path, why: str, stopped: bool) -> None:
    text = f"Process 812: python run.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n{MET.format(why=why)}"
    found = judged(tmp_path, {"spy_rank4.txt": text})
    told = {one.hypothesis.cause: one.probability for one in found.ranked}
    assert ("fw.rank_stopped" in told) is stopped
    assert told.get("fw.rank_stopped", 0.0) < 0.8


def bar(*losses: str) -> str:
    steps = (
        f"\rEpoch 3: {at // 100}%|##  | {at}/9000 [00:09<01:10, 13it/s, loss={loss}]" for at, loss in losses_at(losses)
    )
    return "begin\n" + "".join(steps) + "\n"


def losses_at(losses: tuple[str, ...]) -> list[tuple[int, str]]:
    return [(at, losses[at * len(losses) // 4000]) for at in range(4000)]


def test_the_end_of_a_bar_in_one_line_tells_what_the_loss_is_now(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", {"o.log": bar("0.5", "0.4", "nan")}).verdict.hypothesis.cause == "fw.nan_gradient"
    passed = judged(tmp_path / "b", {"o.log": bar("0.5", "nan", "0.4")}).verdict.hypothesis
    assert passed.cause in ("none", "unknown"), "finite since long"


SPY = 'Process {pid}: python run.py\nPython v3.12.3 (/usr/bin/python3)\n\nThread {pid} (idle): "MainThread"\n{frames}\n'
IN = "    all_reduce (torch/distributed/distributed_c10d.py:3252)\n    step (run.py:41)\n    main (run.py:90)\n"
OUT = "    take (feed.py:12)\n    main (run.py:90)\n"


def spied(front: str, odd: int = 2, of: int = 4) -> str:
    looks = ((at, SPY.format(pid=7000 + 11 * at, frames=OUT if at == odd else IN), 7000 + 11 * at) for at in range(of))
    return "".join(front.format(at=at, pid=pid) + text for at, text, pid in looks)


def test_of_processes_that_nothing_gives_a_rank_the_one_that_is_elsewhere_stands_out(tmp_path: Path) -> None:
    found = judged(tmp_path / "a", {"all.txt": spied("gpu-n{at} | CHANGED | rc=0 >>\n")}).verdict
    told = found.hypothesis
    assert told.cause == "fw.rank_missing_collective"
    assert (told.subject.get("node"), told.subject.get("pid")) == ("gpu-n2", 7022)
    assert found.probability < 0.6, "one look, and no rank"
    few = judged(tmp_path / "b", {"all.txt": spied("gpu-n{at} | CHANGED | rc=0 >>\n", odd=1, of=2)})
    assert few.verdict.hypothesis.cause == "unknown", "of two nothing tells which is late"
    alike = judged(tmp_path / "c", {"all.txt": spied("gpu-n{at} | CHANGED | rc=0 >>\n", odd=9)})
    assert alike.verdict.hypothesis.cause in ("unknown", "none")


@pytest.mark.parametrize(
    "front",
    [
        "root@gpu-{at}:~# tr '\\0' '\\n' < /proc/{pid}/environ | grep ^RANK\nRANK={at}\n"
        "root@gpu-{at}:~# py-spy dump -p {pid}\n",
        "### box{at} / rank{at}\n$ docker exec box{at} py-spy dump -p 7\n",
    ],
)
def test_the_rank_of_a_stack_is_told_above_it_in_the_same_paste(tmp_path: Path, front: str) -> None:
    found = judged(tmp_path, {"console.txt": spied(front)}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_missing_collective", 2)


@pytest.mark.parametrize(
    "line",
    [
        "[1,0]<stderr>:Missing ranks:\n[1,0]<stderr>:3: [DistributedOptimizer_Allreduce/grad.4, x]",
        "[1,0]<stderr>:grad.4 [missing ranks: 3]",
    ],
)
def test_horovod_names_the_rank_that_a_tensor_waits_for(tmp_path: Path, line: str) -> None:
    log = (
        f"[1,0]<stderr>:[W stall_inspector.cc:107] One or more tensors are waiting for more than 60 seconds.\n{line}\n"
    )
    found = judged(tmp_path, {"job.log": log}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == ("fw.rank_missing_collective", 3)
    assert found.probability < 0.8, "at its start a job may be only slow"
