"""Ends, stops and native stacks in the forms in which people bring them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import judged, raised, waited

EXITED = "fw.rank_exited"


def verdict(folder: Path, files: dict[str, str]) -> tuple[str, dict[str, str | int]]:
    found = judged(folder, files).verdict.hypothesis
    return found.cause, dict(found.subject)


FOOTER = """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2025-05-05_11:40:09
  host      : c-07
  rank      : 9 (local_rank: 1)
  exitcode  : -6 (pid: 812) (SIGABRT)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 812
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-05_11:40:09
  host      : c-07
  rank      : 8 (local_rank: 0)
  exitcode  : -6 (pid: 811) (SIGABRT)
  error_file: <N/A>
  traceback : Signal 6 (SIGABRT) received by PID 811
============================================================
"""


def test_a_task_of_srun_that_is_a_launcher_is_no_rank(tmp_path: Path) -> None:
    end = "srun: error: c-07: task 1: Exited with exit code 1\n"
    assert verdict(tmp_path / "launcher", {"screen.txt": FOOTER + end})[0] == "unknown"
    assert verdict(tmp_path / "rank", {"screen.txt": f"step 80 loss 2.0\n{end}"}) == (
        EXITED,
        {"rank": 1},
    )


def of_deepspeed(shift: int, error: str) -> str:
    """pdsh's lines: three workers of four GPUs; the second ends, the others give up. `shift`: of the ranks."""
    rows = ["worker-1: " + row.partition(": ")[2] for row in raised(0, error)]
    rows.append(
        "worker-1: [2025-01-09 10:00:05,740] [ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'run.py', "
        "'--local_rank=2', '--deepspeed'] exits with return code = 1"
    )
    for node in (0, 2):
        for rank in range(shift + 4 * node, shift + 4 * node + 3):
            rows.append(
                f"worker-{node}: [rank{rank}]:[E ProcessGroupNCCL.cpp:523] [Rank {rank}] Watchdog caught "
                "collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
                "Timeout(ms)=600000) ran for 600100 milliseconds before timing out."
            )
    return "\n".join(rows) + "\n"


def test_the_number_of_a_worker_that_holds_several_ranks_is_not_its_rank(tmp_path: Path) -> None:
    cause, subject = verdict(tmp_path, {"pdsh.log": of_deepspeed(0, "KeyError: 'tokens'")})
    assert (cause, subject) == (EXITED, {"node": "worker-1"})


STATUS = "Name:\t{name}\nState:\t{state}\nPid:\t{pid}\nPPid:\t10\nTracerPid:\t{tracer}\nThreads:\t40\n"


@pytest.mark.parametrize("rank", [3, 11])
def test_the_environment_below_a_status_tells_the_rank_of_that_process(tmp_path: Path, rank: int) -> None:
    text = STATUS.format(name="python", state="S (sleeping)", pid=70, tracer=0) + "RANK=1\nLOCAL_RANK=1\n"
    text += STATUS.format(name="python", state="t (tracing stop)", pid=71, tracer=99) + f"RANK={rank}\nWORLD_SIZE=16\n"
    cause, subject = verdict(tmp_path, {"status.txt": text})
    assert (cause, subject.get("rank"), subject.get("pid")) == ("fw.rank_stopped", rank, 71)


def back_trace(named: bool, calls_back: bool) -> str:
    """gdb's bt of a Python with debug symbols: its printer of frames tells the Python beside the C."""

    def evaluates(n: int, where: str) -> str:
        frame = f"f=Frame 0x7f85c1e63040, for file /job/{where} (), throwflag=0" if named else "f=<optimized out>"
        return f"#{n}  0x00007f8802a1d6b0 in _PyEval_EvalFrameDefault (tstate=0x7f88, {frame}) at Python/ceval.c:4198\n"

    inner = (
        evaluates(0, "feed.py, line 12, in on_row")
        + "#1  0x00007f8802a41c70 in _PyObject_Call (callable=<function at remote 0x7f86>) at Objects/call.c:305\n"
        if calls_back
        else "#0  0x00007f85d9bd2e00 in scan (p=0x5) at scan.c:80\n#1  0x00007f85d9bd2e10 in all (p=0x5) at scan.c:99\n"
    )
    return (
        inner
        + "#2  0x00007f85d9e1147a in rows_each (cb=0x7ffd) at src/rows.c:212\n"
        + "#3  0x00007f8802a7d1b2 in cfunction_call (func=<built-in method each>) at Objects/methodobject.c:537\n"
        + evaluates(4, "feed.py, line 40, in fill")
        + "#5  0x00007f8802b1e0f0 in Py_BytesMain (argc=<optimized out>) at Modules/main.c:720\n"
    )


