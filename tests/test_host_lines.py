"""Lines that people make of processes, threads and clocks, a line each; and what stands around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.ranks.process_extract import is_environment
from probes.catalog.stacks.profile import callback
from probes.explain import explain
from probes.intake.tools import tools_of
from probes.intake.tools.host import boots, clock_lines, process_lines, thread_table
from probes.intake.tools.network import ports_in_text

# A process or thread, and values beside their names


def test_a_loop_over_processes_tells_threads_masks_and_ranks() -> None:
    text = "5121 PMI_RANK=0 threads=388 mask= 0-127\n5122 PMI_RANK=1 threads=391 mask= 0-127\n"
    (first, second) = process_lines.read(text).processes
    assert (first.pid, first.threads, first.mask, first.rank) == (5121, 388, "0-127", True)
    assert (second.pid, second.threads) == (5122, 391)


def test_a_name_of_a_value_is_no_name_of_a_process() -> None:
    text = "pid 5121 threads: 211 OMP_NUM_THREADS=\npid 5122 threads: 211 OMP_NUM_THREADS=\n"
    assert [(one.comm, one.threads) for one in process_lines.read(text).processes] == [("", 211), ("", 211)]


def test_a_mask_of_bits_is_one_of_cpus() -> None:
    text = "pid=5121 comm=python3 nlwp=9 affinity=0xf0\npid=5122 comm=python3 nlwp=9 affinity=f\n"
    assert [one.mask for one in process_lines.read(text).processes] == ["4-7", "0-3"]


def test_numbers_without_a_name_are_what_the_heading_says_of_them() -> None:
    head = "# thread state allowed | run wait over 5 s in ms | vol nonvol switches in 5 s\n"
    row = "70{0} pt_data_worker R cpu=3 Cpus_allowed_list: 2-3 | 1200 3600 | 12 4000\n"
    (first, *_) = process_lines.read(head + row.format(1) + row.format(2)).processes
    assert (first.comm, first.ran_ns, first.waited_ns, first.preempted) == ("pt_data_worker", 1.2e9, 3.6e9, 800)


def test_environments_below_each_other_are_no_lines_of_processes() -> None:
    assert not process_lines.fits("RANK=0\nLOCAL_RANK=0\nOMP_NUM_THREADS=8\n", "env.txt")
    assert is_environment("RANK=0\nLOCAL_RANK=0\nOMP_NUM_THREADS=8\n")
    assert not is_environment("5121 RANK=0 threads=388\n5122 RANK=1 threads=391\n")


# Clocks of nodes


@pytest.mark.parametrize(
    "line", ["{} 1780000000.125", "{}: 1780000000125", "{} epoch_ms=1780000000125", "node={} ts=1780000000125000000"]
)
def test_times_of_a_loop_are_those_of_nodes_in_any_unit(line: str) -> None:
    told = clock_lines.by_node("\n".join(line.format(node) for node in ("n-1", "n-2")))
    assert list(told) == ["n-1", "n-2"]
    assert told["n-1"].told_at == pytest.approx(1780000000.125)


def test_offsets_need_a_unit() -> None:
    told = clock_lines.by_node("n-1 offset=-0.5 ms\nn-2 offset=44120 ms\nn-3 offset=7\n")
    assert {node: clock.service_offset_s for node, clock in told.items()} == {"n-1": -0.0005, "n-2": 44.12}


def test_when_nodes_were_last_seen_or_booted_is_no_clock() -> None:
    assert not clock_lines.fits("n-1 last_seen=1780000000\nn-2 last_seen=1780000900\n", "seen.txt")
    assert not clock_lines.fits("n-1 btime 1780000000\nn-2 btime 1780000900\n", "boots.txt")


def test_a_clock_that_a_loop_shows_behind_is_named_where_the_rendezvous_drops_its_node(tmp_path: Path) -> None:
    (tmp_path / "loop.txt").write_text("n-1 1780000000.1\nn-2 1780000000.2\nn-3 1779999880.1\nn-4 1780000000.3\n")
    (tmp_path / "agent.log").write_text(
        "As part of the sync operation the node(s) 'n-3_901_0' have been removed from the rendezvous 'r7' since they "
        "had no heartbeat.\n"
    )
    first = explain([tmp_path]).diagnosis.verdict.hypothesis
    assert (first.cause, dict(first.subject)) == ("host.clock_offset", {"node": "n-3"})


# Boots


def test_uptime_may_stand_above_what_last_tells_of_shutdowns() -> None:
    text = (
        " 18:42:08 up 6 min,  1 user,  load average: 0.18, 0.31, 0.17\n"
        "reboot   system boot  6.8.0-1021-aws   Wed Nov 19 18:36   still running\n"
        "shutdown system down  6.8.0-1021-aws   Wed Nov 19 18:33 - 18:36  (00:02)\n"
    )
    assert boots.TOOL in tools_of(text, "uptimes")


# Call-backs through ctypes

BELOW = ["<module> (prep.py:9)", "order (prep.py:4)", "_ctypes_callproc (callproc.c:1262)", "ffi_call (libffi.so.8)"]


def test_a_function_of_libc_that_calls_python_back_is_an_extension_too() -> None:
    frames = [*BELOW, "bsearch (libc.so.6)", "closure_fcn (callbacks.c:317)", "cmp (prep.py:2)"]
    assert callback(frames) == ("bsearch (libc.so.6)", "cmp (prep.py:2)")


def test_a_sample_between_the_closure_and_python_counts_for_who_asked() -> None:
    frames = [
        *BELOW,
        "twalk (libc.so.6)",
        "_CallPythonObject (callbacks.c:259)",
        "PyGILState_Ensure (libpython3.12.so)",
    ]
    assert callback(frames) == ("twalk (libc.so.6)", "order (prep.py:4)")


def test_a_call_through_ctypes_that_calls_nobody_back_is_none() -> None:
    assert callback([*BELOW, "nanosleep (libc.so.6)"]) is None


# Logs are no ports


def test_a_learning_rate_is_no_rate_of_a_port() -> None:
    line = " [2026-05-11 02:02:10] iteration 40/ 100 | learning rate: 2.412E-05 | global batch size: 512 |\n"
    assert not ports_in_text.fits(line * 20, "train.log")


# Lines of which torch says that they wait for the device

WARNED = (
    "/w/run.py:{}: UserWarning: called a synchronizing CUDA operation (Triggered internally at CUDAFunctions.cpp:108.)"
)


def _profile(tmp_path: Path, line: int) -> str:
    (tmp_path / "torch.log").write_text(f"{WARNED.format(31)}\n  n = mask.sum().item()\n")
    (tmp_path / "rank0.folded").write_text(
        f"<module> (run.py:80);step (run.py:{line}) 700\n"
        "<module> (run.py:80);step (run.py:40);forward (run.py:12) 200\n"
    )
    return explain([tmp_path]).diagnosis.verdict.hypothesis.cause


def test_a_profile_without_native_frames_that_is_mostly_at_such_a_line_is_of_waits(tmp_path: Path) -> None:
    assert _profile(tmp_path, 31) == "cpu.implicit_sync"


def test_a_profile_that_is_elsewhere_is_not(tmp_path: Path) -> None:
    assert _profile(tmp_path, 35) != "cpu.implicit_sync"


# Tables of threads


@pytest.mark.parametrize(("head", "late", "preempted"), [
    ("TID COMM PSR CPUS_ALLOWED NONVOL_CTX/10s RUN_DELAY_ms/10s", 68.85, 507.3),
    ("# what changed over 5 s\ntid name psr cpus_allowed_list nonvoluntary_ctxt_switches run_delay_us", 0.1, 1014.6),
    ("TID COMM CPU affinity nvcswch/s %wait", None, 5073.0),  # 6885 % is none
    ("TID COMM PSR CPUS_ALLOWED NONVOL_CTX RUN_DELAY_ms", None, None),  # since the start, or nobody knows
])  # fmt: skip
def test_columns_of_some_seconds_are_rates(head: str, late: float | None, preempted: float | None) -> None:
    text = f"{head}\n30700 pt_data_worker 24 24-25 5073 6885\n"
    assert thread_table.fits(text, "threads.txt")
    (one,) = thread_table.read(text).processes
    assert (one.pid, one.mask) == (30700, "24-25")
    assert one.run_delay_percent == (None if late is None else pytest.approx(late, abs=0.06))
    assert one.preempted == (None if preempted is None else pytest.approx(preempted))
