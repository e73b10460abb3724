"""What DDP, FSDP, Megatron, DeepSpeed and torch's own checks write of gradients and parameters is told as what it is.

Right values follow from what each check compares, by its source.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog import _log_reduce
from probes.catalog.rank_log import of_file
from tests.support.hardware import judged

BY_NAN_CHECK = (
    "/opt/pytorch/torch/csrc/distributed/c10d/NanCheck.cu:210: checkForNaN: block: [3,0,0], thread: [64,0,0] "
    "Assertion `!isnan(tailPtr[threadIdx.x])` failed.\n"
)
BY_INDEX = (
    "/opt/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1500: indexSelectSmallIndex: block: [3,0,0], thread: [64,0,0] "
    "Assertion `srcIndex < srcSelectDimSize` failed.\n"
)
ASSERT = (
    "[rank6]: Traceback (most recent call last):\n"
    '[rank6]:   File "/w/run.py", line 77, in step\n'
    "[rank6]:     loss.backward()\n"
    "[rank6]: RuntimeError: CUDA error: device-side assert triggered\n"
)


def of_log(folder: Path, text: str) -> tuple[str, object, float]:
    found = judged(folder, {"train.log": text}).verdict
    return found.hypothesis.cause, found.hypothesis.subject.get("rank"), found.probability


def ranks(text: str, *which: int) -> str:
    return "".join(f"[rank{rank}]: {text.format(rank=rank)}\n" for rank in which)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "RuntimeError: Detected at least one parameter gradient is not the expected DDP bucket view with "
            "gradient_as_bucket_view=True.",
            "fw.hook_order",
        ),
        ("AssertionError: Cannot set grad twice", "fw.hook_order"),
        (
            "AssertionError: The parameter 447 has already been reduced.             Gradient computed twice for this "
            "partition.             Multiple gradient reduction is currently not supported",
            "fw.hook_order",
        ),
        (
            "AssertionError: Communication call has not been issued for this bucket (11/12 params have grad available)",
            "fw.unused_parameters",
        ),
        (
            "RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is unused in first "
            "iteration, but then got used in the second iteration.",
            "fw.unused_parameters",
        ),
    ],
)
def test_what_wraps_the_model_names_the_trouble_with_gradients(tmp_path: Path, line: str, cause: str) -> None:
    found, rank, share = of_log(tmp_path, ranks(line, 2))
    assert (found, rank) == (cause, 2)
    assert share > 0.8


def test_a_bucket_with_all_its_gradients_lacks_none(tmp_path: Path) -> None:
    line = "AssertionError: Communication call has not been issued for this bucket (12/12 params have grad available)"
    assert of_log(tmp_path, ranks(line, 2))[0] != "fw.unused_parameters"


def test_fsdp_names_the_first_rank_that_gathers_in_another_order(tmp_path: Path) -> None:
    line = "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 4 parameters while rank {} is "
    line += "all-gathering 1 parameters"
    assert of_log(tmp_path / "far", ranks(line.format(5), 0, 1, 5))[:2] == ("fw.collective_mismatch", 5)
    assert of_log(tmp_path / "near", ranks(line.format(1), 0, 1, 5))[:2] == ("fw.collective_mismatch", None), (
        "rank 0 itself may be the odd one"
    )


def test_ddp_tells_whose_model_has_another_shape(tmp_path: Path) -> None:
    line = "RuntimeError: [{rank}]: params[0] in this process with shape [50304, 64] appears not to match shape of the "
    line += "same param in process 0."
    others = "".join(f"[rank{rank}]: INFO init done\n" for rank in range(4))
    zero = of_log(tmp_path / "zero", ranks(line, 1, 2, 3))
    assert zero[:2] == ("fw.collective_shape_mismatch", 0), "all others differ from it"
    pair = of_log(tmp_path / "pair", ranks(line, 1))
    assert pair[:2] == ("fw.collective_shape_mismatch", None), "of two ranks either may be wrong"
    assert of_log(tmp_path / "others", others + ranks(line, 2))[0] == "fw.collective_shape_mismatch"


def test_a_model_of_no_parameters_is_what_an_aborted_gather_leaves(tmp_path: Path) -> None:
    line = "RuntimeError: DDP expects same model across all ranks, but Rank {} has {} params, while rank {} has "
    line += "inconsistent {} params."
    aborted = ranks(line.format(1, 70, 0, 0), 1)
    assert of_log(tmp_path / "aborted", aborted)[0] != "fw.collective_shape_mismatch"
    real = ranks(line.format(1, 70, 3, 74), 1) + ranks(line.format(2, 70, 3, 74), 2)
    real += ranks(line.format(3, 74, 0, 70), 3)
    assert of_log(tmp_path / "real", real)[:2] == ("fw.collective_shape_mismatch", 3)


def test_the_nan_check_is_told_from_other_asserts_however_far_from_the_end_it_stands(tmp_path: Path) -> None:
    rest = "[rank6]: note of the program\n" * 60
    assert of_log(tmp_path / "nan", BY_NAN_CHECK * 3 + ASSERT + rest)[0] == "fw.nan_gradient"
    assert of_log(tmp_path / "index", BY_INDEX * 3 + ASSERT + rest)[0] == "gpu.app_fault"


def watchdog(rank: int, seq: int = 41) -> str:
    return (
        f"[rank{rank}]:[E1104 23:11:40.7 ProcessGroupNCCL.cpp:688] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600013 "
        "milliseconds before timing out.\n"
    )


def test_ranks_whose_account_is_cut_off_wait_in_no_other_group(tmp_path: Path) -> None:
    account = (
        "[rank{0}]:[E1104 23:11:40.8 ProcessGroupNCCL.cpp:2299] [PG ID 0 PG GUID 0(default_pg) Rank {0}]  failure "
        "detected by watchdog at work sequence id: 41 PG status: last enqueued work: 41, last completed work: 40\n"
    )
    log = "".join(watchdog(rank) for rank in range(4)) + account.format(0) + account.format(2)
    told = judged(tmp_path, {"train.log": log})
    assert not [one for one in told.ranked if one.hypothesis.cause == "fw.group_order_cycle"]


SACCT = """JobID           State ExitCode    Elapsed
------------ ---------- -------- ----------
9001           {0}      {1}   01:00:02
9001.batch  COMPLETED      0:0   01:00:02
9001.0      COMPLETED      0:0   01:00:00
"""


@pytest.mark.parametrize(
    "text",
    [
        SACCT.format("COMPLETED", "0:0"),
        "JobID|JobName|State|ExitCode\n77|sft|COMPLETED|0:0\n77.0|torchrun|COMPLETED|0:0\n",
        "JobId=812 JobName=sft\n   UserId=ann(1001)\n   JobState=COMPLETED Reason=None\n   ExitCode=0:0\n",
        "NAME            STATUS     COMPLETIONS   DURATION   AGE\nsft-worker-01   Complete   1/1   63m   2h\n",
    ],
)
def test_a_job_that_its_scheduler_calls_complete_has_nothing_wrong(tmp_path: Path, text: str) -> None:
    found = judged(tmp_path, {"terminal.txt": text}).verdict
    assert found.hypothesis.cause == "none"
    assert found.hypothesis.because[0].says.endswith("ended well")


def test_an_exit_code_a_failed_step_or_a_failure_in_a_log_says_otherwise(tmp_path: Path) -> None:
    good = SACCT.format("COMPLETED", "0:0")
    crash = "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: no such file\n"
    for place, files in enumerate((
        {"terminal.txt": SACCT.format("COMPLETED", "0:9")},
        {"terminal.txt": SACCT.format("FAILED   ", "1:0")},
        {"terminal.txt": SACCT.format("RUNNING  ", "0:0")},
        {"terminal.txt": good, "rank1.log": crash},
    )):  # fmt: skip
        assert judged(tmp_path / str(place), files).verdict.hypothesis.cause != "none"


def look(pid: int, *frames: str) -> str:
    body = "".join(f"    {frame}\n" for frame in frames)
    return (
        f'Process {pid}: python t.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{body}'
    )


def test_who_was_elsewhere_a_moment_before_does_not_wait_for_a_rank_that_is_late(tmp_path: Path) -> None:
    pause = ("step (t.py:24)", "<module> (t.py:28)")
    backward = ("_engine_run_backward (torch/autograd/graph.py:979)", "step (t.py:18)", "<module> (t.py:28)")
    moved = {
        f"look{n}/rank{r}.txt": look(70 + r, *(backward if n == 2 and r else pause)) for n in (1, 2) for r in range(3)
    }
    stood = {f"look{n}/rank{r}.txt": look(70 + r, *(backward if r else pause)) for n in (1, 2) for r in range(3)}
    assert judged(tmp_path / "moved", moved).verdict.hypothesis.cause == "unknown"
    found = judged(tmp_path / "stood", stood).verdict.hypothesis
    assert (found.cause, found.subject) == ("fw.rank_missing_collective", {"rank": 0}), "a folder look2 is no node"


def test_a_dump_that_somebody_asked_for_ends_no_run_of_a_log() -> None:
    steps = [f"step {n} | loss 2.{n:02d} | 5.1 s/step" for n in range(12)]
    asked = "[rank0]:[I729 08:00:00.04 ProcessGroupNCCL.cpp:1566] [PG ID 0 PG GUID 0(default_pg) Rank 0] Dump signal "
    asked += "received through pipe, triggering FR dump."
    events = of_file("a.log", "\n".join([*steps[:2], asked, *steps[2:]]), None).events
    assert [event.more.get("run") for event in events if event.kind in ("progress", "dump_signal")] == [None, None]


@pytest.mark.parametrize(
    "line",
    [
        BY_NAN_CHECK.strip(),
        "RuntimeError: Detected at least one parameter gradient is not the expected DDP bucket view",
        "AssertionError: Cannot set grad twice",
        "Gradient computed twice for this partition.",
        "Communication call has not been issued for this bucket (11/12 params have grad available)",
        "RuntimeError: Your training graph has changed in this iteration, e.g., one parameter is unused",
        "Forward order differs across ranks: rank 0 is all-gathering 4 parameters while rank 5 is all-gathering 1",
        "[2]: params[0] in this process with sizes [8, 4] appears not to match sizes of the same param in process 0.",
        "DDP expects same model across all ranks, but Rank 3 has 74 params, while rank 0 has inconsistent 70 params.",
        "found Inf in local grad norm for bucket #3",
        "The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped.",
    ],
)
def test_a_node_sends_these_lines_from_the_middle_of_a_long_log(line: str) -> None:
    data = b"nothing to see\n" * 50 + line.encode() + b"\n" + b"nothing to see\n" * 50
    assert line in [text for _, _, text in _log_reduce.chosen_lines(data)[0]]
    assert of_file("a.log", line, None).events, "and they are read"
