"""Tables of where time goes: whether a job waits for its data, and whose table it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.stacks.profile import rank_named
from probes.intake.tools import tool_of, tools_of
from probes.intake.tools.training import kineto_shares, time_tables
from tests.support.brought import FIXTURES
from tests.support.hardware import judged, shares

CAUSE = "cpu.dataloader_starved"
PSTATS = """\
         912044 function calls (900120 primitive calls) in 61.204 seconds

   Ordered by: cumulative time

   ncalls  tottime  percall  cumtime  percall filename:lineno(function)
        1    0.003    0.003   61.204   61.204 train.py:90(main)
      200    0.011    0.000   48.110    0.241 dataloader.py:733(__next__)
      200    0.911    0.005    9.804    0.049 train.py:61(train_step)
        1    0.000    0.000    2.001    2.001 dataloader.py:240(__init__)
"""
LIGHTNING = """\
FIT Profiler Report

--------------------------------------------------------------------------
|  Action                        |  Mean duration (s)  |Num calls        |  Total time (s)  |  Percentage %  |
--------------------------------------------------------------------------
|  Total                         |  -                  |_                |  400.0           |  100 %         |
|  get_train_batch               |  0.9                |300              |  270.0           |  67.5          |
|  run_training_batch            |  0.4                |300              |  120.0           |  30.0          |
|  validation_step               |  0.1                |100              |  10.0            |  2.5           |
"""
LINES = """\
Total time: 92.0121 s
File: train.py
Function: epoch at line 40

Line #      Hits         Time  Per Hit   % Time  Line Contents
==============================================================
    41       401   70011210.1 174591.5     76.1      for batch in self.train_loader:
    42       400   20110330.2  50275.8     21.9          loss = self.step(batch)
"""
OWN = """\
phase            seconds   share
batch_wait        41.200   62.4 %
forward            9.100   13.8 %
backward          15.700   23.8 %
"""
CATEGORIES = "Category,Duration (us),Percentage (%)\nKernel,91204,18.2\nDataLoader,390112,77.9\nCPU Exec,19550,3.9\n"


@pytest.mark.parametrize(
    ("text", "share"),
    [(PSTATS, 0.786), (LIGHTNING, 0.675), (LINES, 0.761), (OWN, 0.624), (CATEGORIES, 0.779)],
    ids=["cProfile", "older Lightning", "line_profiler", "a table of its own", "CSV"],
)
def test_the_share_of_fetching_data_is_read_from_any_table_of_times(text: str, share: float) -> None:
    assert tool_of(text, "profile.txt") is time_tables.TOOL
    assert time_tables.read(text).share == pytest.approx(share, abs=0.001)


def test_ranges_of_nsys_count_against_the_step_that_holds_them() -> None:
    text = (
        " ** NVTX Range Summary (nvtx_sum):\n\n"
        " Time (%)  Total Time (ns)  Instances   Avg (ns)    Style    Range\n"
        " --------  ---------------  ---------  ----------  -------  ------------\n"
        "     55.0   50,000,000,000        100  500,000,000  PushPop  :step\n"
        "     33.0   30,000,000,000        100  300,000,000  PushPop  :dataloader\n"
        "     12.0   11,000,000,000        100  110,000,000  PushPop  :forward\n"
    )
    assert time_tables.read(text).share == pytest.approx(0.6)


def test_building_a_loader_once_validation_and_copies_to_the_device_are_no_fetching() -> None:
    rows = ("dataloader_setup  1  90.0", "val_dataloader_next  50  80.0", "batch_to_device  50  70.0")
    text = "name  calls  total_s\n" + "\n".join(rows) + "\nforward  50  20.0\n"
    assert not time_tables.fits(text, "")


def test_a_table_that_a_program_prints_into_its_log_does_not_hide_the_log(tmp_path: Path) -> None:
    lines = "".join(f"[rank2]: step {step} loss 2.{step}\n" for step in range(9))
    log = f"{lines}{LIGHTNING}[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    found = shares(judged(tmp_path, {"rank2.log": log}))
    assert found["gpu.out_of_memory"] > found.get(CAUSE, 0.0)


def test_a_job_whose_table_is_mostly_fetching_waits_for_its_data(tmp_path: Path) -> None:
    assert shares(judged(tmp_path / "much", {"prof.txt": PSTATS}))[CAUSE] > 0.8
    little = PSTATS.replace("48.110", "12.110")
    assert shares(judged(tmp_path / "little", {"prof.txt": little})).get(CAUSE, 0.0) == 0


def test_one_rank_of_several_whose_table_is_of_fetching_is_named(tmp_path: Path) -> None:
    files = {f"rank{rank}/prof.txt": PSTATS if rank == 2 else PSTATS.replace("48.110", "3.110") for rank in range(4)}
    assert judged(tmp_path, files).verdict.hypothesis.subject == {"rank": 2}


TORCH = """\
                   Name    Self CPU %     Self CPU   CPU total %    CPU total  CPU time avg    Self CUDA    # of Calls
  cudaStreamSynchronize        70.00%       7.000s        70.00%        7.000s       7.000ms       0.000us          1000
       cudaLaunchKernel        10.00%       1.000s        10.00%        1.000s      50.000us       0.000us         20000
