"""CPUs as people bring them: loops over processes, looks at a process of no known rank, alerts, settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.logs.timings import part_of
from probes.intake.commands import looped
from probes.intake.tools.host import pidstat, process_table
from tests.support.brought import told

LOAD = "[ml@n7 ~]$ uptime\n 14:02:11 up 41 days,  3:11,  2 users,  load average: {0}, {0}, {0}\n"


def test_a_loop_over_files_names_no_nodes(tmp_path: Path) -> None:
    loop = 'for f in cpu.max cpu.stat; do echo "-- $f"; cat /sys/fs/cgroup/job_8/$f; done'
    assert looped(loop) == {}
    body = "-- cpu.max\n200000 100000\n-- cpu.stat\nnr_periods 41233\nnr_throttled 40990\nthrottled_usec 3123\n"
    found = told(tmp_path, {"p.txt": f"[root@hgx3 ~]# {loop}\n{body}"})
    assert (found.cause, found.subject["node"]) == ("cpu.quota_throttled", "hgx3")


def test_an_alert_as_its_manager_sends_it_is_read(tmp_path: Path) -> None:
    alert = (
        '{"status":"firing","alerts":[{"labels":{"alertname":"CPUThrottlingHigh"},"annotations":{"description":'
        '"91.5% throttling of CPU in namespace ml for container main in pod dlrm-3."}}]}'
    )
    found = told(tmp_path, {"webhook.json": alert})
    assert (found.cause, found.subject["node"]) == ("cpu.quota_throttled", "dlrm-3")


def test_threads_counted_by_a_loop_over_the_job_s_processes(tmp_path: Path) -> None:
    loop = "for p in $(pgrep -f train.py); do echo $p $(ls /proc/$p/task | wc -l); done"
    rows = "".join(f"{pid} {{0}}\n" for pid in range(911, 919))
    shell = "[ml@n7 ~]$ nproc\n64\n" + LOAD + f"[ml@n7 ~]$ cat /proc/pressure/cpu\n{{1}}\n[ml@n7 ~]$ {loop}\n"
    pressed = "some avg10=93.12 avg60=93.90 avg300=81.12 total=812331223"
    calm = "some avg10=0.12 avg60=0.10 avg300=0.12 total=8123"
    many = told(
        tmp_path / "many", {"p.txt": (shell + rows.format(151)).replace("{1}", pressed).replace("{0}", "498.22")}
    )
    assert (many.cause, many.subject) == ("cpu.thread_oversubscription", {"node": "n7"})
    few = told(tmp_path / "few", {"p.txt": (shell + rows.format(7)).replace("{1}", calm).replace("{0}", "31.22")})
    assert few.cause in ("none", "unknown")


def test_a_rank_that_asks_for_all_cpus_beside_a_crowd_is_likely_and_not_certain(tmp_path: Path) -> None:
    env = "OMP_NUM_THREADS=96\nRANK=2\nLOCAL_RANK=2\nWORLD_SIZE=8\n"
    crowd = told(tmp_path / "crowd", {"env.txt": env, "p.txt": "[ml@n7 ~]$ nproc\n96\n" + LOAD.format("701.22")})
    assert crowd.cause == "cpu.thread_oversubscription" and crowd.probability < 0.8
    calm = told(tmp_path / "calm", {"env.txt": env, "p.txt": "[ml@n7 ~]$ nproc\n96\n" + LOAD.format("11.22")})
    assert calm.cause in ("none", "unknown")


def test_masks_of_a_loop_over_the_job_s_processes_are_the_job_s(tmp_path: Path) -> None:
    masks = "".join(f"pid {pid}'s current affinity list: 8-11\n" for pid in range(911, 917))
    head = "Average:     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n"
    row = "Average:      {:2d}   {:.2f}    0.00    0.00    0.00    0.00    0.00    0.00    0.00    0.00   {:.2f}\n"
    each = "".join(row.format(cpu, *((100, 0) if cpu in range(8, 12) else (1, 99))) for cpu in range(6, 14))
    loop = "for p in $(pgrep -f pretrain); do taskset -pc $p; done"
    shell = (
        f"[ml@n7 ~]$ nproc --all\n96\n[ml@n7 ~]$ {loop}\n{masks}[ml@n7 ~]$ mpstat -P 6-13 5 1 | grep Aver\n{head}{each}"
    )
    found = told(tmp_path, {"p.txt": shell})
    assert (found.cause, found.subject) == ("cpu.affinity_collision", {"node": "n7"})


DUMP = """Process 4120: python train.py
Python v3.11.9 (/opt/conda/bin/python3.11)

