"""What logs of a training alone tell of a slow or failed rank, in the forms that programs and launchers write.

Right values follow from what was written: who gave up waited, and who counted documents or gigabytes worked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import judged

DAY = "2026-05-03 10:"
WORK = "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
FAILED = """Root Cause (first observed failure):
[0]:
  time      : 2026-05-03_10:20:00
  host      : n2
  rank      : {rank} (local_rank: {local})
  exitcode  : 1 (pid: 77)
  error_file: <N/A>
============================================================
"""
FULL = """Traceback (most recent call last):
  File "/w/train.py", line 8, in main
{name}: CUDA out of memory. Tried to allocate 2.00 GiB (GPU {gpu}; 39.59 GiB total capacity; 36.1 GiB already allocated)
"""


def gave_up(*ranks: int) -> str:
    text = "Watchdog caught collective operation timeout: {} ran for 600032 milliseconds before timing out."
    return "".join(
        f"[rank{r}]:[E503 10:20:00.0 ProcessGroupNCCL.cpp:607] [Rank {r}] {text.format(WORK)}\n" for r in ranks
    )


def of_log(folder: Path, text: str) -> tuple[str, object, float]:
    found = judged(folder, {"train.log": text}).verdict
    return found.hypothesis.cause, found.hypothesis.subject.get("rank"), found.probability


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ("INFO tokenizing: 900/4000 documents", "fw.rank_busy"),
        ("Preprocessed 12,000 of 90,000 rows", "fw.rank_busy"),
        ("Map (num_proc=8):  41%|####      | 41/100 [09:12<13:00, 13.2s/ examples]", "fw.rank_busy"),
        ("saving checkpoint to /nfs/step_900", "fw.checkpoint_stall"),
        ("checkpoint: wrote 71.5 of 280.0 GB", "fw.checkpoint_stall"),
        ("gathering the full state_dict on one rank", "fw.checkpoint_stall"),
    ],
)
def test_who_works_while_the_limits_of_all_others_run_out_is_busy(tmp_path: Path, last: str, cause: str) -> None:
    told = f"{DAY}01:00 step 899 loss 2.1\n{DAY}19:00 {last}\n{gave_up(0, 1, 3)}"
    found, rank, share = of_log(tmp_path, told.replace(f"19:00 {last}", f"19:00 [rank2] {last}"))
    assert (found, rank) == (cause, 2)
    assert share > 0.9
    assert of_log(tmp_path / "unmarked", told)[:2] == (cause, 2), "all others are known"


def test_what_is_done_or_was_followed_by_steps_is_not_what_they_wait_for(tmp_path: Path) -> None:
    for at, last in enumerate(("tokenizing: 4000/4000 documents", "saved checkpoint at step 900/2000")):
        assert of_log(tmp_path / str(at), f"{DAY}19:00 [rank2] {last}\n{gave_up(0, 1, 3)}")[0] not in (
            "fw.rank_busy", "fw.checkpoint_stall")  # fmt: skip
    steps = "".join(f"{DAY}1{n}:00 [rank2] step {900 + n} loss 2.0\n" for n in range(9))
    saved = f"{DAY}09:00 [rank2] step 899 loss 2.0\n{DAY}09:30 [rank2] saving checkpoint to /nfs/a\n"
    assert of_log(tmp_path / "later", saved + steps + gave_up(0, 1, 3))[0] != "fw.checkpoint_stall"


@pytest.mark.parametrize("name", ["RuntimeError", "torch.cuda.OutOfMemoryError"])
def test_an_exception_that_nothing_marks_is_of_the_rank_that_the_launcher_saw_fail(tmp_path: Path, name: str) -> None:
    told = FULL.format(name=name, gpu=3) + FAILED.format(rank=11, local=3)
    assert of_log(tmp_path, told)[:2] == ("gpu.out_of_memory", 11)
    two = FULL.format(name=name, gpu=3) + FAILED.format(rank=9, local=1) + FAILED.format(rank=11, local=3)
    assert of_log(tmp_path / "two", two)[:2] == ("gpu.out_of_memory", 11), "the GPU that it names is one's own"
    assert of_log(tmp_path / "alone", FULL.format(name=name, gpu=0))[:2] == ("gpu.out_of_memory", None)


def test_collectives_without_a_wait_count_less_where_an_error_ended_the_step(tmp_path: Path) -> None:
    warning = "Warning: At the time of process termination, there are still 4 unwaited collective calls."
    lines = "".join(f"[rank{r}]:[W503 10:20:00.0 ProcessGroup.hpp:940] {warning}\n" for r in range(4))
    cause, _, share = of_log(tmp_path, f"{DAY}19:00 step 9 loss 2.0\n{lines}")
    assert cause == "fw.async_not_awaited"
    assert of_log(tmp_path / "raised", f"{FULL.format(name='ValueError', gpu=0)}{lines}")[0] != cause
    assert share < 0.9


def steps(first: int, last: int, rank: str = "") -> str:
    return "".join(f"{DAY}{n // 60:02d}:{n % 60:02d} {rank}step {n} loss 2.0\n" for n in range(first, last))


def test_what_the_job_trained_on_after_is_over_and_the_next_end_counts(tmp_path: Path) -> None:
    full = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.\n"
    quiet = judged(tmp_path / "a", {"train.log": steps(0, 30) + full + steps(20, 50)}).verdict
    assert quiet.hypothesis.cause in ("none", "unknown")
    rotated = {"train.log.1": steps(0, 30) + full, "train.log": steps(20, 50)}
    assert judged(tmp_path / "b", rotated).verdict.hypothesis.cause in ("none", "unknown")
    again = steps(0, 30) + full + steps(20, 50) + full.replace("rank2", "rank5")
    assert of_log(tmp_path / "c", again)[:2] == ("gpu.out_of_memory", 5)
    assert of_log(tmp_path / "d", steps(0, 30) + full + steps(20, 50) + full)[:2] == ("gpu.out_of_memory", 2)


def test_a_few_steps_of_others_after_an_end_do_not_take_it_back(tmp_path: Path) -> None:
    full = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.\n"
    others = "".join(steps(30, 33, f"[rank{r}] ") for r in (0, 1, 3))
    assert of_log(tmp_path, steps(0, 30) + full + others)[:2] == ("gpu.out_of_memory", 2)


def test_a_launcher_that_tells_only_of_aborts_on_several_ranks_decides_nothing(tmp_path: Path) -> None:
    one = "[{at}]:\n  time      : 2026-05-03_10:20:00\n  host      : n2\n  rank      : {at} (local_rank: {at})\n"
    one += (
        "  exitcode  : -6 (pid: 8{at})\n  error_file: <N/A>\n  traceback : Signal 6 (SIGABRT) received by PID 8{at}\n"
    )
    rule = "-" * 60 + "\n"
    text = f"{rule}Failures:\n{one.format(at=1)}{one.format(at=2)}{rule}Root Cause (first observed failure):\n"
    cause, _, share = of_log(tmp_path, text + one.format(at=0) + "=" * 60 + "\n")
    assert cause == "unknown" or share < 0.5


@pytest.mark.parametrize(
    "last", ["torch._dynamo hit config.recompile_limit (8)", "Evaluating:  24%|##4   | 120/500 [01:59<06:18,  1.0s/it]"]
)
def test_a_rank_that_compiles_or_evaluates_alone_is_busy(tmp_path: Path, last: str) -> None:
    assert of_log(tmp_path, f"{steps(0, 9, '[rank3] ')}[rank3] {last}\n{gave_up(0, 1, 2)}")[:2] == ("fw.rank_busy", 3)


def test_a_limit_that_steps_nearly_reach_is_too_short(tmp_path: Path) -> None:
    took = "".join(f"[rank{r}]: step {n} took {{}} s\n" for n in range(3) for r in range(4))
    minute = gave_up(1, 2, 3).replace("600", "60")
    assert of_log(tmp_path / "near", took.replace("{}", "58.4") + minute)[0] == "fw.timeout_too_short"
    assert of_log(tmp_path / "far", took.replace("{}", "1.4") + minute)[0] != "fw.timeout_too_short"


def test_a_loss_that_stays_nan_is_told_though_no_rank_marks_the_line(tmp_path: Path) -> None:
    nan = "".join(f"{DAY}01:{n:02d} step {n} loss nan\n" for n in range(30, 50))
    cause, rank, share = of_log(tmp_path / "stays", steps(0, 30) + nan)
    assert (cause, rank) == ("fw.nan_gradient", None)
    assert share > 0.8
    assert of_log(tmp_path / "back", steps(0, 30) + nan + steps(50, 80))[0] in ("none", "unknown")
    megatron = " iteration {}/ 900 | lm loss: 2.1E+00 | loss scale: 1.0 | number of nan iterations: {:3d} |\n"
    lines = ("".join(megatron.format(n, count) for n in range(20)) for count in (0, 1))
    assert [of_log(tmp_path / f"m{at}", text)[0] for at, text in enumerate(lines)][1] == "fw.nan_gradient"
    assert of_log(tmp_path / "well", "".join(megatron.format(n, 0) for n in range(20)))[0] != "fw.nan_gradient"


def account(rank: int, group: int, name: str, size: int) -> str:
    work = WORK.replace("NumelIn=1,", f"NumelIn={size},")
    who = f"[PG ID {group} PG GUID {group}({name}) Rank {rank}]"
    text = (
        f"[rank{rank}]:[E503 10:20:00.0 ProcessGroupNCCL.cpp:632] {who} Watchdog caught collective operation timeout: "
    )
    return f"{text}{work} ran for 600032 milliseconds before timing out.\n"


def test_limits_that_ran_out_in_two_groups_which_need_each_other_are_a_circle(tmp_path: Path) -> None:
    circle = "".join(account(r, 1 + (r == 2), "dp" if r == 2 else "tp", 64) for r in range(4))
    assert of_log(tmp_path / "circle", circle)[:2] == ("fw.group_order_cycle", 2)
    halves = "".join(account(r % 2, 1 + r // 2, "tp", 64).replace(f"[rank{r % 2}]", f"[rank{r}]") for r in range(4))
    assert of_log(tmp_path / "halves", halves)[0] != "fw.group_order_cycle", "groups of two that stand by themselves"


@pytest.mark.parametrize("last", ["checkpoint step9 is about to be saved!", "Saving out/mp_rank_00_model_states.pt..."])
def test_a_file_that_is_being_saved_is_a_checkpoint(tmp_path: Path, last: str) -> None:
    told = f"{DAY}19:00 [rank0] step 9 loss 2.0\n{DAY}19:01 [rank0] {last}\n{gave_up(1, 2, 3)}"
    assert of_log(tmp_path, told)[:2] == ("fw.checkpoint_stall", 0)