Self CPU time total: 10.000s
Self CUDA time total: {device}s
"""


def test_waiting_for_a_device_that_works_all_the_time_loses_nothing(tmp_path: Path) -> None:
    cause = "cpu.implicit_sync"
    assert shares(judged(tmp_path / "idle", {"p.txt": TORCH.format(device="3.100")}))[cause] > 0.6
    assert shares(judged(tmp_path / "busy", {"p.txt": TORCH.format(device="9.700")}))[cause] < 0.2


def test_tables_of_several_ranks_are_one_finding(tmp_path: Path) -> None:
    files = {f"rank{rank}.txt": TORCH.format(device="3.100") for rank in range(3)}
    assert shares(judged(tmp_path, files))["cpu.implicit_sync"] > 0.7
    assert judged(tmp_path, files).verdict.hypothesis.ranks == {0, 1, 2}


@pytest.mark.parametrize(
    ("file", "rank"),
    [
        ("run/rank3/gil.collapsed", 3),
        ("run/global_rank_12/prof.txt", 12),
        ("prof_r5_steps.txt", 5),
        ("a/notes.txt: py-spy_record_-o_rank7.raw", 7),
        ("run/local_rank1.txt", None),
        ("one-rank-of-64/prof.txt", None),
        ("error4.txt", None),
    ],
)
def test_the_rank_of_a_profile_is_that_of_its_file_or_folder(file: str, rank: int | None) -> None:
    assert rank_named(file) == rank


def test_one_output_may_be_a_table_of_times_and_of_cuda_calls() -> None:
    row = "enumerate(DataLoader)#_Iter.__next__   80.00%   8.000s   80.00%   8.000s   8.000ms   0.000us   1000\n"
    text = TORCH.format(device="1.0").replace("Self CPU time", row + "Self CPU time")
    assert {one.name for one in tools_of(text, "")} == {"CUDA calls", "time table"}


# Traces of torch.profiler -------------------------------------------------------------------------------------------

TRACE = (FIXTURES / "tools" / "kineto_loader_four_steps.json").read_text()


def event(kind: str, name: str, at: float, took: float, thread: int = 7) -> str:
    return (
        f'{{"ph": "X", "cat": "{kind}", "name": "{name}", "pid": 9, "tid": {thread}, "ts": {at}, "dur": {took},\n'
        ' "args": {"External id": 1}},\n'
    )


def test_a_recorded_trace_tells_the_share_that_torchs_own_table_tells() -> None:
    facts = kineto_shares.read(TRACE)
    assert facts.data_s == pytest.approx(0.076536, abs=1e-6)
    assert facts.whole_s == pytest.approx(0.164442, abs=1e-6)
    assert (facts.calls, kineto_shares.TOOL.host(TRACE)) == (4, "lab-3")


def trace(kernels: float, waits: int) -> str:
    """One second on rank 5: so many waits of 700 ms together, 2000 kernels that take this long."""
    calls = "".join(event("cuda_runtime", "cudaStreamSynchronize", at, 700_000 / waits) for at in range(waits))
    calls += "".join(event("cuda_runtime", "cudaLaunchKernel", 9000 + at, 5.0) for at in range(2000))
    calls += event("kernel", "sm90_gemm", 0.0, kernels * 1e6, 20) + event(
        "kernel", "ncclDevKernel_AllReduce", 0.0, 9e5, 21
    )
    calls += event("user_annotation", "ProfilerStep#3", 0.0, 1e6)
    job = '"distributedInfo": {"backend": "nccl", "rank": 5}'
    return f'{{"schemaVersion": 1, {job},\n"traceEvents": [\n{calls}{{}}]}}\n'


def test_a_trace_tells_waits_for_an_idle_device_and_its_own_rank(tmp_path: Path) -> None:
    cause = "cpu.implicit_sync"
    found = judged(tmp_path / "often", {"a.pt.trace.json": trace(0.3, 500)}).verdict.hypothesis
    assert (found.cause, found.subject["rank"]) == (cause, 5)
    assert shares(judged(tmp_path / "busy", {"a.pt.trace.json": trace(0.95, 500)}))[cause] < 0.2
    assert shares(judged(tmp_path / "once", {"a.pt.trace.json": trace(0.3, 2)}))[cause] < 0.2


def test_a_trace_that_mostly_loads_is_of_a_rank_that_waits_for_its_data(tmp_path: Path) -> None:
    loads = event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 10.0, 8e5)
    text = trace(0.1, 1).replace(event("user_annotation", "ProfilerStep#3", 0.0, 1e6), "")
    text = text.replace(
        '"traceEvents": [\n', '"traceEvents": [\n' + event("user_annotation", "ProfilerStep#3", 0.0, 1e6) + loads
    )
    assert shares(judged(tmp_path, {"w.json": text}))[CAUSE] > 0.8


NSYS = """\
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
81.2,{copies},{many},503308.0,500000.0,1000,90000000,12000.0,cudaMemcpyAsync
12.0,13481900000,911000,14800.0,9000.0,1000,900000,1200.0,cudaLaunchKernel
6.8,7639000000,120,63658333.0,60000000.0,1000,90000000,1200.0,cudaDeviceSynchronize
"""


@pytest.mark.parametrize(
    ("copies", "many", "suspected"),
    [(91_220_918_331, 81_900, True), (91_220_918_331, 90, False), (900_918_331, 81_900, False)],
)
def test_copies_that_each_take_as_long_as_a_wait_are_one(
    tmp_path: Path, copies: int, many: int, suspected: bool
) -> None:
    found = shares(judged(tmp_path, {"nsys_rank1.csv": NSYS.format(copies=copies, many=many)}))
    assert (0.4 < found.get("cpu.implicit_sync", 0.0) < 0.8) is suspected