@pytest.mark.parametrize("named", [True, False])
def test_back_traces_of_one_thread_show_native_code_that_calls_python(tmp_path: Path, named: bool) -> None:
    text = "\n".join(f"look {n}\n{back_trace(named, calls_back=True)}" for n in range(3))
    found = judged(tmp_path / "bare", {"bt.txt": text}).verdict.hypothesis
    assert found.cause == "cpu.native_callback"
    assert ("on_row (feed.py:12)" in found.says) is named
    asked = "$ gdb -p 4410 -batch -ex bt\n" + text
    assert verdict(tmp_path / "asked", {"session.txt": asked})[0] == "cpu.native_callback"
    quiet = "\n".join(f"look {n}\n{back_trace(named, calls_back=False)}" for n in range(3))
    assert verdict(tmp_path / "quiet", {"bt.txt": quiet})[0] != "cpu.native_callback"


@pytest.mark.parametrize("serves", ["ncclSocketRecv", "ncclSocketAccept", "poll"])
def test_a_service_thread_that_reads_on_and_on_serves_its_rank_not(tmp_path: Path, serves: str) -> None:
    at = " () from /usr/lib/libnccl.so.2\n"
    inner = f"#1  0x00007f11 in {serves}{at}" if serves != "poll" else ""
    text = (
        'Thread 9 (Thread 0x7f0a5bfff640 (LWP 326) "NCCL Service 3"):\n'
        f"#0  0x00007f11d9f18bcf in __GI___poll (fds=0x7f0a)\n{inner}#2  0x00007f114e in ncclProxyService{at}\n"
        'Thread 1 (Thread 0x7f11da1c5740 (LWP 300) "python"):\n#0  0x00007f11d9f18bcf in __GI___poll (fds=0x7ffd)\n'
        f"#1  0x00007f114e in ncclSocketRecv{at}#2  0x00007f114e in ncclPollProxyResponse{at}"
    )
    cause = verdict(tmp_path, {"gdb.txt": text})[0]
    assert (cause == "nccl.library_fault") is (serves != "poll")


def spied(nth: int, holder: str, main: str) -> str:
    return (
        f'Process 51: python train.py\nPython v3.11 (python3)\n\nThread 51 (active): "MainThread"\n    {main}\n'
        f'    step (loop.py:{80 + nth})\n    <module> (train.py:9)\nThread 60 (active+gil): "{holder}"\n'
        "    encode (log/sink.py:31)\n    run (threading.py:982)\n"
    )


FORWARD = "linear (torch/nn/modules/linear.py:125)"
BACKWARD = "_engine_run_backward (torch/autograd/graph.py:824)"


def test_one_thread_that_has_the_lock_at_each_of_four_looks_holds_up_the_main_one(tmp_path: Path) -> None:
    def at(looks: int, main: str) -> str:
        files = {f"spy_rank4_{nth}.txt": spied(nth, "sink-0", main) for nth in range(looks)}
        return verdict(tmp_path / f"{looks}{main[:4]}", files)[0]

    assert at(4, FORWARD) == "cpu.gil_contention"
    assert at(2, FORWARD) != "cpu.gil_contention", "two looks are chance"
    assert at(4, BACKWARD) != "cpu.gil_contention", "hooks of autograd run beside the main thread, which waits"


def job(early: bool, all_done: bool = False) -> str:
    """Two ranks, of which the second leaves after its last step while the first is in the middle of one."""
    rows = [f"2025-07-01 08:00:{n:02d},100 [rank{rank}] INFO step {n} loss 1.{n}" for n in range(9) for rank in (0, 1)]
    rows += ["2025-07-01 08:00:09,300 [rank1] INFO training finished"] if early else []
    rows += ["2025-07-01 08:00:09,400 [rank0] INFO training finished"] if all_done else []
    rows += list(raised(0, "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed "
                           "by peer [10.0.0.2]:21933")) if not all_done else []  # fmt: skip
    return "\n".join(rows) + "\n"


def test_a_rank_that_is_done_while_others_still_step_ended_too_early(tmp_path: Path) -> None:
    assert verdict(tmp_path / "early", {"run.log": job(True)}) == (EXITED, {"rank": 1})
    in_vain = job(True).partition("[rank0]: Traceback")[0] + (
        "[rank0]:[E701 08:10:12.508610469 ProcessGroupNCCL.cpp:6] [Rank 0] Watchdog caught collective operation timeout"
        ": WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds"
        " before timing out.\n"
    )
    assert verdict(tmp_path / "waited", {"run.log": in_vain}) == (EXITED, {"rank": 1})
    assert verdict(tmp_path / "lost", {"run.log": job(False)})[0] != EXITED, "it may have been cut off"
    assert verdict(tmp_path / "both", {"run.log": job(True, all_done=True)})[0] == "none"


def test_collectives_that_nobody_waited_for_speak_against_a_good_end(tmp_path: Path) -> None:
    warning = ("[W701 08:00:10.023130272 ProcessGroup.cpp:390] Warning: At the time of process termination, there "
               "are still {} unwaited collective calls. Please review your program to ensure that:")  # fmt: skip
    ended = (
        "".join(f"2025-07-01 08:00:{n:02d},100 INFO step {n} loss 1.{n}\n" for n in range(9)) + "training finished\n"
    )
    files = {f"rank{rank}.log": f"{ended}{warning.format(7)}\n" for rank in (0, 1)}
    assert verdict(tmp_path / "left", files)[0] == "fw.async_not_awaited"
    assert verdict(tmp_path / "none", {"rank0.log": ended, "rank1.log": ended})[0] == "none"


