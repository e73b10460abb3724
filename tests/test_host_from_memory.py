"""The host's faults as somebody retypes them, or as other programs of the system tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.ranks.process_extract import extracts_of
from probes.catalog.stacks.text import stacks_of
from probes.explain import explain
from probes.intake.logs import guards_in
from probes.intake.retyped_stacks import as_py_spy
from probes.intake.tools.host import boots, clock_lines, process_status, process_table, time_service
from probes.intake.tools.training import cuda_calls, perf_report


def cause(folder: Path, **files: str) -> tuple[str, dict[str, str | int]]:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    first = explain([folder]).diagnosis.verdict.hypothesis
    return first.cause, dict(first.subject)


# Guards of memory

JOURNAL = """\
Mar 03 02:10:01 ws7 kernel: nvme nvme0: 16/0/0 default/read/poll queues
Mar 03 02:10:04 ws7 kernel: EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode
Mar 03 02:41:17 ws7 systemd-oomd[811]: Killed /user.slice/user-1000.slice/{unit} due to memory used (6871) / total
Mar 03 02:41:18 ws7 systemd[1702]: {unit}: systemd-oomd killed 9 process(es) in this unit.
"""


def test_a_shell_that_the_guard_of_memory_ended_is_found_in_a_journal_of_the_kernel(tmp_path: Path) -> None:
    text = JOURNAL.format(unit="session-14.scope")
    assert cause(tmp_path, journal__txt=text) == ("host.memory_oom_kill", {"node": "ws7"})


def test_the_end_of_a_browser_is_none_of_a_job(tmp_path: Path) -> None:
    text = JOURNAL.format(unit="app-gnome-firefox-2211.scope")
    assert cause(tmp_path, journal__txt=text)[0] in ("none", "unknown")


def test_of_a_journal_only_lines_of_guards_are_a_log() -> None:
    assert len(guards_in(JOURNAL.format(unit="tmux-spawn-1.scope")).splitlines()) == 2
    assert guards_in("Mar 03 02:10:01 ws7 systemd[1]: Started Session 4 of User root.\n") == ""


# Processes

STATUS = "Name:\tpython3\nState:\tR (running)\nPid:\t{pid}\nPPid:\t41\nThreads:\t{n}\nCpus_allowed_list:\t0-31\n"


def test_several_status_files_in_one_are_as_many_processes() -> None:
    text = "".join(STATUS.format(pid=7100 + one, n=200) for one in range(3))
    assert [(one.pid, one.threads, one.mask) for one in process_status.read(text).processes] == [
        (7100, 200, "0-31"), (7101, 200, "0-31"), (7102, 200, "0-31"),
    ]  # fmt: skip
    assert [one.pid for one in extracts_of(text)] == [7100, 7101, 7102]


def test_lines_that_grep_cut_out_of_status_files_keep_whose_they_are() -> None:
    text = "/proc/812/status:Threads:\t97\n/proc/813/status:Threads:\t98\n"
    assert process_status.TOOL.fits(text, "g.txt")
    assert [(one.pid, one.threads) for one in process_status.read(text).processes] == [(812, 97), (813, 98)]


def test_threads_in_status_files_beside_a_cut_screen_of_threads(tmp_path: Path) -> None:
    top = (
        "top - 08:11:02 up 2 days,  2:01,  1 user,  load average: 251.20, 244.81, 212.66\n"
        "Threads: 1911 total, 255 running, 1656 sleeping,   0 stopped,   0 zombie\n"
        "%Cpu(s): 58.1 us, 41.2 sy,  0.0 ni,  0.6 id,  0.0 wa,  0.0 hi,  0.1 si,  0.0 st\n\n"
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
    ) + "".join(
        f"   {7100 + one} lin       20   0   61.2g   6.1g   1.2g R  12.0   1.1   1:00.44 python3\n" for one in range(20)
    )
    status = "".join(STATUS.format(pid=7100 + one, n=200) for one in range(4))
    assert cause(tmp_path, top__txt=top, status__txt=status, nproc__txt="$ nproc\n32\n")[0] == (
        "cpu.thread_oversubscription"
    )
    assert {one.threads for one in process_table.read(top).processes} == {1}


# Call-backs

PERF = """\
# Overhead  Command  Shared Object                          Symbol
    {python}%  python   python3.12                             [.] _PyEval_EvalFrameDefault
    14.11%  python   _ext.cpython-312-x86_64-linux-gnu.so [.] pybind11::detail::object_api<handle>::operator()
     6.31%  python   _ext.cpython-312-x86_64-linux-gnu.so [.] packer::Fit::walk
     5.10%  python   python3.12                             [.] _PyObject_MakeTpCall
