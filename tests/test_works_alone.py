"""One rank works while the others wait, and no limit has run out yet.

The stacks are as py-spy and faulthandler print them, the bar as tqdm does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.stacks.text import stacks_of
from tests.support.hardware import judged

BUSY = "fw.rank_busy"
MAPS = ("tokenize (prep/text.py:{line})", "apply_function (datasets/arrow_dataset.py:3430)",
    "_map_single (datasets/arrow_dataset.py:3566)", "main (train.py:50)")  # fmt: skip
COMPILES = ("_compile (torch/_dynamo/convert_frame.py:1{line})", "forward (net.py:61)", "main (train.py:50)")


def spied(pid: int, *frames: str, active: bool = True) -> str:
    """A look of py-spy at a process whose rank nothing tells."""
    state = "active+gil" if active else "idle"
    rows = "".join(f"    {frame}\n" for frame in frames)
    head = f"Process {pid}: python train.py\nPython v3.11.8 (/usr/bin/python3)\n\n"
    return f'{head}Thread {pid} ({state}): "MainThread"\n{rows}\n'


def first(name: str) -> tuple[str, ...]:
    return ("barrier (torch/distributed/distributed_c10d.py:4159)", "wait_for_everyone (accelerate/state.py:389)",
        f"{name} (accelerate/state.py:520)", "main (train.py:49)")  # fmt: skip


def looks(name: str, works: tuple[str, ...]) -> dict[str, str]:
    return {
        f"look_{nth}.txt": spied(400, *(frame.format(line=40 + nth) for frame in works))
        + spied(401, *first(name), active=False)
        for nth in range(2)
    }


def verdict(folder: Path, files: dict[str, str]) -> tuple[str, object]:
    found = judged(folder, files).verdict.hypothesis
    return found.cause, found.subject.get("rank")


def test_the_process_that_others_let_go_first_is_rank_zero(tmp_path: Path) -> None:
    assert verdict(tmp_path / "a", looks("main_process_first", MAPS)) == (BUSY, 0)
    assert verdict(tmp_path / "b", looks("torch_distributed_zero_first", MAPS)) == (BUSY, 0)
    assert verdict(tmp_path / "c", looks("local_main_process_first", MAPS)) == (BUSY, None), "of which node?"


def test_who_waits_in_another_barrier_waits_for_no_first_process(tmp_path: Path) -> None:
    assert verdict(tmp_path, looks("gather_metrics", MAPS))[0] in ("none", "unknown")


@pytest.mark.parametrize("others", ["idle", "compile"])
def test_a_rank_that_works_at_three_looks_while_no_other_runs_is_busy(tmp_path: Path, others: str) -> None:
    files = {
        f"rank6_look{nth}.txt": spied(900, *(frame.format(line=200 + nth) for frame in COMPILES)) for nth in range(3)
    }
    frames = COMPILES if others == "compile" else ("step (loop.py:88)", "main (train.py:50)")
    files["rank2_look0.txt"] = spied(700, *(frame.format(line=1) for frame in frames), active=others == "compile")
    cause, rank = verdict(tmp_path, files)
    assert (cause, rank) == (BUSY, 6) if others == "idle" else cause in ("none", "unknown")


def dumped(*frames: tuple[str, int, str]) -> str:
    rows = "".join(f'  File "{file}", line {line} in {name}\n' for file, line, name in frames)
    return f"Timeout (0:05:00)!\nThread 0x00007f11e3285900 (most recent call first):\n{rows}"


@pytest.mark.parametrize("innermost", ["transformers/models/llama/modeling_llama.py", "torch/nn/modules/linear.py"])
def test_a_rank_that_generates_samples_while_the_others_wait_is_busy(tmp_path: Path, innermost: str) -> None:
    packages = "/env/lib/python3.11/site-packages"
    barrier = (f"{packages}/torch/distributed/distributed_c10d.py", 3696, "barrier")
    files = {f"rank{n}.txt": dumped(barrier, ("/job/eval.py", 30, "on_end")) for n in range(4) if n != 2}
    files["rank2.txt"] = dumped(
        (f"{packages}/{innermost}", 780, "forward"),
        (f"{packages}/transformers/generation/utils.py", 2397, "generate"),
        ("/job/eval.py", 55, "write"),
    )
    assert verdict(tmp_path, files) == (BUSY, 2)


def bar(minutes: int, step: str = "") -> str:
    head = (
        "[2025-02-03 09:00:01,100] torch.distributed.run: [WARNING] Setting OMP_NUM_THREADS environment variable "
        "for each process to be 1 in default\n"
    )
    rows = "".join(
        f"Tokenizing train (num_proc=8):  {2 * n}%|#   | {1000 * n}/50000 [{n:02d}:00<{50 - n}:00, 16.7 examples/s]\n"
        for n in range(1, minutes + 1)
    )
    return head + rows + step


def test_the_only_bar_of_a_job_of_several_processes_tells_who_prepares(tmp_path: Path) -> None:
    assert verdict(tmp_path / "long", {"job.log": bar(20)}) == (BUSY, 0)
    assert verdict(tmp_path / "short", {"job.log": bar(5)})[0] != BUSY, "five minutes are nothing"
    alone = bar(20).partition("\n")[2]
    assert verdict(tmp_path / "alone", {"job.log": alone})[0] != BUSY, "of one process nobody waits for it"
    steps = "".join(f"2025-02-03 09:{30 + n}:00,000 INFO step {n} loss 2.1\n" for n in range(5))
    assert verdict(tmp_path / "on", {"job.log": bar(20, steps)})[0] != BUSY, "it went on"


@pytest.mark.parametrize(
    ("heading", "rank"),
    [
        ("### 10:31 rank4 (pid 900)", 4),
        ("rank 4 on gpu-b2:", 4),
        ("== RANK=4 ==", 4),
        ("# the others wait for rank 4", None),
        ("# local rank 4 of the second node", None),
    ],
)
def test_a_heading_above_a_dump_tells_whose_it_is(heading: str, rank: int | None) -> None:
    text = f"{heading}\n" + spied(900, "step (loop.py:88)") + spied(901, "step (loop.py:88)")
    assert [stack.rank for stack in stacks_of(text)] == [rank, None]


def test_a_table_of_ranks_and_pids_tells_whose_processes_others_are(tmp_path: Path) -> None:
    rows = "".join(f"{rank},gpu-c{rank // 2 + 1},{500 + rank}\n" for rank in range(4))
    states = "    PID STAT WCHAN   COMMAND\n    502 Tl   do_signal_stop python\n    503 Rl   -       python\n"
    files = {"ranks.csv": "rank,host,pid\n" + rows, "gpu-c2/ps.txt": states}
    assert verdict(tmp_path, files) == ("fw.rank_stopped", 2)
