"""rank.process and rank.env beyond their recorded outputs: real processes in trouble, thresholds, hostile rows."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from probes import catalog, runner
from probes.catalog import rank_env, rank_process
from probes.catalog.ranks import sample
from probes.catalog.ranks.process_facts import Process, RankProcesses
from probes.core import Finding, ParseError
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.ranks import Processes, as_code, new_job, processes
from tests.support.ranks import rank_env as env_of
from tests.support.sshd_nodes import FrozenMount
from tests.support.wait import until

READY = "say('pid', os.getpid()); sleep()"
SPINS = "[None for _ in iter(int, 1)]"


@pytest.fixture
def started() -> Iterator[Processes]:
    with processes() as group:
        yield group


def ask(python: str = "") -> RankProcesses:
    capture = capture_here(rank_process.PROBE, *([python] if python else []))
    assert capture.outcome == "ok", capture.why
    return rank_process.parse(capture.text)


def of(found: RankProcesses, pid: int) -> Process:
    (process,) = [process for process in found.processes if process.pid == pid]
    return process


def about(found: RankProcesses, *pids: int) -> list[Finding]:
    return [finding for finding in rank_process.findings(found) if finding.subject.get("pid") in pids]


def state_of(pid: int) -> str:
    return runner.process_state(pid)[0]


# Real processes in trouble


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_a_rank_that_got_sigstop_is_stopped_and_its_neighbour_is_not(started: Processes, python: str) -> None:
    job = new_job()
    stopped, fine = (started.start(READY, env_of(rank, 2, job))[0] for rank in (0, 1))
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: state_of(stopped) == "T", 10, "the rank to stop")
    found = ask(python)
    assert (of(found, stopped).state_before, of(found, stopped).state) == ("T", "T")
    assert [(finding.code, dict(finding.subject)) for finding in about(found, stopped, fine)] == [
        ("rank.stopped", {"rank": 0, "pid": stopped})
    ]


def test_of_a_rank_that_is_stopped_with_its_workers_only_the_rank_is_told(started: Processes) -> None:
    pid, said = started.start("worker(); worker(); " + READY, env_of(0, 2, new_job()), 3)
    for one in (pid, *said["worker"]):
        os.kill(one, signal.SIGSTOP)
        until(lambda one=one: state_of(one) == "T", 10, "it to stop")
    assert [finding.subject["pid"] for finding in about(ask(), pid, *said["worker"])] == [pid]


def test_of_stopped_workers_one_speaks_for_all(started: Processes) -> None:
    pid, said = started.start("worker(); worker(); " + READY, env_of(0, 2, new_job()), 3)
    for one in said["worker"]:
        os.kill(one, signal.SIGSTOP)
        until(lambda one=one: state_of(one) == "T", 10, "it to stop")
    (finding,) = about(ask(), pid, *said["worker"])
    assert finding.code == "rank.stopped" and "a child of rank 0" in finding.says


def test_a_rank_in_the_hands_of_a_debugger_names_the_debugger(started: Processes) -> None:
    pid, _ = started.start(READY, env_of(0, 2, new_job()))
    attach = f"name('gdb'); libc.ptrace(16, {pid}, 0, 0); os.waitpid({pid}, 0); say('held', os.getpid()); sleep()"
    debugger, said = started.start(attach, {})
    found = ask()
    process = of(found, pid)
    assert (process.state, process.tracer_pid, process.tracer) == ("t", debugger, "gdb")
    assert [finding.code for finding in about(found, pid)] == ["rank.traced"]
    assert said["held"] == [debugger]


@pytest.mark.parametrize(("before", "found"), [(77, ["rank.observed"]), (0, []), (78, [])])
def test_a_tracer_counts_when_it_was_there_in_both_looks(before: int, found: list[str]) -> None:
    read = rank_process.parse(rows(status={"TracerPid": "77"}, tracer="strace", tracer_before=before))
    assert [finding.code for finding in rank_process.findings(read)] == found


@pytest.mark.needs_root
def test_a_killed_rank_whose_thread_cannot_end_keeps_its_number(started: Processes, tmp_path: Path) -> None:
    """Its main thread is a zombie and has no environment any more; the stuck thread has it still."""
    with FrozenMount(tmp_path) as frozen:
        write = f"open({str(frozen.mount)!r} + '/x', 'w')"
        code = f"threading.Thread(target=lambda: (name('saver'), {write}), daemon=True).start(); {READY}"
        pid, _ = started.start(code, env_of(1, 2, new_job()))
        until(lambda: "D" in [state_of(int(tid)) for tid in os.listdir(f"/proc/{pid}/task")], 10, "the thread to hang")
        os.kill(pid, signal.SIGKILL)
        until(lambda: state_of(pid) == "Z", 10, "the main thread to end")
        found = ask()
        frozen.thaw()
        started.end()
    assert [(finding.code, finding.subject["rank"]) for finding in about(found, pid)] == [
        ("rank.zombie", 1),
        ("rank.stuck", 1),
    ]


@pytest.mark.needs_root
def test_a_rank_and_a_worker_in_state_d_are_stuck_where_the_kernel_says(started: Processes, tmp_path: Path) -> None:
    with FrozenMount(tmp_path) as frozen:
        write = f"open({str(frozen.mount)!r} + '/x', 'w')"
        rank, said = started.start(f"worker(then=lambda: {write}); {READY}", env_of(0, 2, new_job()), 2)
        thread = f"threading.Thread(target=lambda: (name('saver'), {write}), daemon=True).start(); {READY}"
        other, _ = started.start(thread, env_of(1, 2, new_job()))
        (worker,) = said["worker"]
        until(lambda: state_of(worker) == "D", 10, "the worker to hang")
        os.kill(worker, signal.SIGKILL)
        until(
            lambda: "D" in [state_of(int(tid)) for tid in os.listdir(f"/proc/{other}/task")], 10, "the thread to hang"
        )
        found = ask()
        frozen.thaw()
        started.end()
    stuck = {finding.subject["pid"]: finding for finding in about(found, rank, worker, other)}
    assert sorted(stuck) == sorted([worker, other])
    assert all(finding.code == "rank.stuck" and "frozen file system" in finding.says for finding in stuck.values())
    assert "it was killed and cannot end" in stuck[worker].says
    assert "thread saver" in stuck[other].says and "killed" not in stuck[other].says
    assert of(found, worker).worker_of == rank and not of(found, rank).stuck


def test_a_rank_that_its_launcher_has_not_reaped_is_a_zombie(started: Processes) -> None:
    job = new_job()
    runs = ", ".join(f"run({READY!r}, env={as_code(env_of(rank, 2, job))})" for rank in (0, 1))
    _, said = started.start(f"kept = [{runs}]; sleep()", {}, 2)
    os.kill(said["pid"][0], signal.SIGKILL)
    until(lambda: state_of(said["pid"][0]) == "Z", 10, "the zombie")
    (finding,) = about(ask(), *said["pid"])
    assert (finding.code, finding.subject["pid"]) == ("rank.zombie", said["pid"][0])


def test_a_worker_that_spins_shows_its_use_and_a_rank_that_sleeps_shows_none(started: Processes) -> None:
    pid, said = started.start(f"worker(then=lambda: {SPINS}); {READY}", env_of(0, 2, new_job()), 2)
    found = ask()
    worker = of(found, said["worker"][0])
    assert worker.cpu_percent is not None and worker.run_delay_percent is not None
    assert 50 < worker.cpu_percent + worker.run_delay_percent < 130  # it runs, or waits for its turn
    assert of(found, pid).cpu_percent == 0.0
    assert found.interval_s is not None and 0.9 < found.interval_s < 3
    assert worker.rss_bytes and worker.threads_total == 1 and worker.threads[0].cpus_allowed


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU is everybody's")
def test_threads_of_a_rank_that_are_bound_to_one_cpu_and_wait_for_it_are_named(started: Processes) -> None:
    """Two of four would do to fill it. Compression lets other threads run: the interpreter's lock is not the reason."""
    code = f"""
import zlib
def work():
    os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})  # of this thread alone
    name('proxy')
    [zlib.compress(b'x' * 4000000) for _ in iter(int, 1)]
for number in range(4): threading.Thread(target=work, daemon=True).start()
while open('/proc/self/task/' + max(os.listdir('/proc/self/task'), key=int) + '/comm').read() != 'proxy\\n': pass
{READY}
"""
    pid, _ = started.start(code, env_of(0, 2, new_job()))
    capture = capture_here(rank_process.PROBE)
    (found,) = [
        one.hypothesis
        for one in diagnose([seen(catalog.read(capture))]).ranked
        if one.hypothesis.cause == "cpu.affinity_collision"
    ]
    assert "a thread of rank 0" in " ".join(reason.says for reason in found.because)
    assert found.signals == ("masks_collide",)
    assert {"proxy"} == {t.comm for t in of(rank_process.parse(capture.text), pid).threads if t.cpus_allowed == "0"}


