"""Hosts and CPUs as people bring them in a hurry: rows without a heading, loops, alerts without a name, two clouds."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.diagnosis.times import apart, local
from probes.intake.commands import looped
from probes.intake.tools.host import mpstat, pidstat
from tests.support.brought import told

STEPS = "".join(f"2026-03-11 09:{minute:02d}:10 step {minute} loss 2.1 step_time 55 s\n" for minute in range(10, 40))


# Rows without their heading -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "cpu", "wait"),
    [
        ("09:12:01 PM  1001  4711   80.00    5.00    0.00   41.50   85.00     7  blender -b scene.blend", 85.0, 41.5),
        ("09:12:01       root      4711   80,00    5,00    0,00   41,50   85,00     7  blender", 85.0, 41.5),
        ("Average:     1001      4711   80.00    5.00    0.00   85.00     -  blender", 85.0, None),
    ],
)
def test_rows_of_pidstat_are_known_by_their_shape(row: str, cpu: float, wait: float | None) -> None:
    text = f"{row}\n"
    assert pidstat.fits(text, "")
    (one,) = pidstat.read(text).processes
    assert (one.pid, one.comm, one.cpu_percent, one.run_delay_percent) == (4711, "blender", cpu, wait)


def test_a_row_of_mpstat_is_known_by_its_shape() -> None:
    text = "10:14:07     all   61.20    0.00    3.10    0.00    0.00    0.20    0.00    0.00    0.00   35.50\n"
    use = mpstat.read(text).cpu
    assert mpstat.TOOL.fits(text, "") and use is not None and (use.user, use.idle) == (61.2, 35.5)


def test_python_that_says_nothing_of_training_is_not_of_the_job_beside_one_that_does(tmp_path: Path) -> None:
    heavy = "".join(
        f"10:00:0{at}  2007  5{at}00  98.00  1.00  0.00  1.00  99.00  {at}  /opt/geo/bin/python tiles.py --all\n"
        for at in range(9)
    )
    mine = "10:00:00  1001  4000  44.00  5.00  0.00  47.00  49.00  3  python pretrain.py --gpus 1\n"
    found = told(
        tmp_path, {"who.txt": f"[an@gn-7 ~]$ nproc\n16\n[an@gn-7 ~]$ pidstat 5 1 -l | sort -k8\n{mine}{heavy}"}
    )
    assert found.cause == "cpu.process_hotspot" and found.subject["node"] == "gn-7"


# Loops of a shell -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "nodes"),
    [
        ('for p in 0 1; do echo "## llm-worker-$p"; kubectl exec x; done', {"llm-worker-0", "llm-worker-1"}),
        ("for i in $(seq 2 3); do echo == cn${i} ==; ssh cn$i nproc; done", {"cn2", "cn3"}),
        ('for i in {08..09}; do printf "gn-$i:\\n"; ssh gn-$i nproc; done', {"gn-08", "gn-09"}),
        ("for i in 1 2; do ssh cn$i nproc; done", set()),
        ('for h in a1 a2; do echo "# $h"; done', {"a1", "a2"}),
    ],
)  # fmt: skip
def test_a_loop_names_nodes_by_what_it_prints(typed: str, nodes: set[str]) -> None:
    assert set(looped(typed)) == nodes


def test_of_a_loop_over_numbers_each_turn_is_its_node_s(tmp_path: Path) -> None:
    turn = "## moe-{0}\n{1} 100000\nnr_periods {2}\nnr_throttled {3}\nthrottled_usec 1\n"
    loop = 'for n in 0 1; do echo "## moe-$n"; kubectl exec moe-$n -- cat /sys/fs/cgroup/cpu.stat; done'
    first = turn.format(0, 3200000, 1000, 0) + turn.format(1, 300000, 1000, 900)
    later = turn.format(0, 3200000, 1600, 0) + turn.format(1, 300000, 1600, 1480)
    found = told(tmp_path, {"shell.txt": f"me@laptop:~$ {loop}\n{first}me@laptop:~$ sleep 60; {loop}\n{later}"})
    assert (found.cause, found.subject) == ("cpu.quota_throttled", {"node": "moe-1"})


# Clocks, clouds, alerts -----------------------------------------------------------------------------------------------


def test_a_clock_far_off_explains_a_rendezvous_that_failed_on_another_node(tmp_path: Path) -> None:
    lost = (
        "[2026-03-11 09:20:21,440] torch.distributed.elastic.rendezvous.dynamic_rendezvous: [DEBUG] As part of the "
        "sync operation the node(s) 'cn1_77_0', 'cn3_78_0' have been removed from the rendezvous 'r' since they had "
        "no heartbeat.\n"
    )
    clocks = "cn1: 1773220000.1\ncn2: 1773220041.3\ncn3: 1773220000.2\n"
    files = {
        "cn2.log": lost,
        "cn1.log": "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n",
        "clocks.txt": f"$ pdsh -w cn[1-3] date +%s.%N\n{clocks}",
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("host.clock_offset", {"node": "cn2"}) and found.probability > 0.9


def audit(machine: str, at: str) -> str:
    return (
        '{"protoPayload": {"methodName": "compute.instances.preempted", "resourceName": '
        f'"projects/p/zones/z/instances/{machine}"}}, "timestamp": "{at}"}}'
    )


def test_a_machine_of_the_job_s_group_that_was_taken_is_named_and_one_taken_weeks_before_is_not(tmp_path: Path) -> None:
    told_of = f"[{audit('gpu-mig-b7zk', '2026-03-11T09:39:30Z')},{audit('gpu-mig-q1xx', '2026-02-01T09:00:00Z')}]"
    found = told(tmp_path, {"gpu-mig-4rjt/train.log": STEPS, "logging.json": told_of})
    assert (found.cause, found.subject) == ("host.rebooted", {"node": "gpu-mig-b7zk"})
    early = f"[{audit('gpu-mig-q1xx', '2026-02-01T09:00:00Z')}]"
    found = told(tmp_path / "early", {"gpu-mig-4rjt/train.log": STEPS, "logging.json": early})
    assert found.cause in ("none", "unknown")


def test_an_alert_that_names_no_process_accuses_nobody_where_the_kernel_killed_an_agent(tmp_path: Path) -> None:
    kernel = (
        "Mar 11 09:30:05 gn-4 kernel: Memory cgroup out of memory: Killed process 912 ({}) total-vm:99kB, "
        "anon-rss:9kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:9kB oom_score_adj:992\n"
    )
    alert = "alert: OOMKilled on gn-4\n"
    agent = told(tmp_path / "agent", {"alert.txt": alert, "gn-4.dmesg": kernel.format("fluent-bit"), "r0.log": STEPS})
    assert agent.cause in ("none", "unknown")
    mine = told(tmp_path / "mine", {"alert.txt": alert, "gn-4.dmesg": kernel.format("pt_main_thread")})
    assert mine.cause == "host.memory_oom_kill"


def test_december_lies_before_february_where_no_year_is_told() -> None:
    december, february = local("Dec 20 09:40:02"), local("2026-02-04 14:00:00")
    assert (
        december is not None
        and february is not None
        and apart(february, december) == pytest.approx(46.18 * 86_400, rel=1e-3)
    )


# Room and memory ------------------------------------------------------------------------------------------------------

CUT = (
    "[rank2]: RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 911 vs 800\n"
    '[rank2]:   File "/w/run.py", line 9, in save\n'
)
DF = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/md1        7.0T  7.0T     {} /ckpt\n"


def test_a_checkpoint_that_was_cut_off_is_of_a_full_disk_where_one_is_full(tmp_path: Path) -> None:
    full = told(tmp_path / "full", {"r2.log": STEPS + CUT, "df.txt": f"[a@gn-2 ~]$ df -h\n{DF.format('0 100%')}"})
    assert (full.cause, full.subject["node"]) == ("host.disk_full", "gn-2") and full.probability > 0.9
    room = told(tmp_path / "room", {"r2.log": STEPS + CUT})
    assert room.probability < 0.8 or room.cause != "host.disk_full"


def test_a_cache_that_found_no_room_while_the_steps_go_on_accuses_no_disk(tmp_path: Path) -> None:
    warned = "WARNING tracker: no cache: [Errno 28] No space left on device: '/home/x/.cache/a'\n"
    lines = STEPS.splitlines(keepends=True)
    early = told(tmp_path / "early", {"t.log": "".join([*lines[:5], warned, *lines[5:]])})
    assert early.cause in ("none", "unknown")
    assert told(tmp_path / "last", {"t.log": STEPS + warned}).cause == "host.disk_full"
    cut = "WARNING: PytorchStreamWriter failed writing file data/7: file write failed; retrying\n"
    assert told(tmp_path / "cut", {"t.log": "".join([*lines[:5], cut, *lines[5:]])}).cause in ("none", "unknown")


def test_a_described_pod_that_was_killed_is_of_the_node_on_which_it_runs(tmp_path: Path) -> None:
    text = (
        "$ kubectl get pods -o wide\n"
        "NAME         READY   STATUS      RESTARTS   AGE   IP          NODE      NOMINATED NODE   READINESS GATES\n"
        "dlrm-w-0     0/1     Error       0          7h    10.0.3.4    pool-aa   <none>           <none>\n"
        "dlrm-w-1     0/1     OOMKilled   0          7h    10.0.4.4    pool-bb   <none>           <none>\n"
        "$ kubectl describe pod dlrm-w-1 | grep -A3 State\n    State:          Terminated\n"
        "      Reason:       OOMKilled\n      Exit Code:    137\n"
    )
    found = told(tmp_path, {"shell.txt": text})
    assert (found.cause, found.subject) == ("host.memory_oom_kill", {"node": "pool-bb"}) and found.probability > 0.9


def test_the_node_that_torchrun_names_counts_more_than_the_number_in_a_file_s_name(tmp_path: Path) -> None:
    failed = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-03-11_09:40:12\n  host      : gpu-b12\n"
        "  rank      : 29 (local_rank: 5)\n  exitcode  : -9 (pid: 2886)\n  error_file: <N/A>\n"
        "  traceback : Signal 9 (SIGKILL) received by PID 2886\n"
    )
    kernel = (
        "[Wed Mar 11 09:40:11 2026] Out of memory: Killed process 2886 (python3) total-vm:88kB, anon-rss:80kB, "
        "file-rss:8kB, shmem-rss:4kB, UID:1 pgtables:1kB oom_score_adj:0\n"
    )
    found = told(tmp_path / "in", {"train_node3.log": STEPS + failed, "dmesg_gpu-b12.txt": kernel})
    assert (found.cause, found.subject["node"], found.subject["rank"]) == ("host.memory_oom_kill", "gpu-b12", 29)
