"""Stacks: what py-spy and faulthandler print, and what each process waits in.

The truths of the recorded hangs were worked out from what each job does (tests/fixtures/hangs/README.md) and from
reading its stacks, not from our own reader. Three ranks each; most recordings of jobs that died show only imports.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from probes.catalog.rank_stack import findings, parse
from probes.catalog.stacks.facts import Frame, ProcessStack, Thread
from probes.catalog.stacks.text import stacks_of
from probes.catalog.stacks.waits import waits_in
from probes.core import ParseError

HANGS = Path(__file__).parent / "fixtures" / "hangs"
TORCH = "/opt/venv/lib/python3.11/site-packages/torch/"

# file: (kind, operation, the program's own line). None: py-spy got no stack, and its file says why.
TRUTHS: dict[str, tuple[str, str, str] | None] = {
    # Rank 0 waits in Work.wait of its asynchronous all_reduce, which Python does not see; the others in a barrier.
    "async_barrier/pyspy_rank0.txt": ("user code", "", "train.py:82"),
    "async_barrier/pyspy_native_rank0.txt": ("collective", "wait", "train.py:82"),
    "async_barrier/pyspy_rank1.txt": ("barrier", "barrier", "train.py:84"),
    "async_barrier/pyspy_rank2.txt": ("barrier", "barrier", "train.py:84"),
    # Taken while the job still imported torch.
    "ddp_unused/pyspy_rank0.txt": ("import", "", "train.py:3"),
    "ddp_unused/pyspy_rank1.txt": ("import", "", "train.py:3"),
    "ddp_unused/pyspy_rank2.txt": ("import", "", "train.py:117"),
    "dtype/pyspy_rank0.txt": ("import", "", "train.py:3"),
    "dtype/pyspy_rank1.txt": ("start", "", "train.py:36"),  # init_process_group
    "dtype/pyspy_rank2.txt": None,
    # Ranks 0 and 2 wait for rank 1's gradients in backward; rank 1 for its loader, whose workers spin or sleep.
    "loader_gil/pyspy_rank0.txt": ("backward", "", "train.py:107"),
    "loader_gil/pyspy_rank0_child1.txt": ("loader idle", "", "train.py:106"),
    "loader_gil/pyspy_rank0_child2.txt": ("loader idle", "", "train.py:106"),
    "loader_gil/pyspy_rank1.txt": ("data loader", "", "train.py:106"),
    "loader_gil/pyspy_rank1_child1.txt": ("data loader", "", "train.py:31"),
    "loader_gil/pyspy_rank1_child2.txt": ("data loader", "", "train.py:31"),
    "loader_gil/pyspy_rank2.txt": ("backward", "", "train.py:107"),
    "loader_gil/pyspy_rank2_child1.txt": ("loader idle", "", "train.py:106"),
    "loader_gil/pyspy_rank2_child2.txt": ("loader idle", "", "train.py:106"),
    "loader_gil0/pyspy_rank0.txt": ("backward", "", "train.py:107"),
    "loader_gil0/pyspy_rank1.txt": ("data loader", "", "train.py:31"),
    "loader_gil0/pyspy_rank2.txt": ("backward", "", "train.py:107"),
    "loader_gil0/ws_dump_traceback_rank1.txt": ("data loader", "", "train.py:31"),
    "loader_slow/pyspy_rank0.txt": ("backward", "", "train.py:107"),
    "loader_slow/pyspy_rank0_child1.txt": ("loader idle", "", "train.py:106"),
    "loader_slow/pyspy_rank0_child2.txt": ("loader idle", "", "train.py:106"),
    "loader_slow/pyspy_rank1.txt": ("data loader", "", "train.py:106"),
    "loader_slow/pyspy_rank1_child1.txt": ("data loader", "", "train.py:28"),
    "loader_slow/pyspy_rank1_child2.txt": ("data loader", "", "train.py:28"),
    "loader_slow/pyspy_nb_rank1.json": ("data loader", "", "train.py:106"),
    "loader_slow/pyspy_nb_rank1_child1.json": ("data loader", "", "train.py:28"),
    "loader_slow/pyspy_rank2.txt": ("backward", "", "train.py:107"),
    "loader_slow/pyspy_rank2_child1.txt": ("loader idle", "", "train.py:106"),
    "loader_slow/pyspy_rank2_child2.txt": ("loader idle", "", "train.py:106"),
    # Rank 1 sleeps before the barrier; rank 2 had already failed and was writing its dump.
    "monitored_barrier/pyspy_rank0.txt": ("barrier", "monitored_barrier", "train.py:129"),
    "monitored_barrier/pyspy_rank1.txt": ("user code", "", "train.py:128"),
    "monitored_barrier/pyspy_rank2.txt": ("import", "", "train.py:15"),
    "nan_rs/pyspy_rank0.txt": ("collective", "all_reduce", "train.py:120"),
    "nan_rs/pyspy_rank1.txt": ("user code", "", "train.py:121"),
    "nan_rs/pyspy_rank2.txt": ("collective", "all_reduce", "train.py:120"),
    "order/pyspy_rank0.txt": ("collective", "all_reduce", "train.py:61"),
    "order/pyspy_rank1.txt": ("collective", "broadcast", "train.py:62"),
    "order/pyspy_rank2.txt": ("collective", "all_reduce", "train.py:61"),
    "shape/pyspy_rank0.txt": ("import", "", ""),
    "shape/pyspy_rank1.txt": None,
    "shape/pyspy_rank2.txt": None,
    "sigkill/pyspy_rank0.txt": ("import", "", "train.py:89"),
    "sigkill/pyspy_rank1.txt": ("import", "", "train.py:89"),
    "sigkill/pyspy_rank2.txt": ("user code", "", "train.py:95"),  # asleep between two steps
    "sigstop/pyspy_rank0.txt": ("backward", "", "train.py:97"),
    "sigstop/pyspy_rank1.txt": ("unknown", "", ""),  # the blocking way cannot look at a stopped process
    "sigstop/pyspy_nb_rank1.json": ("user code", "", "train.py:99"),
    "sigstop/pyspy_rank2.txt": ("backward", "", "train.py:97"),
    "skip/pyspy_rank0.txt": ("collective", "all_reduce", "train.py:43"),
    "skip/pyspy_rank1.txt": ("collective", "all_gather_single", "train.py:44"),
    "skip/ws_dump_traceback_rank1.txt": ("collective", "all_gather_single", "train.py:44"),
    "skip/pyspy_rank2.txt": ("collective", "all_reduce", "train.py:43"),
    "skip_detail/pyspy_rank0.txt": ("unknown", "", ""),  # at its end: a thread without a frame
    "skip_detail/pyspy_rank1.txt": None,
    "skip_detail/pyspy_rank2.txt": None,
    "skip_same/pyspy_rank0.txt": ("collective", "all_reduce", "train.py:51"),
    "skip_same/pyspy_rank1.txt": ("user code", "", "train.py:52"),
    "skip_same/pyspy_rank2.txt": ("collective", "all_reduce", "train.py:51"),
}


def test_every_recorded_stack_has_its_truth() -> None:
    recorded = {f"{path.parent.name}/{path.name}" for path in HANGS.glob("*/pyspy_rank*.txt")}
    assert recorded == {name for name in TRUTHS if "/pyspy_rank" in name}
    assert [name for name in TRUTHS if not (HANGS / name).is_file()] == []


@pytest.mark.parametrize("name", [name for name, truth in TRUTHS.items() if truth])
def test_a_recorded_process_waits_in_what_its_job_says(name: str) -> None:
    (process,) = stacks_of((HANGS / name).read_text())
    wait = waits_in(process)
    kind, op, at = TRUTHS[name] or ("", "", "")
    assert (wait.kind, wait.op) == (kind, op)
    if at:
        assert wait.at is not None
        assert f"{wait.at.file.rpartition('/')[2]}:{wait.at.line}" == at


@pytest.mark.parametrize("name", [name for name, truth in TRUTHS.items() if truth is None])
def test_an_error_of_py_spy_is_no_stack(name: str) -> None:
    with pytest.raises(ParseError, match="expected a py-spy dump"):
        stacks_of((HANGS / name).read_text())


def test_spinning_and_sleeping_are_told_apart() -> None:
    for case, busy in (("loader_gil", True), ("loader_slow", False)):
        (process,) = stacks_of((HANGS / case / "pyspy_rank1_child1.txt").read_text())
        assert waits_in(process).busy is busy
        assert process.main is not None
        assert process.main.gil is busy


def test_the_same_stack_reads_the_same_from_text_and_json() -> None:
    (text,) = stacks_of((HANGS / "loader_slow" / "pyspy_rank1.txt").read_text())
    (other,) = stacks_of((HANGS / "loader_slow" / "pyspy_nb_rank1.json").read_text())
    assert text.pid == other.pid
    assert sorted(t.name for t in text.threads) == sorted(t.name for t in other.threads)
    assert text.main and other.main
    assert [(f.function, f.line) for f in text.main.frames] == [(f.function, f.line) for f in other.main.frames]


def test_a_stopped_process_says_why_py_spy_could_not_look() -> None:
    (process,) = stacks_of((HANGS / "sigstop" / "pyspy_rank1.txt").read_text())
    assert process.threads == ()
    assert "Failed to suspend process" in process.why


def test_faulthandler_in_a_log_is_found_and_its_last_thread_is_the_main_one() -> None:
    log = (
        "step 3\nFatal Python error: Aborted\n\nThread 0x00007f28b52246c0 [pt_tcpstore_uv] (most recent call first):\n"
        "  <no Python frame>\n\nCurrent thread 0x00007f28d71bcb80 (most recent call first):\n"
        '  File "/srv/a b.py", line 7 in f\n'
        '  File "/srv/x.py", line ??? in <module>\n\nExtension modules: numpy._core, File "no", line 3 in frame\n'
    )
    (process,) = stacks_of(log)
    assert [(thread.name, thread.thread_id) for thread in process.threads] == [
        ("pt_tcpstore_uv", 0x7F28B52246C0),
        ("MainThread", 0x7F28D71BCB80),
    ]
    assert process.main and process.main.frames == (Frame("f", "/srv/a b.py", 7), Frame("<module>", "/srv/x.py", None))


def test_several_dumps_in_one_file_are_several_processes() -> None:
    both = "\n".join((HANGS / "skip" / f"pyspy_rank{rank}.txt").read_text() for rank in (0, 1))
    assert [waits_in(process).op for process in stacks_of(both)] == ["all_reduce", "all_gather_single"]


@pytest.mark.parametrize(
    "text", ["", "hello", "[1, 2]", '{"a": 1}', "[" * 100_000, '[{"frames": 3, "pid": "x"}]', "\0" * 99]
)
def test_other_texts_are_refused_or_empty(text: str) -> None:
    try:
        assert all(thread.frames == () for process in stacks_of(text) for thread in process.threads)
    except ParseError as error:
        assert "expected" in str(error)


# Judgement, by torch's and the kernel's own names ------------------------------------------------------------------


def process(*frames: tuple[str, str], active: bool | None = False, **words: Any) -> ProcessStack:
    """Frames as (function, file), innermost first, below the program's own step()."""
    stack = [Frame(function, file, 1) for function, file in (*frames, ("step", "/srv/train/train.py"))]
    made: dict[str, Any] = {"pid": 1, "rank": 0, "worker": False, "comm": "", "how": "", "why": "", "state": "S",
        "wchan": "", "kernel": ()}  # fmt: skip
    made["threads"] = (Thread(1, None, "MainThread", active, False, "S", "", tuple(stack)),)
    return ProcessStack(**{**made, **words})