def test_of_hundreds_of_threads_the_busy_one_is_told_and_the_others_are_counted(started: Processes) -> None:
    code = f"""
threading.stack_size(65536)
threading.Thread(target=lambda: (name('busy'), {SPINS}), daemon=True).start()
for number in range(600): thread('idle')
while len(os.listdir('/proc/self/task')) < 602: time.sleep(0.01)
{READY}
"""
    pid, _ = started.start(code, env_of(0, 2, new_job()))
    process = of(ask(), pid)
    assert process.threads_total == 602
    assert len(process.threads) <= sample.SHOWN_THREADS
    assert process.threads[0].tid == pid and "busy" in [thread.comm for thread in process.threads[:3]]
    counted = sum(group.count for group in process.other_threads)
    assert counted + len(process.threads) + process.threads_unread == 602
    assert process.threads_unread >= 602 - sample.MANY_THREADS


def test_a_rank_that_ends_while_it_is_looked_at_is_gone(started: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    job = new_job()
    pid, _ = started.start(READY, env_of(1, 2, job))
    scan = runner.rank_scan()

    def kill_it(_: float) -> None:
        started.end()

    monkeypatch.setattr(time, "sleep", kill_it)
    parts = sample.sample(scan, time.monotonic())
    monkeypatch.undo()
    found = rank_process.parse("".join(f"==> {name} <==\n{text}\n\n" for name, text in parts.items()))
    assert of(found, pid).gone
    assert [finding.code for finding in about(found, pid)] == ["rank.ended"]


def test_a_pid_that_was_used_again_is_not_taken_for_the_rank(started: Processes) -> None:
    pid, _ = started.start(READY, env_of(1, 2, new_job()))
    (row,) = [row for row in runner.ranks() if row["pid"] == pid]
    assert list(sample.look([row])) == [pid]
    assert sample.look([row | {"started": row["started"] - 1}]) == {}


@pytest.mark.needs_root
def test_a_rank_that_a_quota_holds_back_is_told_with_its_quota(started: Processes) -> None:
    old = Path("/sys/fs/cgroup/cpu")
    pid, _ = started.start(f"say('pid', os.getpid()); {SPINS}", env_of(0, 2, new_job()))
    group = (old if old.is_dir() else Path("/sys/fs/cgroup")) / f"golden15-test-{pid}"
    try:
        group.mkdir()
        name, limit = ("cpu.cfs_quota_us", "10000") if old.is_dir() else ("cpu.max", "10000 100000")
        (group / name).write_text(limit)
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"cannot run here: no cgroup with a CPU quota can be made ({error})")
    try:
        found = ask()
    finally:
        started.end()
        until(lambda: not group.rmdir(), 10, "the cgroup to be empty")
    (seen,) = [one for one in found.cgroups if one.folder == str(group)]
    assert seen.cpus == 0.1 and pid in seen.pids
    told = [finding for finding in rank_process.findings(found) if finding.subject.get("cgroup") == str(group)]
    assert [finding.code for finding in told] == ["rank.throttled"]


