"""What collectors write in front of lines, how services say that a job was stopped, and processes that are stopped.

Right values follow from kubectl logs --timestamps, CRI, aws logs tail, ts(1), stern; exit codes of shells and of PBS.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.catalog.logs.read import read_log
from probes.intake.exported_logs import lines_in, lines_of_rows
from tests.support.hardware import judged, waited

RAISED = [
    "Traceback (most recent call last):",
    '  File "/w/feed.py", line 44, in item',
    "    raise KeyError(i)",
    "KeyError: 8",
]
FRONTS = (
    "2025-06-03T10:00:09.123456789Z [rank2]: {}", "2025-06-03T10:00:09.123456789Z stderr F [rank2]: {}",
    "2025-06-03 10:00:09,123 [rank2]: {}", "2025-06-03 10:00:09.100 UTC [rank2]: {}", "Jun 03 10:00:09 [rank2]: {}",
    "Jun 03 10:00:09 gn-1 train[4411]: [rank2]: {}", "1748944809100 [rank2]: {}", "w-2  | [rank2]: {}",
    "llm-w-2 pytorch [rank2]: {}", "2025-06-03T10:00:09.100+00:00 llm/algo-2-1748944800 [rank2]: {}",
    "[pod/llm-w-2/main] 2025-06-03T10:00:09.1Z [rank2]: {}", "2025-06-03T10:00:09.100Z\t[rank2]: {}",
)  # fmt: skip


@pytest.mark.parametrize("front", FRONTS)
def test_a_traceback_is_read_behind_whatever_a_collector_wrote_before_its_lines(front: str) -> None:
    (raised,) = read_log("\n".join(front.format(line) for line in RAISED))[0]
    assert (raised.kind, raised.name, raised.rank, raised.where) == ("traceback", "KeyError", 2, "/w/feed.py:44")


def test_a_traceback_is_read_in_json_with_a_time_a_line() -> None:
    for key, when in (("log", "time"), ("line", "timestamp"), ("message", "@timestamp")):
        rows = (json.dumps({when: "2025-06-03T10:00:09Z", key: f"[rank2]: {line}"}) for line in RAISED)
        assert [(one.kind, one.rank) for one in read_log("\n".join(rows))[0]] == [("traceback", 2)], key


def rows(newest_first: bool = False) -> list[tuple[int, str]]:
    """Millisecond and line: a traceback of rank 2, and what its peers wrote of it."""
    told = [f"[rank2]: {line}" for line in RAISED] + ["[rank0]: step 7 loss 2.0", "[rank1]: step 7 loss 2.0"]
    found = [(1748944809100 + at, line) for at, line in enumerate(told)]
    return found[::-1] if newest_first else found


def iso(at: int) -> str:
    return f"2025-06-03T10:00:{at % 60:02d}.000Z"


POD = {"pod_name": "w-2"}
EXPORTS = {
    "cloudwatch.json": {"events": [{"timestamp": at, "message": line} for at, line in rows()]},
    "elastic.json": {"hits": {"hits": [
        {"_source": {"@timestamp": iso(at), "log": line, "kubernetes": POD}} for at, line in rows(True)]}},
    "gcp.json": [
        {"timestamp": iso(at), "textPayload": line, "resource": {"labels": POD}} for at, line in rows()],
    "datadog.json": {"data": [
        {"attributes": {"timestamp": iso(at), "host": "n-2", "message": line}} for at, line in rows()]},
    "loki.json": {"status": "success", "data": {"resultType": "streams", "result": [
        {"stream": {"pod": "w-2"}, "values": [[str(at * 1_000_000), line] for at, line in rows(True)]}]}},
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_a_log_that_a_service_exported_is_read_as_a_log(tmp_path: Path, name: str) -> None:
    found = judged(tmp_path, {name: json.dumps(EXPORTS[name], indent=1)}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_exited", 2)


def test_a_log_in_a_table_of_rows_is_read_as_a_log(tmp_path: Path) -> None:
    text = "Time,Pod,Message\n" + "".join(
        '{},w-2,"{}"\n'.format(iso(at), line.replace('"', '""')) for at, line in rows()
    )
    found = judged(tmp_path, {"export.csv": text}).verdict.hypothesis
    assert (found.cause, found.subject.get("rank")) == ("fw.rank_exited", 2)


def test_records_without_times_or_words_are_no_log() -> None:
    for body in (
        "[]",
        "{}",
        "[1, 2]",
        '[{"message": "a"}]',
        '{"events": [{"timestamp": 5}]}',
        '{"message": ' * 900,
        "nul",
    ):
        assert lines_in(body) == ""
    assert lines_of_rows("a,b\n1,2\n") == ""


def test_a_loggers_line_between_bare_lines_of_a_traceback_does_not_end_it() -> None:
    rows = [*RAISED[:2], "2025-06-03 10:00:09,1 INFO saved by", *RAISED[2:]]
    assert [one.name for one in read_log("\n".join(rows))[0] if one.kind == "traceback"] == ["KeyError"]


def test_a_bar_that_a_rank_wrote_into_is_cut_where_the_rank_begins() -> None:
    text = "epoch 1:  10%|#  | 1/10 [00:01<00:09]" + "\n".join(f"[rank3]: {line}" for line in RAISED)
    told = {one.kind: one.rank for one in read_log(text)[0]}
    assert told == {"progress": None, "traceback": 3}


STOPPED = {
    "sagemaker.json": json.dumps({"TrainingJobName": "a", "TrainingJobStatus": "Stopped"}),
    "limit.json": json.dumps({"TrainingJobName": "a", "SecondaryStatus": "MaxRuntimeExceeded"}, indent=2),
    "vertex.json": json.dumps([{"displayName": "a", "name": "projects/1", "state": "JOB_STATE_CANCELLED"}]),
    "azure.json": json.dumps({"id": "x", "name": "a", "properties": {}, "status": "Canceled"}),
    "ray.json": json.dumps([{"type": "SUBMISSION", "submission_id": "raysubmit_8", "status": "STOPPED"}]),
    "ray.log": "Job raysubmit_8: Job was intentionally stopped.\n",
    "qstat.txt": "Job Id: 8.pbs\n    Job_Name = a\n    job_state = F\n    Exit_status = 271\n",
    "volcano.txt": "LAST SEEN   TYPE   REASON  OBJECT       MESSAGE\n"
    "9s   Warning   Evict   pod/a-w-0   Pod is evicted, because of preempt\n",
}  # fmt: skip


@pytest.mark.parametrize("name", STOPPED)
def test_a_job_that_a_service_stopped_did_not_fail(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, {name: STOPPED[name]}).verdict.hypothesis.cause == "job.cancelled"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"TrainingJobName": "a", "TrainingJobStatus": "InProgress", "SecondaryStatus": "Training"}),
        json.dumps({"name": "a", "status": "Completed"}),
        "Job Id: 8.pbs\n    Job_Name = a\n    job_state = F\n    Exit_status = 1\n",
    ],
)
def test_a_job_that_runs_or_failed_is_not_said_to_be_stopped(tmp_path: Path, text: str) -> None:
    causes = {one.hypothesis.cause for one in judged(tmp_path, {"job.json": text, "o.log": waited(0)}).ranked}
    assert "job.cancelled" not in causes


def described(name: str, node: str, code: int) -> str:
    return (
        f"Name:             {name}\nNamespace:        train\nNode:             {node}/10.0.0.7\nContainers:\n"
        f"  main:\n    State:          Terminated\n      Reason:       Error\n      Exit Code:    {code}\n"
        "      Finished:     Tue, 03 Jun 2025 10:00:00 +0000\n"
    )


def test_the_one_pod_that_ended_with_a_code_of_its_own_is_told(tmp_path: Path) -> None:
    one = judged(tmp_path / "a", {"d.txt": described("llm-w-1", "gpu-n7", 139)}).verdict
    assert (one.hypothesis.cause, one.hypothesis.subject.get("node")) == ("fw.rank_exited", "gpu-n7")
    assert "SIGSEGV" in one.hypothesis.says
    assert one.probability < 0.8, "why it ended is not told"
    for at, code in enumerate((0, 143, 130)):
        ended = judged(tmp_path / f"b{at}", {"d.txt": described("llm-w-1", "gpu-n7", code)})
        assert "fw.rank_exited" not in {one.hypothesis.cause for one in ended.ranked}, code
    both = described("llm-w-1", "gpu-n7", 1) + described("llm-w-2", "gpu-n8", 1)
    causes = {one.hypothesis.cause for one in judged(tmp_path / "c", {"d.txt": both}).ranked}
    assert "fw.rank_exited" not in causes, "nobody knows which was the first"


TOP = (
    "top - 10:11:12 up 12 days,  3:01,  2 users,  load average: 7.10, 7.22, 7.40\n\n"
    "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
    "  70111 ml        20   0  101.2g  11.1g   1.2g R 100.0   0.6 812:10.10 python\n"
    "  70113 ml        20   0  101.2g  11.1g   1.2g {state}   0.0   0.6 611:00.90 {what}\n"
)
GREP = "/proc/70111/status:State:\tR (running)\n/proc/70113/status:State:\t{state} ({word})\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TOP.format(state="T", what="python"), True),
        (TOP.format(state="S", what="python"), False),
        (TOP.format(state="T", what="vim"), False),
        (GREP.format(state="T", word="stopped"), True),
        (GREP.format(state="S", word="sleeping"), False),
    ],
)
def test_a_training_process_that_a_table_shows_stopped_is_told(tmp_path: Path, text: str, told: bool) -> None:
    found = {one.hypothesis.cause: one for one in judged(tmp_path, {"gpu-n9.txt": text}).ranked}
    assert ("fw.rank_stopped" in found) is told
    if told:
        assert found["fw.rank_stopped"].hypothesis.subject.get("pid") == 70113
        assert found["fw.rank_stopped"].probability < 0.8, "which rank it is, nothing tells"


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ("> building document index and sample index on rank 0 ...", "fw.rank_busy"),
        ("Building extension module fused_adam...", "fw.rank_busy"),
        ("Building extension module fused_adam...\nLoading extension module fused_adam...", "unknown"),
        ("> building shuffle index\nstep 1 loss 2.0\nstep 2 loss 1.9", "unknown"),
    ],
)
def test_what_a_log_ends_in_while_the_others_wait_is_what_keeps_its_rank(tmp_path: Path, last: str, cause: str) -> None:
    log = last + "\n" + "".join(f"{waited(rank)}\n" for rank in range(1, 8))
    found = judged(tmp_path, {"o.log": log}).verdict.hypothesis
    assert (found.cause == "fw.rank_busy") is (cause == "fw.rank_busy")


def test_a_finished_run_ends_with_torchs_warning_and_its_last_step(tmp_path: Path) -> None:
    warns = "[rank0]:[W603 10:10:00.100 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not "
    warns += "called before program exit, which can leak resources.\n"

    def log(last: int) -> str:
        steps = (f"2025-06-03 10:0{at}:00,000 INFO step {at * 100}/900 loss 2.{at}\n" for at in range(last + 1))
        return "".join(steps) + warns

    assert judged(tmp_path / "a", {"o.log": log(9)}).verdict.hypothesis.cause == "none"
    assert judged(tmp_path / "b", {"o.log": log(7)}).verdict.hypothesis.cause == "unknown", "it ended too early"


def test_every_rank_that_waits_in_a_group_of_its_own_waits_in_a_circle(tmp_path: Path) -> None:
    def line(rank: int, group: str) -> str:
        told = waited(rank).replace("[Rank", f"[PG ID {group} PG GUID {group}(mesh) Rank", 1)
        status = f"[rank{rank}]:[E303 10:10:06.1 ProcessGroupNCCL.cpp:2168] [PG ID {group} PG GUID {group}(mesh) Rank "
        status += "0]  failure detected by watchdog at work sequence id: 1234 PG status: last enqueued work: 1240, "
        return f"{told}\n{status}last completed work: 1233\n"

    circle = "".join(line(rank, group) for rank, group in enumerate("3654"))
    assert judged(tmp_path / "a", {"o.log": circle}).verdict.hypothesis.cause == "fw.group_order_cycle"
    partly = "".join(line(rank, group) for rank, group in enumerate("3354"))
    causes = {one.hypothesis.cause for one in judged(tmp_path / "b", {"o.log": partly}).ranked}
    assert "fw.group_order_cycle" not in causes, "two wait in one group: it may be complete, and stand by itself"
