"""A log of a job that hangs ends in steps too: what tells that all is well is a later look, or the end of the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.logs.events import LogEvent
from probes.diagnosis.last_words import unfinished_checkpoint
from probes.intake import read
from probes.intake.tools.training.looked import looks
from tests.support.hardware import judged

XID = "[Mon Jan  5 {at} 2026] NVRM: Xid (PCI:0000:0b:00): 94, pid=77, name=python3, Contained: SM (0x1)\n"


def log(*, last: int = 20, step_s: float = 10.0, took: str = "10.0") -> str:
    """Steps every ten seconds from 09:00:00."""
    rows = []
    for n in range(last):
        at = int(n * step_s)
        rows.append(f"2026-01-05 09:{at // 60:02d}:{at % 60:02d} trainer step {900 + n} loss 2.1 step_time {took}s")
    return "\n".join(rows) + "\n"


def said(folder: Path, files: dict[str, str]) -> tuple[str, float]:
    verdict = judged(folder, files).verdict
    return verdict.hypothesis.cause, verdict.probability


@pytest.mark.parametrize(
    "look",
    [
        "Mon Jan  5 09:03:25 UTC 2026\n",
        "Mon  5 Jan 09:03:25 UTC 2026\n",
        "Mon Jan  5 09:03:25 AM UTC 2026\n",
        "Every 2.0s: nvidia-smi    gn-1: Mon Jan  5 09:03:25 2026\n",
        "--- 09:03:25 UTC kubectl -n t exec gn-1 -- nvidia-smi dmon -c 1\n",
        " 09:03:25 up 40 days,  2:11,  1 user,  load average: 4.00, 4.00, 4.00\n",
        "======== Autoscaler status: 2026-01-05 09:03:25.113402 ========\n",
        "Timestamp                                 : Mon Jan  5 09:03:25 2026\n",
        "timestamp, index, utilization.gpu [%]\n2026/01/05 09:03:25.000, 0, 100 %\n",
    ],
)
def test_steps_up_to_the_last_look_say_that_the_job_goes_on_but_not_for_certain(tmp_path: Path, look: str) -> None:
    cause, share = said(tmp_path, {"train.log": log(), "look.txt": look})
    assert cause == "none" and share < 0.8


@pytest.mark.parametrize("line", ["ann 09:03: is it us?", "[09:03] ann: ours?", "Ann Lee  9:03 AM\nours?"])
def test_who_writes_in_a_chat_looked_at_that_minute_and_three_steps_with_their_time_tell_a_pace(
    tmp_path: Path, line: str
) -> None:
    tail = "".join(log().splitlines(keepends=True)[-3:])
    paste = f"{line}\n```\n$ tail -3 train.log\n{tail}```\n"
    assert said(tmp_path, {"chat.md": paste})[0] == "none"
    assert said(tmp_path / "later", {"chat.md": paste.replace("9:03", "9:43")})[0] == "unknown"
    assert said(tmp_path / "bare", {"chat.md": paste.replace("step_time 10.0s", "")})[0] == "unknown"


def test_steps_that_had_ended_long_before_the_look_say_nothing(tmp_path: Path) -> None:
    assert said(tmp_path, {"train.log": log(), "look.txt": "Mon Jan  5 09:40:00 UTC 2026\n"})[0] == "unknown"


def test_a_log_of_several_lines_a_second_that_ended_a_quarter_of_a_minute_before_the_look_says_nothing(
    tmp_path: Path,
) -> None:
    rows = "".join(f"2026-01-05 09:00:{n // 4:02d},{n % 4 * 250:03d} trainer step {n} loss 2.1\n" for n in range(120))
    assert said(tmp_path, {"train.log": rows, "look.txt": "Mon Jan  5 09:00:31 UTC 2026\n"})[0] == "none"
    assert said(tmp_path / "b", {"train.log": rows, "look.txt": "Mon Jan  5 09:00:45 UTC 2026\n"})[0] == "unknown"


def test_steps_alone_say_nothing(tmp_path: Path) -> None:
    assert said(tmp_path, {"train.log": log()})[0] == "unknown"


def test_steps_that_take_longer_than_they_did_are_no_sign_that_all_is_well(tmp_path: Path) -> None:
    slow = log() + "2026-01-05 09:03:40 trainer step 920 loss 2.1 step_time 19.0s\n"
    assert said(tmp_path, {"train.log": slow, "look.txt": "Mon Jan  5 09:03:45 UTC 2026\n"})[0] == "unknown"


def test_a_fault_of_minutes_before_the_newest_step_did_not_stop_the_job(tmp_path: Path) -> None:
    files = {
        "train.log": log(last=60),
        "gn-1/dmesg.txt": XID.format(at="09:01:00"),
        "gn-1/date.txt": "Mon Jan  5 09:09:55 UTC 2026\n",
    }
    assert said(tmp_path, files)[0] == "none"


OOM = "[Mon Jan  5 {at} 2026] Out of memory: Killed process 88 (node) total-vm:9kB, anon-rss:9999kB, UID:1002\n"
STEPPED = "Jan  4 22:10:07 gn-1 chronyd[812]: System clock wrong by 7199.610233 seconds\n"


@pytest.mark.parametrize(
    ("before", "steps", "cause"),
    [
        ({"login-2.dmesg": OOM.format(at="09:01:00")}, log(last=59, step_s=60.0), "none"),
        ({"boot.txt": STEPPED}, log(last=59, step_s=60.0), "none"),
        ({"login-2.dmesg": OOM.format(at="09:40:00")}, log(last=59, step_s=60.0), "unknown"),  # not long ago
        ({"login-2.dmesg": OOM.format(at="09:01:00")}, log(last=9, step_s=360.0), "unknown"),  # of no known pace
        ({"login-2.dmesg": OOM.format(at="09:01:00"), "look.txt": "Mon Jan  5 11:00:00 UTC 2026\n"},
         log(last=59, step_s=60.0), "unknown"),  # no step for an hour
    ],
)  # fmt: skip
def test_what_a_job_outlived_by_many_steps_is_no_cause_and_all_is_probably_well(
    tmp_path: Path, before: dict[str, str], steps: str, cause: str
) -> None:
    found, share = said(tmp_path, {**before, "train.log": steps})
    assert found == cause and share < 0.8


def test_the_same_fault_counts_where_no_look_tells_that_steps_go_on(tmp_path: Path) -> None:
    files = {"train.log": log(last=60), "gn-1/dmesg.txt": XID.format(at="09:09:52")}
    assert said(tmp_path, files)[0] == "gpu.memory_error"


def test_a_job_that_wrote_of_its_end_had_ended_its_work(tmp_path: Path) -> None:
    done = log() + (
        "Training completed in 3 h\n"
        "[rank3]:[W105 09:03:31.118839201 TCPStore.cpp:131] [c10d] recvValue failed on SocketImpl(fd=61, "
        "addr=[a]:52266, remote=[b]:29400): failed to recv, got 0 bytes\n"
    )
    cause, share = said(tmp_path, {"train.log": done})
    assert cause == "none" and share < 0.8


def test_a_run_that_began_after_that_end_or_failed_had_not(tmp_path: Path) -> None:
    again = "Training completed in 3 h\n" + log()
    assert said(tmp_path / "again", {"train.log": again})[0] == "unknown"
    failed = (
        log()
        + "Training completed in 3 h\n"
        + 'Traceback (most recent call last):\n  File "t.py", line 3\nKeyError: 7\n'
    )
    assert said(tmp_path / "failed", {"train.log": failed})[0] != "none"


@pytest.mark.parametrize("word", ["done", "Done.", "finished", "all done"])
def test_the_last_word_of_every_rank_after_its_last_step_is_an_end(tmp_path: Path, word: str) -> None:
    steps = [f"2026-01-05 09:00:{n:02d} [r{rank}] step {n} loss 2.1" for n in range(8) for rank in (0, 1)]
    ends = [f"2026-01-05 09:00:09 [r{rank}] {word}" for rank in (0, 1)]
    assert said(tmp_path / "both", {"job.log": "\n".join(steps + ends)})[0] == "none"
    assert said(tmp_path / "one", {"job.log": "\n".join(steps + ends[:1])})[0] != "none", "the other may hang"
    first = [f"2026-01-05 09:00:00 [r{rank}] {word}" for rank in (0, 1)]
    assert said(tmp_path / "before", {"job.log": "\n".join(first + steps)})[0] != "none", "of loading, say"


def test_an_exit_status_of_zero_behind_the_word_is_an_end(tmp_path: Path) -> None:
    end = "2026-01-05 09:04:00 finished, best acc 0.780 (exit {})\n"
    assert said(tmp_path / "well", {"run.log": log() + end.format(0)})[0] == "none"
    assert said(tmp_path / "not", {"run.log": log() + end.format(1)})[0] != "none"


def test_a_log_that_had_ended_a_day_before_this_job_is_of_another_run(tmp_path: Path) -> None:
    old = "2026-01-02 08:00:00 trainer step 1 loss 3\ntorch.OutOfMemoryError: CUDA out of memory.\n"
    assert said(tmp_path, {"train.log": log(), "before.log": old})[0] == "unknown"


def test_a_kernel_line_of_months_before_the_look_leads_to_nothing(tmp_path: Path) -> None:
    links = (
        "[Tue Aug  5 09:11:40 2025] mlx5_core 0000:37:00.0 ens1np0: Link down\n"
        "[Tue Aug  5 09:12:02 2025] mlx5_core 0000:37:00.0 ens1np0: Link up\n"
        "[Tue Aug  5 09:13:40 2025] mlx5_core 0000:37:00.0 ens1np0: Link down\n"
        "[Tue Aug  5 09:14:02 2025] mlx5_core 0000:37:00.0 ens1np0: Link up\n"
    )
    assert said(tmp_path, {"gn-1/dmesg.txt": links, "gn-1/date.txt": "Mon Jan  5 09:09:55 UTC 2026\n"})[0] == "unknown"
    links = links.replace("Tue Aug  5", "Mon Jan  5").replace("2025", "2026").replace("09:1", "08:1")
    found = said(tmp_path / "b", {"gn-1/dmesg.txt": links, "gn-1/date.txt": "Mon Jan  5 09:09:55 UTC 2026\n"})
    assert found[0] == "ib.link_flapping"


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-05 09:03:25 trainer step 3",
        "[Mon Jan  5 09:03:25 2026] NVRM: loaded",
        "Jan 05 09:03:25 gn-1 kernel: x",
        "# Idx      W      C      C      %",
        "Epoch 3: 10/20 [05:41:10<02:18:44]",
        "Mon Jan 99 09:03:25 UTC 2026",
        "Ref time (UTC)  : Tue Jun 17 12:03:41 2025",
    ],
)
def test_times_of_log_lines_are_no_looks(line: str) -> None:
    assert looks(line + "\n") is None


OTHER = "[Mon Jan  5 09:00:00 2026] NVRM: Xid (PCI:0000:0b:00): 31, pid=77, name={name}, Ch 00000017, MMU Fault\n"


@pytest.mark.parametrize(("name", "leads"), [("python3", True), ("pt_main_thread", True), ("blender", False)])
def test_a_fault_of_a_program_that_trains_nothing_does_not_lead(tmp_path: Path, name: str, leads: bool) -> None:
    cause, share = said(tmp_path, {"gn-1/dmesg.txt": OTHER.format(name=name)})
    assert (cause == "gpu.app_fault" and share >= 0.8) is leads


EVENTS = (
    "LAST SEEN   TYPE      REASON                 OBJECT             MESSAGE\n"
    "4m34s       Normal    TaintManagerEviction   pod/t-worker-1     Marking for deletion Pod train/t-worker-1\n"
)


def test_a_pod_that_a_lost_node_takes_with_it_was_not_cancelled_by_anybody(tmp_path: Path) -> None:
    cause, share = said(tmp_path, {"events.txt": EVENTS})
    assert cause == "unknown" or share < 0.8


def test_a_remark_above_an_output_hides_nothing(tmp_path: Path) -> None:
    csv = "# 09:12:43 5 Jan\nindex, utilization.gpu [%], power.draw [W]\n0, 99 %, 610.00 W\n1, 99 %, 600.00 W\n"
    (tmp_path / "gpu-1.csv").write_text(csv)
    (state,) = [one for _, one in read([tmp_path]).readings if one.capture.probe == "gpu.state"]
    assert [gpu.power_w for gpu in state.facts.gpus] == [610.0, 600.0]


def test_an_old_fault_counts_little_where_only_lines_above_an_error_tell_the_time_of_the_job(tmp_path: Path) -> None:
    log = "[2026-03-05 09:14:20,118] torch.distributed.run: [WARNING] x\nRuntimeError: No CUDA GPUs are available\n"
    old = XID.format(at="09:00:00").replace("94", "31")
    found = judged(tmp_path, {"gn-1/dmesg.txt": old, "job.log": log + "CUDA error: unknown error\n"})
    assert found.verdict.hypothesis.cause != "gpu.app_fault" or not found.verdict.hypothesis.subject.get("bus_id")


SAVES = (
    " 0: [2025-03-02 04:00:02] step 900 done, saving full state dict\n"
    "{1}: [rank{1}]:[E302 04:30:41.7 ProcessGroupNCCL.cpp:632] [Rank {1}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800079 "
    "milliseconds before timing out.\n"
    "slurmstepd: error: *** STEP 881.0 ON n17 CANCELLED AT 2025-03-02T04:32:50 ***\n"
)


def test_a_step_that_is_done_does_not_end_the_checkpoint_that_begins_behind_it_nor_does_the_cancelling(
    tmp_path: Path,
) -> None:
    found = judged(tmp_path / "incident", {"job.log": SAVES.replace("{1}", "1")}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject["rank"]) == ("fw.checkpoint_stall", 0)


def test_a_checkpoint_that_is_done_was_not_being_written() -> None:
    texts = {
        "step 900 done, saving full state dict": True,
        "gather finished, torch.save -> /ckpt/900.pt": True,
        "finished saving checkpoint": False,
        "saved checkpoint in 41 s": False,
        "saving model checkpoint to ./out": True,
    }
    assert {text: unfinished_checkpoint(LogEvent("checkpoint", text)) for text in texts} == texts