def test_a_thread_is_read_as_the_kernel_wrote_it(tmp_path: Path) -> None:
    """A stopped rank of torch 2.13, recorded on Linux 6.18: fields by their numbers in proc_pid_stat(5)."""
    stat = (
        "11657 (a) R (b) T 11104 11657 11657 0 -1 4194560 62097 0 3 0 236 27 0 0 20 0 13 0 103081 1062387712 "
        "77760 18446744073709551615 93950205120512 93950205120853 140736803764176 0 0 0 0 16781312 1258 0 "
        "0 0 17 1 0 0 0 0 0\n"
    )
    (tmp_path / "stat").write_text(stat)
    (tmp_path / "wchan").write_text("do_signal_stop")
    (tmp_path / "schedstat").write_text("2602602736 18262681706 1168\n")
    switches = "voluntary_ctxt_switches:\t86\nnonvoluntary_ctxt_switches:\t1082\n"
    (tmp_path / "status").write_text(f"Name:\tpython3.11\nCpus_allowed_list:\t0-1\n{switches}")
    seen = sample.thread(str(tmp_path))
    assert seen is not None
    assert (seen["comm"], seen["state"], seen["wchan"]) == ("a) R (b", "T", "do_signal_stop")
    assert (seen["user"], seen["system"], seen["major"], seen["started"], seen["last_cpu"]) == (236, 27, 3, 103081, 1)
    assert (seen["delay"], seen["voluntary"], seen["involuntary"]) == (18262681706, 86, 1082)
    assert seen["cpus"] == "0-1"


# Rows that were tampered with


def rows(**changed: Any) -> str:
    look = {
        "comm": "python",
        "state": "S",
        "wchan": "",
        "major": 0,
        "user": 1,
        "system": 1,
        "started": 5,
        "last_cpu": 0,
    }
    look |= {"delay": 0, "voluntary": 0, "involuntary": 0, "cpus": "0"}
    row = {"pid": 5, "rank": 0, "world_size": 2, "run_id": None, "worker_of": None, "comm": "python", "state": "S"}
    row |= {"status": {}, "at": [1.0, 2.0], "looks": [look, look], "threads": [], "others": [], "unread": 0}
    row |= {"tracer": "", "oom_score": None, **changed}
    about = '{"hz": 100, "denied": 0, "left_out": 0}'
    return f"==> golden15/samples <==\n{about}\n\n==> golden15/processes <==\n{json.dumps(row)}\n"


