"""What DDP, FSDP, Megatron, DeepSpeed and torch's own checks write of gradients and parameters is told as what it is.

Right values follow from what each check compares, by its source.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.logs import reduce
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
    assert line in [text for _, _, text in reduce.chosen_lines(data)[0]]
    assert of_file("a.log", line, None).events, "and they are read"


def test_lightning_says_in_its_own_words_that_parameters_got_no_gradient(tmp_path: Path) -> None:
    raised = (
        'Traceback (most recent call last):\n[rank{rank}]:   File "/w/fit.py", line 12, in <module>\n[rank{rank}]: '
        "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss "
        "returned by training_step."
    )
    assert of_log(tmp_path, ranks(raised, 4))[:2] == ("fw.unused_parameters", 4)


def test_accelerate_lists_shapes_and_the_smaller_side_is_odd(tmp_path: Path) -> None:
    raised = (
        'Traceback (most recent call last):\n[rank{rank}]:   File "/w/fit.py", line 12, in <module>\n[rank{rank}]: '
        "accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape "
        "mismatches. All shapes across devices must be valid.\n\nOperation: `accelerate.utils.operations.gather`\n"
        "Input shapes:\n"
    )
    shapes = "".join(f"  - Process {n}: [{3 if n == 1 else 8}, 64]\n" for n in range(4))
    assert of_log(tmp_path, ranks(raised, 0) + shapes)[:2] == ("fw.collective_shape_mismatch", 1)
    pair = "  - Process 0: [1, 5]\n  - Process 1: [1, 2, 5]\n"
    assert of_log(tmp_path / "pair", ranks(raised, 0) + pair)[:2] == ("fw.collective_shape_mismatch", None)


def test_deepspeed_compares_the_parameters_to_gather_with_those_of_rank_0(tmp_path: Path) -> None:
    raised = (
        'Traceback (most recent call last):\n[rank{rank}]:   File "/w/fit.py", line 12, in <module>\n[rank{rank}]: '
        "RuntimeError: disagreement between rank0 and rank{rank}: rank0: [7, 8], rank{rank}: [8, 7]"
    )
    others = "".join(f"[rank{rank}]: INFO init done\n" for rank in range(8))
    assert of_log(tmp_path, others + ranks(raised, 6))[:2] == ("fw.collective_mismatch", 6)
    assert of_log(tmp_path / "all", others + ranks(raised, 1, 2, 3))[:2] == ("fw.collective_mismatch", 0)


def counted(rank: int, own: int, peer: int, theirs: int) -> str:
    call = "CollectiveFingerPrint(SequenceNumber={}, OpType=ALLREDUCE, TensorShape=[16])"
    return (
        f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running "
        f"collective: {call.format(own)}, but Rank {peer} is running collective: {call.format(theirs)}.\n"
    )


def test_fingerprints_that_differ_in_the_number_of_calls_alone_tell_who_left_one_out(tmp_path: Path) -> None:
    three = counted(0, 88, 1, 87) + counted(2, 88, 1, 87) + counted(1, 87, 0, 88)
    assert of_log(tmp_path, three)[:2] == ("fw.rank_missing_collective", 1)
    found, _, share = of_log(tmp_path / "one", counted(2, 87, 0, 88))
    assert (found != "fw.collective_shape_mismatch", share < 0.8) == (True, True)


def test_the_sanitizers_report_tells_without_a_traceback_too(tmp_path: Path) -> None:
    report = (
        "CSAN detected a possible data race on tensor with data pointer 140377000000512\nAccess by stream 94000 during "
        "kernel:\naten::add_(Tensor self)\nwriting to argument(s) self, and to the output\n"
    )
    assert of_log(tmp_path, report)[0] == "fw.stream_order"


def test_a_process_that_was_spawned_is_named_above_its_traceback(tmp_path: Path) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/w/go.py", line 5, in <module>\n    mp.spawn(main, nprocs=8)\n'
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 5 terminated with the following error:\n"
        "Traceback (most recent call last):\n  File \"/w/go.py\", line 61, in main\n    row['label']\n"
        "KeyError: 'label'\n"
    )
    assert of_log(tmp_path, text)[:2] == ("fw.rank_exited", 5)


def test_ray_writes_actor_and_rank_in_front_of_a_traceback(tmp_path: Path) -> None:
    ray = "(Trainer pid=311, ip=10.9.0.7) [rank3]: "
    text = f'{ray}Traceback (most recent call last):\n{ray}  File "/w/go.py", line 8, in f\n{ray}ValueError: empty\n'
    assert of_log(tmp_path, text)[:2] == ("fw.rank_exited", 3)


def test_a_stopped_process_is_known_by_the_rank_among_its_arguments(tmp_path: Path) -> None:
    def table(option: str, second: int) -> str:
        rows = "".join(
            f" {9000 + n}  8000 {'Tl' if n == 1 else 'Rl'}   python run.py --{option} {n and second}\n"
            for n in range(2)
        )
        return f"  PID  PPID STAT COMMAND\n{rows}"

    found = judged(tmp_path, {"ps.txt": table("rank", 1)}).verdict.hypothesis
    assert (found.cause, found.subject["rank"]) == ("fw.rank_stopped", 1)
    same = judged(tmp_path / "lora", {"ps.txt": table("rank", 0)}).verdict
    assert "rank" not in same.hypothesis.subject, "a rank of LoRA is the same for all"
    assert same.probability < 0.8


def test_losses_that_transformers_prints_need_no_times_to_be_a_log(tmp_path: Path) -> None:
    rows = [("0.91", "1.2"), ("0.88", "1.1"), ("nan", "nan"), ("0.0", "nan"), ("0.0", "nan")]
    text = "".join(f"{{'loss': {loss}, 'grad_norm': {norm}, 'epoch': 0.{n}}}\n" for n, (loss, norm) in enumerate(rows))
    assert of_log(tmp_path, text)[0] == "fw.nan_gradient"


def test_who_joined_and_waits_is_no_suspect_beside_who_never_joined(tmp_path: Path) -> None:
    report = (
        "\t - [2] Timeout at collective: BROADCAST, #9\n"
        "\t   - [1] joined but didn't finish collective #9 (count from 1)\n"
        "\t     [6] finished collective #8, but didn't join collective #9 (count from 1)\n"
    )
    assert of_log(tmp_path, report)[:2] == ("fw.rank_missing_collective", 6)


def test_collectives_that_nobody_waited_for_tell_where_all_whose_logs_are_here_wrote_it(tmp_path: Path) -> None:
    line = (
        "[rank0]:[W1130 10:00:00.1 ProcessGroup.hpp:940] Warning: At the time of process termination, there are still "
    )
    line += "480 unwaited collective calls.\n"
    assert of_log(tmp_path, line)[0] == "fw.async_not_awaited"
    other = "[rank1]: INFO step 4\n[rank1]: RuntimeError: Connection closed by peer [10.0.0.1]:900\n"
    assert of_log(tmp_path / "other", line + other)[0] != "fw.async_not_awaited"