C10D = TORCH + "distributed/distributed_c10d.py"
SAVER = TORCH + "distributed/checkpoint/state_dict_saver.py"
LOADER = TORCH + "utils/data/dataloader.py"
AUTOGRAD = TORCH + "autograd/__init__.py"
LIB = "/usr/lib/python3.11/"


@pytest.mark.parametrize(
    ("frames", "kind", "within"),
    [
        ([("recv", C10D)], "p2p", ()),
        ([("batch_isend_irecv", C10D)], "p2p", ()),
        ([("destroy_process_group", C10D)], "destroy", ()),
        ([("_store_based_barrier", C10D), ("init_process_group", C10D)], "store", ()),
        ([("wait_tensor", TORCH + "distributed/_functional_collectives.py")], "collective", ()),
        ([("barrier", C10D), ("save", SAVER)], "barrier", ("checkpoint",)),
        ([("_save", TORCH + "serialization.py"), ("save", TORCH + "serialization.py")], "checkpoint", ()),
        ([("write", LIB + "zipfile.py"), ("save_checkpoint", "/srv/engine.py")], "checkpoint", ()),
        ([("compile_fx", TORCH + "_inductor/compile_fx.py"), ("_fn", TORCH + "_dynamo/eval_frame.py")], "compile", ()),
        ([("make_ttgir", "/opt/venv/lib/python3.11/site-packages/triton/compiler/compiler.py")], "compile", ()),
        # A compiled model that runs is not being compiled, although torch's compiler is in its stack.
        ([("forward", TORCH + "nn/modules/module.py"), ("_fn", TORCH + "_dynamo/eval_frame.py")], "user code", ()),
        ([("all_reduce", C10D), ("_fn", TORCH + "_dynamo/eval_frame.py")], "collective", ()),
        ([("synchronize", TORCH + "cuda/__init__.py")], "device sync", ()),
        ([("wait", LIB + "threading.py")], "lock", ()),
        ([("readinto", LIB + "socket.py"), ("read", LIB + "http/client.py")], "input/output", ()),
        # The loader's own queue is how a loader waits; so is a lock in a dataset.
        ([("wait", LIB + "threading.py"), ("_try_get_data", LOADER)], "data loader", ()),
        # Reads of a dataset are the loader's, gradient hooks are backward's.
        ([("_engine_run_backward", TORCH + "autograd/graph.py")], "backward", ()),
        ([("all_reduce", C10D), ("hook", "/srv/h.py"), ("backward", AUTOGRAD)], "collective", ("backward",)),
        ([], "user code", ()),
    ],
)  # fmt: skip
def test_the_innermost_call_with_a_meaning_decides(frames: Any, kind: str, within: Any) -> None:
    wait = waits_in(process(*frames))
    assert (wait.kind, wait.within) == (kind, within)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ({"wchan": "hrtimer_nanosleep"}, "sleep"),
        ({"wchan": "futex_do_wait"}, "native wait"),
        ({"kernel": ("wait_for_partner", "fifo_open", "do_dentry_open")}, "input/output"),
        ({"state": "D", "threads": (), "kernel": ("rpc_wait_bit_killable", "nfs4_call_sync")}, "input/output"),
        ({"state": "D", "threads": ()}, "unknown"),
        ({"state": "T", "wchan": "do_signal_stop"}, "stopped"),
        ({"threads": ()}, "unknown"),
    ],
)
def test_the_kernel_tells_what_python_does_not(words: dict[str, Any], kind: str) -> None:
    assert waits_in(process(**words)).kind == kind