def test_a_plain_row_is_read() -> None:
    assert rank_process.parse(rows()).processes[0].cpu_percent == 0.0


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"pid": 2**70}, "whole number as pid"),
        ({"rank": True}, "whole number as rank"),
        ({"at": [2.0, 1.0]}, "two times in order"),
        ({"at": [1.0]}, "two times as at"),
        ({"at": [1.0, float("inf")]}, "expected a number as at"),
        ({"looks": [{}, {}]}, "as user"),
        ({"looks": ["x", {}]}, "two objects as looks"),
        ({"status": []}, "an object as status"),
        ({"status": {"SigPnd": "zz"}}, "mask in hexadecimal"),
        ({"threads": {}}, "objects as threads"),
        ({"others": [{"comm": 1}]}, "a text as comm"),
        ({"comm": None, "at": None}, "a text as comm"),
    ],
)
def test_a_row_that_the_collector_cannot_write_is_an_error(changed: Mapping[str, Any], error: str) -> None:
    with pytest.raises(ParseError, match=error):
        rank_process.parse(rows(**changed))


# Variables


def env_rows(*envs: Mapping[str, str], containers: bool = False) -> str:
    told = []
    for rank, env in enumerate(envs):
        row = {"pid": 100 + rank, "ppid": 9, "rank": rank, "world_size": len(envs), "local_rank": rank, "run_id": "a"}
        row |= {"slurm_job": None, "master": None, "ns_pids": [100 + rank, 7] if containers else [100 + rank]}
        told.append(json.dumps(row | {"env": dict(env)}))
    about = '{"denied": 0, "unread": 0, "left_out": 0}'
    return f"==> golden15/scan <==\n{about}\n\n==> golden15/ranks <==\n" + "\n".join(told)


def judged(*envs: Mapping[str, str], containers: bool = False) -> list[tuple[str, str]]:
    read = rank_env.parse(env_rows(*envs, containers=containers))
    return [(finding.code, finding.severity) for finding in rank_env.findings(read)]


def test_what_all_ranks_share_is_told_once_and_what_is_their_own_by_each() -> None:
    (job,) = rank_env.parse(env_rows({"RANK": "0", "NCCL_DEBUG": "INFO"}, {"RANK": "1", "NCCL_DEBUG": "INFO"})).jobs
    assert job.shared == {"NCCL_DEBUG": "INFO"}
    assert [rank.own for rank in job.ranks] == [{"RANK": "0"}, {"RANK": "1"}]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NCCL_ALGO", [("rank.env_differs", "warn")]),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", [("rank.env_differs", "warn")]),
        ("NCCL_IB_HCA", [("rank.env_differs", "info")]),
        ("NCCL_DEBUG_FILE", []),
        ("TORCHELASTIC_ERROR_FILE", []),
        ("LOCAL_RANK", []),
    ],
)
def test_a_value_that_differs_matters_where_ranks_need_the_same(name: str, found: list[tuple[str, str]]) -> None:
    assert judged({name: "1"}, {name: "2"}, {name: "1"}) == found
    assert judged({name: "1"}, {}, {name: "1"}) == found


def test_a_value_of_its_own_in_every_rank_was_set_on_purpose() -> None:
    assert judged({"UCX_TLS": "a"}, {"UCX_TLS": "b"}, {"UCX_TLS": "c"}) == [("rank.env_differs", "info")]


def test_the_rank_that_differs_is_named_not_those_that_agree() -> None:
    read = rank_env.parse(env_rows({"NCCL_PROTO": "LL"}, {"NCCL_PROTO": "Simple"}, {"NCCL_PROTO": "LL"}))
    (finding,) = rank_env.findings(read)
    assert finding.subject == {"variable": "NCCL_PROTO", "rank": 1}
    assert "'Simple' on rank 1; 'LL' on ranks 0, 2" in finding.says


def test_ranks_that_each_see_the_same_one_gpu_share_it() -> None:
    assert judged({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "0"}) == [("rank.gpu_shared", "bad")]
    assert judged({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}) == []
    assert judged({"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "0,1"}) == []
    assert judged({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "0"}, containers=True) == []


def test_the_three_probes_are_absent_where_nothing_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = {"ranks": [], "orphans": [], "unread": [], "denied": 0, "denied_python": 0, "seen": 9, "skipped": 0}
    monkeypatch.setattr(runner, "rank_scan", lambda: nothing)
    with pytest.raises(runner.Absent, match="none of 9 processes was started with RANK"):
        runner.need_ranks()
    monkeypatch.setitem(nothing, "denied_python", 2)
    with pytest.raises(runner.Denied, match="Allow: log in as root"):
        runner.need_ranks()
