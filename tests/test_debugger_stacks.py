"""Stacks that gdb, pstack and pystack print are stacks of ranks; what a crash prints stays part of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.stacks.text import stacks_of
from probes.catalog.stacks.waits import waits_in
from probes.core import ParseError
from tests.support.hardware import judged

GDB = """\
[New LWP 5203]
0x00007f2a in __futex_abstimed_wait_common () from /lib/x86_64-linux-gnu/libc.so.6

Thread 2 (Thread 0x7f2a11 (LWP 5203) "pt_nccl_watchdg"):
#0  0x00007f2a01 in clock_nanosleep () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f2a02 in c10d::ProcessGroupNCCL::ncclCommWatchdog() () from /opt/torch/lib/libtorch_cuda.so

Thread 1 (Thread 0x7f2a10 (LWP 5201) "python"):
#0  0x00007f2a03 in {call} () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f2a04 in {above} (this=0x55d0, timeout=...) at /opt/src/some.cpp:811
#2  0x000055d001 in _PyEval_EvalFrameDefault ()
"""
IN_WORK = GDB.format(call="pthread_cond_wait@@GLIBC_2.3.2", above="c10d::ProcessGroupNCCL::WorkNCCL::wait")
IN_READ = GDB.format(call="read", above="_Py_read")
PYSTACK = """\
Traceback for thread {pid} (python) [Waiting for the GIL] (most recent call last):
    (Python) File "/w/run.py", line 90, in <module>
        main()
    (Python) File "/w/run.py", line 41, in main
        {line}
    (Python) File "{file}", line 700, in {function}
        pass
"""
WAITS = ("dist.barrier()", "/opt/torch/distributed/distributed_c10d.py", "barrier")
COUNTS = ("count(rows)", "/w/count.py", "count")


def pystack(pid: int, line: str, file: str, function: str) -> str:
    return PYSTACK.format(pid=pid, line=line, file=file, function=function)


@pytest.mark.parametrize(("text", "kind"), [(IN_WORK, "collective"), (IN_READ, "input/output")])
def test_of_gdbs_threads_the_main_one_is_told_by_its_calls(text: str, kind: str) -> None:
    (process,) = stacks_of(text)
    wait = waits_in(process)
    assert (process.pid, len(process.threads), wait.kind) == (5201, 2, kind)


def test_gdbs_view_of_python_tells_the_line() -> None:
    text = IN_WORK + 'Traceback (most recent call first):\n  File "/w/run.py", line 41, in main\n    x.wait()\n'
    (process,) = stacks_of(text)
    wait = waits_in(process)
    assert wait.at is not None
    assert (wait.at.function, wait.at.line) == ("main", 41)


def test_a_rank_that_pystack_shows_elsewhere_is_late(tmp_path: Path) -> None:
    files = {f"rank{rank}.txt": pystack(700 + rank, *(COUNTS if rank == 2 else WAITS)) for rank in range(5)}
    found = judged(tmp_path, files).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject.get("rank")) == ("fw.rank_missing_collective", 2)
    assert found.probability < 0.8, "one look proves no standstill"


def test_the_stack_of_a_crash_is_told_by_its_log(tmp_path: Path) -> None:
    crash = "Thread 1 received signal SIGSEGV, Segmentation fault.\n" + IN_WORK
    with pytest.raises(ParseError):
        stacks_of(crash)
