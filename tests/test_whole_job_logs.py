"""Whole logs of jobs as frameworks write them: how a rank, a part of the work or the job ended, and what was usual.

Right values follow from the sources of Composer, Lightning, transformers, Megatron-LM, submitit, Ray, Flux and UCX,
from docker-ps(1), proc_pid_status(5), and from how py-spy 0.4.3 prints a stack.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.catalog.logs.phases import wait_ms
from probes.catalog.logs.read import read_log
from probes.catalog.stacks.text import stacks_of
from probes.diagnosis.core import Hypothesis
from probes.intake.rank_series import times_of_ranks
from tests.support import hardware

STEPS = "".join(f"2025-06-03 10:{at:02d}:00 | step {at} | loss 2.{at}\n" for at in range(9))


def judged(folder: Path, files: dict[str, str]) -> Hypothesis:
    return hardware.judged(folder, files).verdict.hypothesis


def timed_out(ranks: tuple[int, ...], limit_s: int = 600) -> str:
    return "".join(
        f"[rank{rank}]:[E603 10:14:07.10000{rank} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum=9000, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)={limit_s}000) "
        f"ran for {limit_s}03{rank} milliseconds before timing out.\n"
        for rank in ranks
    )


def spied(pid: int, *frames: str, state: str = "active+gil") -> str:
    told = "".join(f"    {frame}\n" for frame in frames)
    head = f"Process {pid}: python sft.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
    return f'{head}Thread {pid} ({state}): "MainThread"\n{told}'


WAITS = ("all_reduce (torch/distributed/distributed_c10d.py:2501)", "step (sft.py:12)", "<module> (sft.py:40)")
ENDED = {
    "ERROR:composer.cli.launcher:Rank 3 crashed with exit code -11.": ("fw.rank_exited", {"rank": 3}),
    "ERROR:composer.cli.launcher:Rank 5 crashed with exit code 1.": ("fw.rank_exited", {"rank": 5}),
    "(raylet, ip=10.0.3.9) A worker died or was killed by an unexpected system error. Worker ID: 92 Worker IP address: "
    "10.0.3.9 Worker port: 10013 Worker PID: 991 Worker exit type: SYSTEM_ERROR": (
        "fw.rank_exited",
        {"node": "10.0.3.9"},
    ),
    "exiting program after receiving SIGTERM.": ("job.cancelled", {}),
    "Handling auto-requeue signal: 10\nrequeing job 88121...": ("job.cancelled", {}),
    "submitit WARNING (2025-06-03 10:11:12,001) - Caught signal SIGUSR2 on n12: this job is preempted.": (
        "job.cancelled",
        {},
    ),
    "2025-06-03T10:11:12.331Z job.exception type=cancel severity=0 interrupted by ctrl-C": ("job.cancelled", {}),
    "2025-06-03 10:11:12,001 INFO Received cancellation request from user. Canceling the job.": ("job.cancelled", {}),
    "AssertionError: Rank 21: found NaN in local forward loss calculation. Device: 5, node: n3": (
        "fw.nan_gradient",
        {"rank": 21},
    ),
    "ValueError: The loss returned in `training_step` is nan.": ("fw.nan_gradient", {}),
}


@pytest.mark.parametrize("line", ENDED)
def test_what_a_framework_writes_of_the_end_of_its_job_names_the_cause(tmp_path: Path, line: str) -> None:
    cause, subject = ENDED[line]
    said = judged(tmp_path, {"train.log": f"{STEPS}{line}\n"})
    assert said.cause == cause and subject.items() <= dict(said.subject).items()


def test_the_same_words_before_more_steps_are_of_an_earlier_run(tmp_path: Path) -> None:
    resumed = f"previous run was cancelled by user, resuming\n{STEPS}"
    assert judged(tmp_path, {"train.log": resumed}).cause in ("unknown", "none")


def test_an_exception_at_the_end_of_a_log_without_ranks_is_that_of_one_of_them(tmp_path: Path) -> None:
    raised = 'Traceback (most recent call last):\n  File "/w/collate.py", line 33, in pad\nValueError: length 511\n'
    assert judged(tmp_path / "end", {"train.log": STEPS + raised}).cause == "fw.rank_exited"
    later = STEPS.replace("10:0", "11:0").replace("step ", "step 1")
    assert judged(tmp_path / "caught", {"train.log": STEPS + raised + later}).cause in ("unknown", "none")


def test_a_backtrace_of_ucx_that_begins_in_nccl_is_a_crash_of_the_library(tmp_path: Path) -> None:
    log = "".join(f"12: {line}\n" for line in (
        "[gn-4:33121:0:33990] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
        "==== backtrace (tid:  33990) ====", " 0 0x0000000000042520 __sigaction()  ???:0",
        " 1 0x000000000006c1f1 ncclProxyProgress()  /build/src/proxy.cc:882",
    ))  # fmt: skip
    other = "".join(f"3: step {at} loss 2.0\n" for at in range(5))
    assert judged(tmp_path, {"slurm.out": other + log}).cause == "nccl.library_fault"


TOOK = {
    "val mAP 0.371 took 117 s": 117_000,
    "Evaluation done in 1712.4 seconds": 1_712_400,
    "{'eval_loss': 1.2, 'eval_runtime': 812.3, 'epoch': 3.0}": 812_300,
    "reward gather 21.8s": 21_800,
    "val 248/3040": None,
    "interval 5 took 3 s": None,
    "evaluating in 4 s/batch": None,
}


@pytest.mark.parametrize("line", TOOK)
def test_how_long_an_evaluation_took_is_read_in_the_words_of_its_log(line: str) -> None:
    assert wait_ms(line) == TOOK[line]


def test_an_evaluation_that_nearly_took_the_limit_before_shows_that_the_limit_is_short(tmp_path: Path) -> None:
    before = "".join(f"{{'eval_loss': 1.1, 'eval_runtime': {540 + 12 * at}.3, 'epoch': {at}.0}}\n" for at in range(5))
    said = judged(tmp_path / "long", {"train.log": before + timed_out((1, 2, 3))})
    assert said.cause == "fw.timeout_too_short"
    short = before.replace("'eval_runtime': 5", "'eval_runtime': ")
    assert judged(tmp_path / "short", {"train.log": short + timed_out((1, 2, 3))}).cause != "fw.timeout_too_short"


def test_one_that_still_counted_at_the_limit_is_told_as_too_short_a_limit_not_as_a_rank_that_is_late(
    tmp_path: Path,
) -> None:
    log = "".join(f"val took {at} s\n" for at in (99, 108, 113)) + "val 2729/3040\n" + timed_out((1, 2, 3), 120)
    assert judged(tmp_path, {"train.log": log}).cause == "fw.timeout_too_short"
    never = "val 2729/3040\n" + timed_out((1, 2, 3), 120)
    assert judged(tmp_path / "never", {"train.log": never}).cause == "fw.rank_busy"


def test_a_configuration_that_transformers_saved_is_the_beginning_of_a_checkpoint(tmp_path: Path) -> None:
    saves = "Saving model checkpoint to ./out/checkpoint-500\nConfiguration saved in ./out/checkpoint-500/config.json\n"
    assert judged(tmp_path, {"train.log": STEPS + saves + timed_out((1, 2, 3))}).cause == "fw.checkpoint_stall"


def test_index_files_that_megatron_builds_keep_the_others_waiting(tmp_path: Path) -> None:
    log = "INFO:megatron.core.datasets.gpt_dataset:Build and save the GPTDataset train indices\n" + timed_out((1, 2, 3))
    said = judged(tmp_path, {"train.log": log})
    assert (said.cause, said.subject.get("rank")) == ("fw.rank_busy", 0)


def test_a_rank_whose_functions_say_that_it_tokenises_is_busy(tmp_path: Path) -> None:
    paste = "$ py-spy dump --pid 811   # rank 0\n" + spied(811, *WAITS, state="idle")
    paste += "$ py-spy dump --pid 812   # rank 1\n" + spied(812, "encode (bpe.py:9)", "tokenize_shard (sft.py:31)")
    paste += "$ py-spy dump --pid 813   # rank 2\n" + spied(813, *WAITS, state="idle")
    paste += "# rank 1 once more, a minute later\n" + spied(812, "merge (bpe.py:17)", "tokenize_shard (sft.py:31)")
    said = judged(tmp_path, {"paste.txt": paste})
    assert (said.cause, said.subject.get("rank")) == ("fw.rank_busy", 1)


def test_looks_of_py_spy_without_their_first_lines_are_stacks(tmp_path: Path) -> None:
    looks = "".join(
        f'# 10:0{at}\nThread 7001 (active+gil): "MainThread"\n    {frame}\n    validate (val.py:88)\n\n'
        for at, frame in enumerate(("decode (val.py:41)", "match (val.py:63)"))
    )
    assert [(one.pid, one.main.frames[0].line) for one in stacks_of(looks) if one.main] == [(7001, 41), (7001, 63)]
    found = hardware.bring(tmp_path, {"rank0_stack.txt": f"# twice\n{looks}"})
    assert not found.unread and "rank.stack" in {reading.capture.probe for _, reading in found.readings}


STOPPED = {
    "jobs -l": "[1]+ 40113 Angehalten (Signal)     python -u train.py --rank 1 > r1.log\n",
    "grep State /proc/40113/status": "State:\tT (stopped)\n",
    "docker ps": "CONTAINER ID   IMAGE   COMMAND   CREATED   STATUS   PORTS   NAMES\n"
    '91bb02a71c33   reg/llm:24   "/opt/run"   3 hours ago   Up 3 hours (Paused)             train-1\n',
}


@pytest.mark.parametrize("command", STOPPED)
def test_a_stopped_process_or_container_is_told_by_whatever_lists_it(tmp_path: Path, command: str) -> None:
    said = judged(tmp_path / "bad", {"paste.txt": f"root@gn-3:~# {command}\n{STOPPED[command]}"})
    assert (said.cause, said.subject.get("node")) == ("fw.rank_stopped", "gn-3")
    runs = STOPPED[command].replace("Angehalten (Signal)", "Läuft").replace("T (stopped)", "S (sleeping)")
    healthy = {"paste.txt": f"root@gn-3:~# {command}\n{runs.replace(' (Paused)', '')}"}
    assert judged(tmp_path / "good", healthy).cause in ("unknown", "none")


def test_the_environment_of_a_stopped_process_tells_which_rank_it_is(tmp_path: Path) -> None:
    paste = "root@gn-3:~# grep -E 'Name|State|Tgid|TracerPid' /proc/441/status\n"
    paste += "Name:\tpython\nState:\tt (tracing stop)\nTgid:\t441\nTracerPid:\t510\n"
    paste += "root@gn-3:~# tr '\\0' '\\n' < /proc/441/environ\nRANK=9\nLOCAL_RANK=1\nWORLD_SIZE=16\n"
    said = judged(tmp_path, {"paste.txt": paste})
    assert (said.cause, said.subject.get("rank")) == ("fw.rank_stopped", 9)


def test_a_job_of_kubernetes_that_ran_into_its_deadline_was_ended_by_it(tmp_path: Path) -> None:
    told = "Name:             sft\nNamespace:        train\nKind:             PyTorchJob\nStatus:\n  Conditions:\n"
    told += (
        "    Message:               PyTorchJob sft has failed because it was active longer than specified deadline\n"
    )
    told += "    Reason:                PyTorchJobFailed\n    Type:                  Failed\n"
    told += "Events:\n  Type    Reason     Age   From   Message\n"
    assert judged(tmp_path, {"describe.txt": told}).cause == "job.cancelled"


def test_times_that_monitoring_keeps_per_rank_are_times_of_steps(tmp_path: Path) -> None:
    rows = [("train_step_compute_seconds", 3.9, 2.1), ("train_step_comm_seconds", 0.1, 1.9)]
    text = "# TYPE train_step_compute_seconds gauge\n" + "".join(
        f'{name}{{rank="{rank}",host="a{rank // 4}"}} {slow if rank == 5 else usual}\n'
        for name, slow, usual in rows
        for rank in range(8)
    )
    first = json.loads(times_of_ranks(text).split("\n")[5])
    assert (first["rank"], first["host"], first["compute_s"]) == (5, "a1", 3.9)
    said = judged(tmp_path, {"step.prom": text})
    assert (said.cause, said.subject.get("rank")) == ("fw.rank_straggler", 5)
    even = text.replace("3.9\n", "2.1\n").replace("0.1\n", "1.9\n")
    assert judged(tmp_path / "even", {"step.prom": even}).cause in ("unknown", "none")
    assert times_of_ranks('dcgm_gpu_utilization{rank="0"} 3\ndcgm_gpu_utilization{rank="1"} 4\n') == ""


def test_the_progress_of_composer_is_read_and_its_nan_loss(tmp_path: Path) -> None:
    log = "".join(f"[batch={at}/50]:\n\t Train loss/train/total: {'nan' if at > 5 else 2.5}\n" for at in range(1, 12))
    steps = [one for one in read_log(log)[0] if one.kind == "progress"]
    assert steps[-1].seq == 11
    assert judged(tmp_path, {"train.log": log}).cause == "fw.nan_gradient"


def test_of_two_ranks_the_one_for_which_the_other_waits_is_slow(tmp_path: Path) -> None:
    def logs(first_waits: float, second_waits: float) -> dict[str, str]:
        times = ((1.02, first_waits), (2.88, second_waits))
        return {
            f"rank{rank}.log": "".join(
                f"[rank{rank}] step {at} fwd_bwd {own}s allreduce {wait}s total {own + wait:.2f}s\n" for at in range(9)
            )
            for rank, (own, wait) in enumerate(times)
        }

    said = judged(tmp_path / "a", logs(1.91, 0.05))
    assert (said.cause, said.subject.get("rank")) == ("fw.rank_straggler", 1)
    assert judged(tmp_path / "b", logs(0.05, 0.05)).cause in ("unknown", "none"), "nobody waits for it"


def test_a_stack_without_a_rank_is_that_of_the_one_rank_that_is_late_where_all_others_are_told(tmp_path: Path) -> None:
    saves = spied(811, "_save (torch/serialization.py:1230)", "save_state (ckpt.py:31)", "<module> (train.py:120)")
    paste = f"[kai@gn1 ~]$ sudo py-spy dump --pid 811\n{saves}"
    paste += "[kai@gn1 ~]$ sudo py-spy dump --pid 812  # rank 1\n" + spied(812, *WAITS, state="idle")
    paste += "[kai@gn1 ~]$ tail -3 train.log\n[rank0]: step 500 loss 2.0\n" + timed_out((1, 2, 3))
    said = judged(tmp_path, {"paste.txt": paste})
    assert (said.cause, said.subject.get("rank")) == ("fw.checkpoint_stall", 0)


def test_a_traceback_whose_head_was_cut_off_is_read_where_it_is_the_first_that_its_rank_wrote() -> None:
    cut = (
        '...\n[rank3]:   File "/w/ds.py", line 31, in item\n[rank3]:     x = load(p)\n[rank3]: ValueError: of size 12\n'
    )
    (raised,) = read_log(cut)[0]
    assert (raised.kind, raised.name, raised.rank, raised.where) == ("traceback", "ValueError", 3, "/w/ds.py:31")
    later = f"[rank3]: compiling, traced at\n{cut}"
    assert [one.kind for one in read_log(later)[0] if one.kind == "traceback"] == []


def test_a_loop_over_states_of_processes_names_the_one_that_is_stopped(tmp_path: Path) -> None:
    loop = 'root@gn5:~# for p in $(pgrep -f train.py); do echo -n "$p "; grep State /proc/$p/status; done\n'
    rows = "7001 State:\tS (sleeping)\n7002 State:\t{}\n7003 State:\tS (sleeping)\n"
    said = judged(tmp_path / "bad", {"paste.txt": loop + rows.format("T (stopped)")})
    assert (said.cause, said.subject.get("pid")) == ("fw.rank_stopped", 7002)
    assert judged(tmp_path / "good", {"paste.txt": loop + rows.format("R (running)")}).cause in ("unknown", "none")