Thread 4120 (idle): "MainThread"
    {0}
Thread 4234 (active{1}): "AsyncCkpt"
    encode (ckpt/pack.py:112)
    run (threading.py:982)
"""


def test_looks_at_a_process_of_no_known_rank_tell_who_holds_its_lock(tmp_path: Path) -> None:
    def looks(main: str, gil: str) -> dict[str, str]:
        return {f"look{n}.txt": DUMP.format(main, gil) for n in range(4)}

    held = told(tmp_path / "held", looks("forward (model.py:12)", "+gil"))
    assert held.cause == "cpu.gil_contention" and "AsyncCkpt" in held.says
    assert told(tmp_path / "free", looks("forward (model.py:12)", "")).cause in ("none", "unknown")
    # Who waits for its device needs no lock, and a job that stands waits so too.
    away = "cuStreamSynchronize (libcuda.so.550)\n    item (train.py:12)"
    assert told(tmp_path / "away", looks(away, "+gil")).cause in ("none", "unknown")


def test_a_loader_that_timed_out_is_told_without_a_rank(tmp_path: Path) -> None:
    log = 'Traceback (most recent call last):\n  File "/w/train.py", line 211, in train\n    for batch in loader:\n'
    found = told(tmp_path, {"t.log": log + "RuntimeError: DataLoader timed out after 300 seconds\n"})
    assert found.cause == "cpu.dataloader_starved"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("train/data_time", "data"),
        ("perf/step_time", "total"),
        ("val/data", ""),
        ("data_time", "data"),
        ("a/b_time", ""),
    ],
)
def test_a_value_s_group_does_not_hide_what_it_is(name: str, part: str) -> None:
    assert part_of(name) == part


def test_a_command_for_many_nodes_that_was_copied_without_its_prompt(tmp_path: Path) -> None:
    rows = "".join(f"gx{n}: %CPU     PID USER     COMMAND\ngx{n}: 99.0    811{n} ml       python\n" for n in (1, 2, 3))
    rows += "gx4: %CPU     PID USER     COMMAND\ngx4: 4711    2011 root     rsync\ngx4: 41.2    5113 ml       python\n"
    pressed = "gx4: some avg10=82.12 avg60=80.90 avg300=81.12 total=812331223\n"
    typed = 'pdsh -w gx[1-4] "ps -eo pcpu,pid,user,comm --sort=-pcpu | head -3"\n'
    calm = "".join(f"gx{n}: some avg10=0.12 avg60=0.10 avg300=0.12 total=8123\n" for n in (1, 2, 3))
    found = told(tmp_path, {"ps.txt": typed + rows, "pressure.txt": calm + pressed})
    assert (found.cause, found.subject["node"]) == ("cpu.process_hotspot", "gx4")


def test_threads_whose_process_a_filter_took_away_count_by_themselves() -> None:
    head = "02:20:11      UID      TGID       TID    %usr %system  %guest   %wait    %CPU   CPU  Command\n"
    thread = "02:20:16     1000         -     91401   12.10    1.10    0.00   71.20   13.20     4  |__NCCL Progress 0\n"
    process = "02:20:16     1000     91400         -   12.10    1.10    0.00    1.20   99.20     4  python\n"
    assert [(one.pid, one.run_delay_percent) for one in pidstat.read(head + thread).processes] == [(91401, 71.2)]
    assert [one.pid for one in pidstat.read(head + process + thread).processes] == [91400]


def test_megatron_s_timer_of_the_batch_lies_within_the_one_around_it(tmp_path: Path) -> None:
    def log(batch: float) -> str:
        return "".join(
            f" iteration {k:8d}/ 500 | elapsed time per iteration (ms): 9812.4 | lm loss: 2.1E+00 |\n"
            "(min, max) time across ranks (ms):\n"
            "    forward-backward ...............................: (9101.22, 9302.11)\n"
            f"    batch-generator ................................: ({batch - 9}, {batch})\n"
            for k in range(1, 9)
        )

    assert told(tmp_path / "much", {"m.log": log(7422.1)}).cause == "cpu.dataloader_starved"
    assert told(tmp_path / "little", {"m.log": log(212.1)}).cause in ("none", "unknown")


def test_top_tells_how_many_tasks_run() -> None:
    text = (
        "top - 02:20:11 up 41 days,  3:11,  2 users,  load average: 201.22, 198.91, 120.20\n"
        "Tasks: 1811 total, 198 running, 1613 sleeping,   0 stopped,   0 zombie\n\n"
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
        " 881233 jdoe      20   0    8.2g   4.1g  11.2m R  9011   0.4   9211:12 gmx_mpi\n"
    )
    assert process_table.read(text).runnable == 198


@pytest.mark.parametrize(("state", "processor", "cause"), [
    ("R", 1, "cpu.affinity_collision"), ("S", 1, "unknown"), ("R", 40, "unknown"),
])  # fmt: skip
def test_threads_that_all_want_to_run_on_two_cpus_queue_for_them(
    tmp_path: Path, state: str, processor: int, cause: str
) -> None:
    rows = "".join(f" 4121 {5000 + n} {n % (processor + 1)} {state} pt_data_worker\n" for n in range(15))
    shell = f"[ml@n7 ~]$ nproc --all\n128\n[ml@n7 ~]$ ps -eLo pid,tid,psr,stat,comm | grep pt_\n{rows}"
    assert told(tmp_path, {"p.txt": shell}).cause == cause


@pytest.mark.parametrize(("last", "avg10", "cause"), [
    (1, 71.2, "cpu.affinity_collision"), (1, 3.1, "unknown"), (95, 71.2, "unknown"),
])  # fmt: skip
def test_ranks_heaped_on_two_cpus_under_pressure_collide(tmp_path: Path, last: int, avg10: float, cause: str) -> None:
    masks = "".join(f"pid {pid}'s current affinity list: 0-{last}\n" for pid in range(911, 919))
    psi = f"some avg10={avg10} avg60=70.11 avg300=68.02 total=8812210012\n"
    shell = f"[ml@n7 ~]$ nproc --all\n128\n[ml@n7 ~]$ for p in $(pgrep -f pretrain); do taskset -pc $p; done\n{masks}"
    assert told(tmp_path, {"p.txt": f"{shell}[ml@n7 ~]$ cat /proc/pressure/cpu\n{psi}"}).cause == cause


@pytest.mark.parametrize(("load", "sure"), [("766.20", True), ("151.20", False)])
def test_what_ranks_took_since_they_began_counts_below_a_very_high_load(tmp_path: Path, load: str, sure: bool) -> None:
    rows = "".join(f"  {4121 + n}  411 1180 python3 train.py --local_rank={n}\n" for n in range(8))
    shell = f"[ml@n7 ~]$ nproc\n96\n{LOAD.format(load)}[ml@n7 ~]$ ps -o pid,nlwp,pcpu,args -C python3\n"
    found = told(tmp_path, {"p.txt": f"{shell}    PID NLWP %CPU COMMAND\n{rows}"})
    assert (found.cause == "cpu.thread_oversubscription") == sure
