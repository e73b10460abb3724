"""Operators and collectives of a trace of torch.profiler. Right values: torch's own table of the same run."""

from __future__ import annotations

import json

import pytest

from probes.catalog.stacks.operator_facts import CommsLog
from probes.core import ParseError
from probes.diagnosis import Seen
from probes.diagnosis.bandwidth import speeds_of
from probes.diagnosis.core import Evidence
from probes.intake.tools.training import comms_logger, kineto_operators
from tests.support.brought import FIXTURES

TRACE = (FIXTURES / "tools" / "kineto_operators_gloo.json").read_text()
SAID = json.loads((FIXTURES / "truth" / "kineto_operators_gloo.json").read_text())
REDUCE = (
    '"Collective name": "allreduce", "In msg nelems": 16777216, "Out msg nelems": 16777216, "Group size": 8,'
    ' "dtype": "BFloat16", "In split size": "[]", "Process Group Name": "3", "Process Group Description": "dp"'
)


def event(kind: str, name: str, at: float, took: float, more: str = '"x": 1', thread: int = 7) -> str:
    return (
        f'{{"ph": "X", "cat": "{kind}", "name": "{name}", "pid": 9, "tid": {thread}, "ts": {at}, "dur": {took},\n'
        f' "args": {{{more}}}}},\n'
    )


def trace(*events: str, rank: int = 5) -> str:
    job = f'"distributedInfo": {{"backend": "nccl", "rank": {rank}}}'
    return f'{{"schemaVersion": 1, {job},\n"traceEvents": [\n{"".join(events)}{{}}]}}\n'


def test_calls_times_and_memory_are_those_of_torchs_own_table() -> None:
    facts = kineto_operators.read(TRACE)
    mine = {one.name: one for one in facts.operators}
    assert facts.rank == 0 and facts.pid == 10684 and kineto_operators.TOOL.host(TRACE) == "lab-4"
    for name, said in SAID.items():
        one = mine[name]
        assert (one.calls, one.memory_bytes) == (said["calls"], said["memory_bytes"]), name
        assert one.self_us == pytest.approx(said["self_us"], abs=0.1), name
        assert one.cpu_us == pytest.approx(said["cpu_us"], abs=0.1), name
        assert one.device_us is None, "nothing ran on a device"


def test_work_on_the_device_belongs_to_the_operator_that_started_it() -> None:
    facts = kineto_operators.read(
        trace(
            event("cpu_op", "aten::linear", 0, 100, '"External id": 1'),
            event("cpu_op", "aten::addmm", 10, 50, '"External id": 2'),
            event("kernel", "sm90_gemm", 70, 400, '"stream": 7, "External id": 2', thread=20),
            event("gpu_memcpy", "Memcpy HtoD", 500, 30, '"External id": 77', thread=20),
        )
    )
    device = {one.name: one.device_us for one in facts.operators}
    assert device == {"aten::addmm": 400.0, "aten::linear": 0.0}
    assert facts.operators[0].name == "aten::addmm", "the most of CPU and device first"
    assert facts.span_us == 530.0


def test_collectives_are_told_by_what_they_carry_and_as_bus_bandwidth() -> None:
    slow, quick = (
        event("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 0, took, REDUCE, 21) for took in (9000.0, 1000.0)
    )
    facts = kineto_operators.read(trace(event("cpu_op", "c10d::allreduce_", 0, 5), slow, quick))
    (one,) = facts.collectives
    assert (one.group, one.op, one.members, one.count) == ("dp", "allreduce", 8, 2)
    assert (one.least_us, one.median_us) == (1000.0, 5000.0)
    seen = Seen("trace.json", "n", "rank.operators", "ok", "", facts, ())
    (speed,) = speeds_of(Evidence([seen]))
    # 32 MiB in 1 ms, 2 x 7/8
    assert speed.gbs == pytest.approx(33.554432 * 1.75) and not speed.whole
    assert "all_reduce of 32 MiB among 8 ranks of dp: at least 58.7 GB/s" in speed.says


ROW = " " * 20 + "64.0 MB             40          602.40     15.06      142.60      133.69"
SUMMARY = f"""\
[2026-03-03 10:00:00,000] [INFO] [utils.py:1:log_summary] rank=0
Comm. Op            Message Size        Count   Total Latency(ms)   Avg Latency(ms)  tput_avg (Gbps)  busbw_avg (Gbps)
broadcast
                    2.0 KB              146         11.12      0.08       0.43         0.41
reduce_scatter_tensor | [Caller Func: reduce_scatter_fn]
{ROW}
[2026-03-03 10:00:01,000] [INFO] step 20
{ROW}
"""
LINE = (
    "[2026-03-03 10:00:00,000] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 | comm op: all_gather_base | time (ms): "
    "{ms} | msg size: 6.0 MB | algbw (Gbps): 954.41  | busbw (Gbps): {gbps}\n"
)


def test_deepspeeds_own_figures_are_told_as_it_gives_them() -> None:
    facts = comms_logger.read(SUMMARY)
    assert [(one.op, one.bytes, one.count, one.ms) for one in facts.collectives] == [
        ("broadcast", 2048, 146, 0.08),
        ("reduce_scatter_tensor", 64 << 20, 40, 15.06),
    ], "rows that stand apart from the table are none of it"
    seen = Seen("job.log", "", "rank.comms_log", "ok", "", facts, ())
    (speed,) = speeds_of(Evidence([seen]))
    assert "reduce_scatter_base of 64 MiB: 16.7 GB/s of bus bandwidth, 15.1 ms, 40 times" in speed.says  # 133.69 / 8


def test_lines_of_single_calls_are_put_together() -> None:
    (one,) = comms_logger.read(LINE.format(ms="0.10", gbps="900.0") + LINE.format(ms="0.30", gbps="300.0")).collectives
    assert (one.op, one.bytes, one.count, one.ms, one.gbps) == ("all_gather_base", 6 << 20, 2, 0.2, 600.0)
    (alone,) = comms_logger.read(LINE.format(ms="0.10", gbps="900.0")).collectives
    (speed,) = speeds_of(Evidence([Seen("job.log", "", "rank.comms_log", "ok", "", CommsLog((alone,)), ())]))
    assert speed.says.endswith("0.1 ms, once")


def test_a_trace_without_operators_is_refused() -> None:
    with pytest.raises(ParseError, match="operators in a trace"):
        kineto_operators.read(trace(event("kernel", "sm90_gemm", 0, 10)))