"""


@pytest.mark.parametrize(("python", "told"), [("44.10", "_ext.cpython-312-x86_64-linux-gnu.so"), ("4.10", "")])
def test_perf_without_children_tells_of_call_backs_by_what_each_takes_itself(python: str, told: str) -> None:
    assert perf_report.read(PERF.format(python=python)).callback == told


DUMP = """\
Process 9912: python train.py
Python v3.11.8 (/usr/bin/python3.11)

Thread 9912 (active+gil): "MainThread"
    keep (filters.py:17)
    _PyEval_EvalFrameDefault (python3.11)
    walk::Tree::visit (walker/_C.cpython-311-x86_64-linux-gnu.so)
    step (train.py:132)
    <module> (train.py:207)
"""


def test_one_look_at_a_process_of_no_known_rank_says_little_of_call_backs(tmp_path: Path) -> None:
    (tmp_path / "dump.txt").write_text(DUMP)
    ranked = explain([tmp_path]).diagnosis.ranked
    (one,) = [one for one in ranked if one.hypothesis.cause == "cpu.native_callback"]
    assert 0.0 < one.probability < 0.5


# Lines as somebody remembers them


def test_a_kill_in_small_letters_below_the_nodes_name_is_that_nodes(tmp_path: Path) -> None:
    text = "w12 dmesg:\n[9122.1] out of memory: killed process 4411 (python3), anon-rss 201 GB\n"
    assert cause(tmp_path, dmesg__txt=text) == ("host.memory_oom_kill", {"node": "w12", "pid": 4411})


def test_a_chronyc_without_its_columns_is_read() -> None:
    assert time_service.read("Stratum: 3\nSystem time: 41.2 s slow\n").service_offset_s == -41.2
    assert time_service.read("clock is 2 min ahead\n").service_offset_s == 120.0


@pytest.mark.parametrize(
    ("says", "seconds"), [("up 41 days, 2:11", 3_550_260.0), ("up 9 min", 540.0), ("up 2 d 3 h", 183_600.0)]
)
def test_short_uptimes_are_read(says: str, seconds: float) -> None:
    assert boots.read(f"{says}\n").uptime_s == seconds


def test_a_loader_worker_that_was_killed_where_a_group_counts_kills_ran_out_of_memory(tmp_path: Path) -> None:
    log = "step 1 loss 2.0\n[rank1]: RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed.\n"
    events = "low 0\nhigh 0\nmax 11\noom 1\noom_kill 1\n"
    assert cause(tmp_path, run__log=log, memory__events=events)[0] == "host.memory_oom_kill"


def test_a_quota_is_the_pods_own_and_not_of_the_node_on_which_it_runs(tmp_path: Path) -> None:
    pods = (
        "NAME    READY   STATUS    RESTARTS   AGE   IP           NODE\n"
        "job-0   1/1     Running   0          2h    10.1.1.4     w1\n"
        "job-1   1/1     Running   0          2h    10.1.2.4     w2\n"
    )
    counts = "job-0: nr_periods 41000 nr_throttled 9\njob-1: nr_periods 41000 nr_throttled 39000\n"
    found = cause(tmp_path, pods__txt=pods, stat__txt=counts)
    assert (found[0], found[1]["node"]) == ("cpu.quota_throttled", "job-1")


# Stacks and profiles as somebody wrote them down


@pytest.mark.parametrize(
    "text",
    [
        "rank 0 pid 41\nMainThread (idle)\n  wait (threading.py:324)\n  get (queue.py:180)\n  step (train.py:88)\n",
        'Thread 41 "MainThread" idle:\n threading.py:324 in wait\n queue.py:180 in get\n train.py:88 in step\n',
        "<module> (train.py:120)\nstep (train.py:88)\nget (queue.py:180)\nwait (threading.py:324)\n",
    ],
)
def test_stacks_in_any_layout_are_those_of_py_spy(text: str) -> None:
    (process,) = stacks_of(as_py_spy(text))
    assert process.main is not None
    assert [frame.short for frame in process.main.frames][:3] == [
        "wait (threading.py:324)", "get (queue.py:180)", "step (train.py:88)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "INFO train.py:88 step 1 loss 2.0\nINFO train.py:88 step 2 loss 1.9\nINFO train.py:88 step 3 loss 1.8\n",
        "see train.py:88\n",
        "wait (threading.py:324)\nthe rest scrolled away\nnobody knows\nmore\n",
    ],
)
def test_a_log_with_places_in_it_is_no_stack(text: str) -> None:
    assert as_py_spy(text) == ""


def test_who_holds_the_lock_is_kept() -> None:
    text = (
        "MainThread (idle)\n  forward (model.py:4)\n  step (train.py:8)\nwriter [active+gil]\n  dumps (json/x.py:2)\n"
    )
    (process,) = stacks_of(as_py_spy(text))
    assert process.holder is not None and process.holder.name == "writer"


def test_calls_of_cuda_written_down_by_share_are_read() -> None:
    text = "cudaStreamSynchronize 68.1 % 21.2 s 88121 calls\ncudaMemcpyAsync 12.2 % 3.8 s 90112 calls\n"
    text += "cudaLaunchKernel 11.1 % 3.4 s 811220 calls\n"
    told = cuda_calls.read(text)
    assert (told.sync_ns, told.syncs, told.launches) == (21_200_000_000, 88121, 811220)
    assert not cuda_calls.TOOL.fits("cudaStreamSynchronize took 68 % here\nwhy?\nwho knows\n", "n.txt")


def test_a_title_says_of_what_and_in_which_unit_the_lines_below_are() -> None:
    told = clock_lines.by_node("offset (ms) by host\nn1 0.2\nn2 -0.1\nn3 -61233.0\n")
    assert {node: one.service_offset_s for node, one in told.items()} == pytest.approx(
        {"n1": 0.0002, "n2": -0.0001, "n3": -61.233}
    )
    assert not clock_lines.TOOL.fits("loss (ms) by host\nn1 0.2\nn2 -0.1\n", "x.txt")


def test_pythons_own_profiler_tells_of_methods_that_wait_for_the_device() -> None:
    text = (
        "ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n"
        " 41000   61.212    0.001   61.212    0.001 {method 'item' of 'torch._C.TensorBase' objects}\n"
        "   100    9.112    0.091    9.112    0.091 {method 'run_backward' of 'torch._C._EngineBase' objects}\n"
        "   100    0.812    0.008   81.112    0.811 train.py:88(step)\n"
    )
    told = cuda_calls.read(text)
    assert (told.sync_ns, told.syncs) == (61_212_000_000, 41_000)


def test_several_looks_at_a_process_of_no_known_rank_count_together(tmp_path: Path) -> None:
    for one in range(3):
        (tmp_path / f"d{one}.txt").write_text(DUMP.replace("filters.py:17", f"filters.py:{17 + one}"))
    first = explain([tmp_path]).diagnosis.verdict.hypothesis
    assert (first.cause, first.signals) == ("cpu.native_callback", ("callbacks_in_looks",))
