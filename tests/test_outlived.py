"""What the job has outlived: failures of an attempt before, and faults before it began. They must not lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import bring, judged, shares

FULL = "[rank5]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
MEGATRON = (
    " [2026-03-0{day} 0{hour}:{minute:02d}:00] iteration {step:8d}/  90000 | elapsed time per iteration (ms): 5210.4 |"
    " lm loss: 2.1E+00 | number of skipped iterations:   0 | number of nan iterations:   {nan} |"
)


def steps(day: int = 4, hour: int = 6, minutes: int = 10, nan: int = 0) -> str:
    return "".join(
        MEGATRON.format(day=day, hour=hour, minute=at, step=500 + at, nan=nan) + "\n" for at in range(minutes)
    )


def told(folder: Path, log: str, **more: str) -> dict[str, float]:
    files = {"pretrain.log": log} | {name.replace("_", "."): text for name, text in more.items()}
    return shares(judged(folder, files))


def test_a_trainers_log_is_read_without_any_line_of_torch_or_nccl(tmp_path: Path) -> None:
    found = bring(tmp_path, {"pretrain.log": steps()})
    assert [reading.capture.probe for _, reading in found.readings] == ["rank.log"]
    (event,) = found.readings[0][1].facts.logs[0].events
    assert (event.kind, event.seq, event.stamp, event.count) == ("progress", 509, "2026-03-04 06:09:00", 10)


def test_prose_about_steps_is_no_log(tmp_path: Path) -> None:
    found = bring(tmp_path, {"wiki.txt": "At step 3 we changed the rate.\nAt step 4 it hung.\nstep 5: gave up\n"})
    assert not found.readings


def test_out_of_memory_before_a_restart_of_which_the_steps_follow_in_the_log_does_not_lead(tmp_path: Path) -> None:
    log = steps(hour=3) + FULL + "\n" + steps(hour=6)
    assert "gpu.out_of_memory" not in told(tmp_path, log)


def test_out_of_memory_after_the_last_step_leads(tmp_path: Path) -> None:
    assert told(tmp_path, steps() + FULL + "\n")["gpu.out_of_memory"] > 0.9


def test_steps_that_were_under_way_when_a_rank_failed_are_no_restart(tmp_path: Path) -> None:
    """Rank 0 writes its line of the step that had ended; a rank's traceback comes unbuffered before it."""
    log = steps(minutes=9) + FULL + "\n" + steps(minutes=10).splitlines()[-1] + "\n"
    assert told(tmp_path, log)["gpu.out_of_memory"] > 0.9


def test_a_line_that_counts_no_nan_tells_of_none(tmp_path: Path) -> None:
    assert not bring(tmp_path / "a", {"pretrain.log": steps()}).readings[0][1].findings
    found = bring(tmp_path / "b", {"pretrain.log": steps(nan=3)}).readings[0][1].facts.logs[0].events
    assert {event.kind for event in found} == {"nan"}


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("NVRM: Xid (PCI:0000:2a:00): 31, pid=900, name=python, MMU Fault: ENGINE GRAPHICS", "gpu.app_fault"),
        ("Memory cgroup out of memory: Killed process 900 (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB,"
         " shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0", "host.memory_oom_kill"),
    ],
)  # fmt: skip
def test_of_the_kernels_lines_what_is_days_older_than_the_steps_does_not_lead(
    tmp_path: Path, line: str, cause: str
) -> None:
    old, new = f"[Sat Feb 28 03:00:00 2026] {line}\n", f"[Wed Mar  4 06:09:30 2026] {line}\n"
    assert told(tmp_path / "old", steps(), gpu7_dmesg=old).get(cause, 0.0) < 0.2
    assert told(tmp_path / "new", steps(), gpu7_dmesg=new)[cause] > 0.8


PS = "    PID    PPID STAT WCHAN                %CPU %MEM NLWP COMMAND\n" + "".join(
    f"   {70 + rank}      60 Sl   hrtimer_nanosleep    13.8  1.2   13 python -u train.py --rank {rank}\n"
    for rank in range(2)
)
KILLED = (
    "[Wed Mar  4 06:02:00 2026] Memory cgroup out of memory: Killed process {} (python3) total-vm:9kB, anon-rss:8kB,"
    " file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0\n"
)


def test_of_a_job_whose_ranks_are_all_there_none_was_killed(tmp_path: Path) -> None:
    logs = {f"rank{rank}.log": f"wolf:7{rank}:7{rank} [0] NCCL INFO comm 0x55 rank {rank} nranks 2 cudaDev 0"
            " busId 3b000 - Init COMPLETE\n" for rank in range(2)}  # fmt: skip
    files = logs | {"dmesg.txt": KILLED.format(55)}
    assert shares(judged(tmp_path / "gone", files))["host.memory_oom_kill"] > 0.9
    assert shares(judged(tmp_path / "there", files | {"ps.txt": PS})).get("host.memory_oom_kill", 0.0) < 0.8


FAILED = """train.py FAILED
Root Cause (first observed failure):
[0]:
  time      : 2026-03-04_{}
  host      : wolf1
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 444)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 444
"""


@pytest.mark.parametrize(("at", "same"), [("06:02:01", True), ("14:02:01", True), ("05:40:00", False)])
def test_a_kill_of_the_kernel_and_the_launchers_sigkill_are_one_thing(tmp_path: Path, at: str, same: bool) -> None:
    """In a container the launcher knows the rank by another pid; it may print another zone, but no other minute."""
    found = judged(tmp_path / "incident", {"out.log": FAILED.format(at), "wolf1/dmesg": KILLED.format(9055)})
    first = found.verdict.hypothesis
    assert (first.cause == "host.memory_oom_kill" and first.subject.get("rank") == 3) is same
    assert not same or found.verdict.probability > 0.95
