"""Stacks that debuggers print: gdb with and without py-bt, pstack, eu-stack and pystack."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.stacks.native import is_native
from probes.catalog.stacks.profile import callback
from probes.catalog.stacks.text import stacks_of
from probes.catalog.stacks.waits import waits_in
from probes.intake import pasted
from tests.support.hardware import judged, shares

CAUSE = "cpu.native_callback"
BACK = """\
#0  _PyEval_EvalFrameDefault (tstate=0x55, f=0x7f) at Python/ceval.c:1778
#1  0x000055d0 in _PyFunction_Vectorcall (func=<function weigh at 0x7f>) at Objects/call.c:342
#2  0x00007f3a in _CallPythonObject (mem=0x7f) at ./Modules/_ctypes/callbacks.c:218
#3  0x00007f3a in ffi_closure_unix64 () from /lib/x86_64-linux-gnu/libffi.so.8
#4  0x00007f39 in sort_graphs (n=90112) from /opt/lib/libgraphs.so
#5  0x00007f3a in ffi_call_unix64 () from /lib/x86_64-linux-gnu/libffi.so.8
#6  0x000055d0 in _PyEval_EvalFrameDefault () at Python/ceval.c:4181
"""
PY_BT = """\
(gdb) py-bt
Traceback (most recent call first):
  File "/srv/gnn/order.py", line 14, in weigh
    return len(graph)
  File "/srv/gnn/train.py", line 51, in step
    lib.sort_graphs(batch)
"""


def looks(count: int) -> str:
    text = "".join(
        f'Attaching to process 771\n(gdb) thread apply all bt\n\nThread 2 (LWP 780 "pt_nccl_watchdg"):\n'
        f"#0  0x00007f in __futex_wait () from /lib/libc.so.6\n\n"
        f'Thread 1 (Thread 0x7f3a5c0c1740 (LWP 771) "python"):\n{BACK}{PY_BT}'
        for _ in range(count)
    )
    return text + "[Inferior 1 (process 771) detached]\n"


def test_frames_of_python_get_the_names_that_py_bt_tells() -> None:
    stack = stacks_of(looks(1))[0]
    assert (stack.pid, len(stack.threads)) == (771, 2)
    assert stack.main is not None
    assert [stack.main.frames[0].short, stack.main.frames[-1].short] == ["weigh (order.py:14)", "step (train.py:51)"]
    assert callback([frame.short for frame in reversed(stack.main.frames)]) == ("libgraphs.so", "weigh (order.py:14)")


def test_without_py_bt_a_call_back_is_one_all_the_same() -> None:
    stack = stacks_of(looks(1).replace(PY_BT, ""))[0]
    assert stack.main is not None
    assert callback([frame.short for frame in reversed(stack.main.frames)])[0] == "libgraphs.so"  # type: ignore[index]


def test_looks_that_show_the_same_call_back_are_a_small_profile(tmp_path: Path) -> None:
    assert shares(judged(tmp_path / "four", {"gdb_rank3.txt": looks(4)}))[CAUSE] > 0.5
    assert shares(judged(tmp_path / "one", {"gdb_rank3.txt": looks(1)}))[CAUSE] < 0.4
    noted = looks(1) + "# and again, every 10 s: 6x in sort_graphs, 1x in memcpy\n"
    assert shares(judged(tmp_path / "noted", {"gdb_rank3.txt": noted}))[CAUSE] > 0.5


def test_what_is_typed_in_a_debugger_is_no_prompt_of_a_shell() -> None:
    assert pasted.parts_of(looks(1) + "(gdb) # went on, came back\n(gdb) detach\n") == []


PYSTACK = """\
Traceback for thread 412 (python) [Has the GIL] (most recent call last):
    (Python) File "/usr/lib/python3.11/threading.py", line 995, in _bootstrap
        self._bootstrap_inner()
    (Python) File "/srv/llm/meters.py", line 77, in flush
        json.dumps(rows)

Traceback for thread 400 (python) [Waiting for the GIL] (most recent call last):
    (Python) File "/srv/llm/train.py", line 90, in <module>
        main()
    (Python) File "/opt/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 701, in __next__
        data = self._next_data()
    (C) File "source/pack.c", line 36, in pack_rows (/opt/v/lib/python3.11/_pack.cpython-311-x86_64-linux-gnu.so)
"""


def test_pystack_prints_the_outermost_first_and_who_has_the_lock() -> None:
    stack = stacks_of(PYSTACK)[0]
    assert stack.main is not None
    assert stack.holder is not None
    assert (stack.pid, stack.main.tid, stack.holder.tid) == (400, 400, 412)
    assert stack.main.frames[0].short == "pack_rows (_pack.cpython-311-x86_64-linux-gnu.so)"
    assert waits_in(stack).kind == "data loader"


def test_eu_stack_and_pstack_are_read() -> None:
    eu = "PID 88 - process\nTID 88:\n#0  0x00007f7 __poll\n#1  0x00005 main_loop - 1 /opt/libx.so\n#2  0x00007 main\n"
    stack = stacks_of(eu)[0]
    assert stack.main is not None
    assert (stack.pid, [frame.function for frame in stack.main.frames]) == (88, ["__poll", "main_loop", "main"])


@pytest.mark.parametrize(
    "text",
    [
        "terminate called\nframe #0: c10::Error::Error(...) from libc10.so\nframe #1: <unknown> in libtorch.so\n",
        "=== 1 ===\n#0 0x1 in f (x=1) at a.c:3\n#1 0x2 in g () from /l.so\n#2 0x3 in main ()\n",
        "# step 1\n# step 2\n#3 notes of a person\nThread 5 is slow\n",
    ],
)
def test_what_a_program_logs_of_itself_is_no_debugger(text: str) -> None:
    assert not is_native(text)