@pytest.mark.parametrize("apart", [1, 4])
def test_files_called_after_workers_that_are_all_apart_alike_tell_the_rank_of_the_one_without_a_mark(
    tmp_path: Path, apart: int
) -> None:
    files = {f"worker-{n}.log": waited(n + apart) + "\n" for n in (0, 2, 3)}
    files["worker-1.log"] = "".join(line.partition(": ")[2] + "\n" for line in raised(0, "IndexError: list index"))
    assert verdict(tmp_path / "alike", files) == (EXITED, {"rank": 1 + apart})
    one = {name: text for name, text in files.items() if name in ("worker-0.log", "worker-1.log")}
    assert verdict(tmp_path / "one", one) == (EXITED, {"rank": 1}), "one that is apart may have quoted another"


def test_a_traceback_of_another_program_is_no_end_of_a_job_that_goes_on(tmp_path: Path) -> None:
    steps = "".join(f"2025-09-03 10:{n:02d}:00,000 INFO step {n} loss 1.{n}\n" for n in range(9))
    foreign = "[I 10:00:01 ServerApp] Kernel started\n" + "".join(
        line.partition(": ")[2] + "\n" for line in raised(0, "ModuleNotFoundError: No module named 'plots'")
    )
    files = {"train.log": steps, "notebook.log": foreign}
    assert verdict(tmp_path / "on", {**files, "now.txt": "$ date\nWed Sep  3 10:08:20 UTC 2025\n"})[0] != EXITED
    assert verdict(tmp_path / "off", {**files, "now.txt": "$ date\nWed Sep  3 11:08:20 UTC 2025\n"})[0] == EXITED


@pytest.mark.parametrize("head", ["== {} ==", "==> {} <==", "--- {} ---", "### {}:", ">>> {}"])
def test_parts_of_proc_are_known_below_any_heading(tmp_path: Path, head: str) -> None:
    status = STATUS.format(name="python", state="T (stopped)", pid=771, tracer=0)
    text = f"{head.format('/proc/771/status')}\n{status}{head.format('/proc/771/environ')}\nRANK=5\nWORLD_SIZE=8\n"
    cause, subject = verdict(tmp_path, {"proc.txt": text})
    assert (cause, subject.get("rank")) == ("fw.rank_stopped", 5)


STEPS = "".join(f"2025-05-05 11:40:0{n} [rank{rank}] INFO it {n} loss 1.9\n" for n in (1, 2, 3) for rank in range(3))
OWN = """Traceback (most recent call last):
  File "/w/run.py", line 70, in <module>
    batch = augment(next(it))
ValueError: crop is larger than the image: 640 > 512
"""
LOST = """Traceback (most recent call last):
  File "/w/run.py", line 81, in <module>
    work.wait()
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:41734
"""


def test_an_exception_whose_rank_no_line_tells_ended_a_rank_where_its_peers_tell_of_that(tmp_path: Path) -> None:
    assert verdict(tmp_path, {"out.log": STEPS + OWN + LOST})[0] == EXITED


@pytest.mark.parametrize("text", [STEPS + LOST, OWN + STEPS], ids=["the peers alone", "steps go on after it"])
def test_other_exceptions_without_a_rank_ended_none(tmp_path: Path, text: str) -> None:
    assert verdict(tmp_path, {"out.log": text})[0] != EXITED


WAITED_IN_VAIN = """Traceback (most recent call last):
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 60000ms for recv operation to complete
"""  # noqa: E501
PS = "  PID  PPID STAT WCHAN              ELAPSED COMMAND\n" + "".join(
    f"{pid}  700 {'Zs  -                 ' if pid != 812 else 'Ssl wait_for_partner  '}    04:10 python\n"
    for pid in (811, 812, 813)
)
RANKS = "rank 0 pid 811\nrank 1 pid 812\nrank 2 pid 813\n"


@pytest.mark.parametrize(("log", "cause"), [(WAITED_IN_VAIN, False), ("", True)], ids=["after the limit", "untold"])
def test_ranks_that_ended_because_they_gave_up_are_no_cause(tmp_path: Path, log: str, cause: bool) -> None:
    found = verdict(tmp_path, {"ps.txt": PS, "pids.txt": RANKS, "out.log": STEPS + log})
    assert (found[0] == EXITED) is cause


def test_the_rank_that_is_still_there_is_whom_those_waited_for_that_gave_up(tmp_path: Path) -> None:
    found = verdict(tmp_path, {"ps.txt": PS, "pids.txt": RANKS, "out.log": STEPS + WAITED_IN_VAIN})
    assert found == ("fw.rank_missing_collective", {"rank": 1})