def test_a_busy_thread_is_not_said_to_sleep() -> None:
    wait = waits_in(process(active=True, wchan="hrtimer_nanosleep"))
    assert (wait.kind, wait.busy) == ("user code", True)


def test_a_program_that_is_installed_has_its_own_line_too() -> None:
    frames = [("all_reduce", C10D), ("train_step", "/opt/venv/lib/python3.11/site-packages/trainer/loop.py")]
    thread = Thread(1, None, "MainThread", False, False, "S", "", tuple(Frame(f, file, 5) for f, file in frames))
    at = waits_in(process(threads=(thread,))).at
    assert at is not None
    assert at.short == "train_step (loop.py:5)"


def test_ranks_in_one_place_are_told_once_and_ranks_without_a_stack_with_why() -> None:
    row = {"worker": False, "comm": "python3", "how": "", "why": "py-spy may not read its memory", "state": "S"}
    row |= {"wchan": "", "kernel": [], "threads": []}
    text = '==> golden15/tool <==\n{"tool": "py-spy", "left_out": 3}\n'
    for rank in range(3):
        text += f"\n==> golden15/stack {rank + 1} <==\n" + json.dumps({**row, "pid": rank + 1, "rank": rank}) + "\n"
    told = {finding.code: finding.says for finding in findings(parse(text))}
    assert "ranks 0, 1, 2 are without a stack: py-spy may not read its memory" in told["rank.no_stack"]
    assert "3 processes" in told["rank.too_many"]
