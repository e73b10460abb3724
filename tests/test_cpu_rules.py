"""Who takes the CPU, told from files: a process beside the job, a quota, too many threads, shared cores; or nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.intake.tools.host import cgroup_cpu, thread_pools
from tests.support.brought import told
from tests.support.hardware import judged, shares

NODE = "gpu-01"
PRESSED = "some avg10=63.20 avg60=58.11 avg300=40.02 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
CALM = "some avg10=0.40 avg60=0.31 avg300=0.20 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def top(*rows: tuple[int, str, str, float], load: float, idle: float, cpus_line: bool = True) -> str:
    """(pid, state, command, %CPU) a row, as `top -b -n 1` prints them."""
    lines = [
        f"top - 14:03:22 up 10 days,  2:13,  1 user,  load average: {load:.2f}, {load:.2f}, {load:.2f}",
        "Tasks: 1500 total,  60 running, 1440 sleeping,   0 stopped,   0 zombie",
        f"%Cpu(s): {99 - idle:.1f} us,  1.0 sy,  0.0 ni, {idle:.1f} id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st",
        "MiB Mem : 2063936.0 total, 1000000.0 free, 500000.0 used, 563936.0 buff/cache",
        "MiB Swap:      0.0 total,      0.0 free,      0.0 used. 1500000.0 avail Mem",
        "",
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND",
    ]
    lines += [
        f"{pid:>7} root      20   0  100.0g   4.0g   1.0g {state} {share:5.1f}   0.2 100:00.00 {command}"
        for pid, state, command, share in rows
    ]
    return "\n".join(lines) + "\n"


LSCPU = (
    "Architecture:          x86_64\nCPU(s):                {}\nThread(s) per core:    1\nCore(s) per socket:    {}\n"
    "Socket(s):             1\nNUMA node(s):          1\n"
)
RANKS = [(4000 + n, "R", "pt_main_thread", 40.0) for n in range(8)]


def test_a_process_beside_the_job_that_ranks_wait_for_is_named(tmp_path: Path) -> None:
    rows = [(77, "R", "clamscan", 1500.0), *RANKS]
    files = {"top.txt": top(*rows, load=60, idle=1.0), "psi_cpu.txt": PRESSED, "lscpu.txt": LSCPU.format(32, 32)}
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    assert (found.cause, found.subject["node"], found.subject["pid"]) == ("cpu.process_hotspot", NODE, 77)
    assert found.probability >= 0.9
    assert "clamscan" in found.says
    assert found.step("process-attribution", "load")[0] == "implicated"


def test_headings_with_hashes_give_the_commands_below_them_to_their_nodes(tmp_path: Path) -> None:
    parts = []
    for node in ("zeta1", "zeta2", "zeta3"):
        sick = node == "zeta2"
        rows = [(77, "R", "osqueryd", 1500.0), *RANKS] if sick else RANKS
        parts.append(
            f"#### {node}\n$ nproc\n32\n$ cat /proc/pressure/cpu\n{PRESSED if sick else CALM}"
            f"$ top -b -n 1\n{top(*rows, load=60 if sick else 8, idle=1.0 if sick else 70.0)}"
        )
    found = told(tmp_path, {"all.txt": "\n".join(parts)})
    assert (found.cause, found.subject.get("node")) == ("cpu.process_hotspot", "zeta2")


def test_a_file_that_tells_the_name_of_the_node_names_the_subject(tmp_path: Path) -> None:
    rows = [(77, "R", "osqueryd", 1500.0), *RANKS]
    files = {"top.txt": top(*rows, load=60, idle=1.0), "psi.txt": PRESSED, "nproc": "32\n"}
    for name, text in (
        ("hostname", "trainbox\n"),
        (
            "uname-a.txt",
            "Linux trainbox 5.15.0-91-generic #101-Ubuntu SMP Tue Nov 14 13:30:08 UTC 2023 x86_64 GNU/Linux\n",
        ),
        ("system.txt", "$ uname -n\ntrainbox\n$ nproc\n32\n"),
    ):
        assert told(tmp_path / name, {**files, name: text}).subject.get("node") == "trainbox"


def test_the_name_of_who_collected_files_of_many_nodes_is_no_subject(tmp_path: Path) -> None:
    sick = top((77, "R", "osqueryd", 1500.0), *RANKS, load=60, idle=1.0)
    files = {"hostname": "login-1\n", "gpu-01/nproc": "32\n", "gpu-02/nproc": "32\n", "gpu-02/top.txt": sick}
    assert told(tmp_path, files | {"gpu-02/psi.txt": PRESSED}).subject["node"] == "gpu-02"


def test_one_file_of_many_nodes_does_not_put_all_ranks_on_the_first(tmp_path: Path) -> None:
    """Each node has a GPU 0 with the same bus id: that is no GPU of two ranks."""
    lines = [
        f"zeta{rank // 2}:{500 + rank}:{900 + rank} [{rank % 2}] NCCL INFO ncclCommInitRankConfig comm 0x55{rank:04x} "
        f"rank {rank} nranks 6 cudaDev {rank % 2} nvmlDev {rank % 2} busId {19 + rank % 2}000 commId 0xabc - Init "
        for rank in range(6)
    ]
    for name in ("rank0.out", "out/0/stderr.log", "nccl.log"):
        text = "".join(f"{line}{done}\n" for done in ("START", "COMPLETE") for line in lines)
        found = told(tmp_path / name.partition(".")[0], {name: text})
        assert found.share("nccl.device_visibility") == 0


def test_a_busy_process_on_an_idle_node_of_128_cpus_does_not_matter(tmp_path: Path) -> None:
    rows = [(77, "R", "clamscan", 900.0), *RANKS]
    files = {"top.txt": top(*rows, load=12, idle=88.0), "psi_cpu.txt": CALM, "lscpu.txt": LSCPU.format(128, 128)}
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    assert found.share("cpu.process_hotspot") == 0


def test_many_small_processes_of_one_name_count_together(tmp_path: Path) -> None:
    rows = [(100 + n, "R", "stress-ng-cpu", 95.0) for n in range(30)] + RANKS
    files = {"top.txt": top(*rows, load=70, idle=0.5), "psi_cpu.txt": PRESSED, "nproc.txt": "32\n"}
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    assert found.cause == "cpu.process_hotspot"
    assert "30 processes stress-ng-cpu" in found.says


PIDSTAT = """Linux 5.15.0-91-generic (gpu-01) \t11/30/2026 \t_x86_64_\t(16 CPU)

01:10:01 AM   UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command
01:10:06 AM  1000      4000   30.00    2.00    0.00   64.00   32.00     3  pt_main_thread
01:10:06 AM     0        77  780.00   10.00    0.00    1.00  790.00     4  bitcoind

Average:      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command
Average:     1000      4000   30.00    2.00    0.00   64.00   32.00     -  pt_main_thread
Average:        0        77  780.00   10.00    0.00    1.00  790.00     -  bitcoind
"""


def test_pidstat_tells_the_node_its_cpus_and_who_waits(tmp_path: Path) -> None:
    found = told(tmp_path, {"pidstat.txt": PIDSTAT})
    assert (found.cause, found.subject["node"], found.subject["pid"]) == ("cpu.process_hotspot", "gpu-01", 77)


def cpu_stat(periods: int, throttled: int) -> str:
    counts = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec 812\n"
    return "usage_usec 91827\nuser_usec 90000\nsystem_usec 1827\n" + counts


def test_a_quota_that_stops_ranks_between_two_looks_is_named(tmp_path: Path) -> None:
    files = {
        "cpu.stat.before": cpu_stat(1000, 100),
        "cpu.stat.after": cpu_stat(1100, 185),
        "cpu.max": "400000 100000\n",
    }
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    assert (found.cause, found.subject["node"]) == ("cpu.quota_throttled", NODE)
    assert found.probability >= 0.9
    assert "quota of 4 CPUs" in found.says
    assert "85 %" in found.says


def test_old_throttling_that_does_not_rise_is_over(tmp_path: Path) -> None:
    files = {
        "cpu.stat.before": cpu_stat(1000, 900),
        "cpu.stat.after": cpu_stat(1100, 900),
        "cpu.max": "400000 100000\n",
    }
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    assert found.share("cpu.quota_throttled") == 0


def ps_threads(threads: int) -> str:
    head = "    PID    PPID NLWP PSR %CPU COMMAND\n"
    return head + "".join(f"   {4000 + n}    1000 {threads}   {n} 390.0 python train.py\n" for n in range(8))


def test_ranks_with_a_thread_per_cpu_each_that_wait_are_too_many_threads(tmp_path: Path) -> None:
    files = {
        "ps.txt": ps_threads(70), "loadavg.txt": "180.02 170.11 150.90 171/2400 9912\n", "psi_cpu.txt": PRESSED,
        "env.txt": "PATH=/usr/bin\nHOME=/root\nNCCL_DEBUG=INFO\n", "lscpu.txt": LSCPU.format(64, 64),
    }  # fmt: skip
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    assert (found.cause, found.subject["node"]) == ("cpu.thread_oversubscription", NODE)
    assert found.probability >= 0.9


def test_many_threads_that_sleep_are_normal(tmp_path: Path) -> None:
    files = {
        "ps.txt": ps_threads(300).replace("390.0", "99.0"), "loadavg.txt": "8.02 8.11 8.90 9/2400 9912\n",
        "psi_cpu.txt": CALM, "lscpu.txt": LSCPU.format(128, 128),
    }  # fmt: skip
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    assert found.probability < 0.8
    assert found.cause != "cpu.thread_oversubscription"


def test_threads_of_ranks_that_get_few_of_crowded_cpus_are_not_proven_to_crowd_them(tmp_path: Path) -> None:
    """Whoever does is not seen, as from within a container: the same as above, but the ranks get a tenth of it."""
    files = {
        "ps.txt": ps_threads(70).replace("390.0", "39.0"), "loadavg.txt": "180.02 170.11 150.90 171/2400 9912\n",
        "psi_cpu.txt": PRESSED, "env.txt": "PATH=/usr/bin\nHOME=/root\nNCCL_DEBUG=INFO\n",
        "lscpu.txt": LSCPU.format(64, 64),
    }  # fmt: skip
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    assert found.share("cpu.thread_oversubscription") < 0.8


def masks(*pairs: tuple[int, str]) -> str:
    return "".join(f"pid {pid}'s current affinity list: {cpus}\n" for pid, cpus in pairs)


WORKERS = [(4100 + n, "R", "pt_data_worker", 12.0) for n in range(8)]


def waits(percent: float) -> str:
    lines = [
        "Linux 5.15.0-91-generic (gpu-01) \t11/30/2026 \t_x86_64_\t(64 CPU)\n",
        "01:10:01 AM   UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command",
    ]
    lines += [
        f"01:10:06 AM  1000      {pid}   12.00    0.00    0.00   {percent:.2f}   12.00     0  {name}"
        for pid, _, name, _ in WORKERS
    ]
    return "\n".join(lines) + "\n"


def test_workers_on_one_core_that_wait_for_it_collide(tmp_path: Path) -> None:
    all_masks = masks(*[(pid, "0") for pid, *_ in WORKERS], (4000, "0-63"))
    files = {f"{NODE}/taskset.txt": all_masks, f"{NODE}/pidstat.txt": waits(86.0)}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("cpu.affinity_collision", {"node": NODE})
    assert found.probability >= 0.9


def test_masks_that_overlap_prove_nothing(tmp_path: Path) -> None:
    all_masks = masks(*[(pid, "0-63") for pid, *_ in WORKERS], (4000, "0-63"))
    found = told(tmp_path, {f"{NODE}/taskset.txt": all_masks, f"{NODE}/pidstat.txt": waits(1.0)})
    assert found.share("cpu.affinity_collision") == 0


def test_a_loaded_node_is_not_why_a_rank_on_it_runs_another_collective(tmp_path: Path) -> None:
    """The rank that others wait for was seen, and not to wait for a CPU."""
    from probes import catalog
    from probes.core import Capture
    from probes.diagnosis import diagnose
    from probes.diagnosis.core import seen
    from probes.intake import read

    (tmp_path / NODE).mkdir()
    (tmp_path / NODE / "top.txt").write_text(top((77, "R", "clamscan", 1500.0), load=60, idle=1.0))
    (tmp_path / NODE / "psi_cpu.txt").write_text(PRESSED)
    (tmp_path / NODE / "lscpu.txt").write_text(LSCPU.format(32, 32))
    loaded = [seen(reading, ref) for ref, reading in read([tmp_path]).readings]
    recorded = Path(__file__).parent / "fixtures"
    hung = [
        seen(catalog.read(Capture(NODE, probe, "ok", (recorded / probe / f"{name}.out").read_bytes())))
        for probe, name in (("rank.flight_recorder", "rank_1_skips"), ("rank.process", "training"))
    ]
    first = diagnose([*loaded, *hung], [NODE]).verdict
    assert first.hypothesis.cause.startswith("fw.")
    assert first.probability > 0.9


@pytest.mark.parametrize("wait_s", [300, 0.2])
def test_the_wait_that_the_scheduler_counted_tells_whether_a_narrow_mask_harms(tmp_path: Path, wait_s: float) -> None:
    """30 s on a CPU, and the wait beside them: by grep of all threads of four loader workers on two of 64 CPUs."""
    pids = range(500, 508)
    files = {
        "nproc": "64\n",
        "ps.txt": "    PID    PPID %CPU COMMAND\n" + "".join(f"{pid:>7}       1 25.0 python3\n" for pid in pids),
        "taskset.txt": "".join(f"pid {pid}'s current affinity list: 8,9\n" for pid in pids),
        "schedstat.txt": "".join(
            f"/proc/{pid}/task/{pid}/schedstat:{30 * 10**9} {int(wait_s * 10**9)} 9120\n" for pid in pids
        ),
    }
    found = told(tmp_path, {f"{NODE}/{name}": text for name, text in files.items()})
    if wait_s > 1:
        assert (found.cause, found.subject) == ("cpu.affinity_collision", {"node": NODE})
        assert found.probability >= 0.8
    else:
        assert found.probability < 0.8


@pytest.mark.parametrize(
    "text",
    [
        "nr_periods=88808 nr_throttled=71375 throttled_usec=5902876475\n",
        "note of 03:20, pod trainer-1, cpu.stat: nr_periods 88808, nr_throttled 71375, throttled_time 590287647500\n",
        '{"nr_periods": 88808, "nr_throttled": 71375, "throttled_usec": 5902876475}\n',
    ],
)
def test_the_counts_of_a_quota_are_read_wherever_their_names_stand_beside_them(text: str) -> None:
    quota = cgroup_cpu.read(text).quotas[0]
    assert (quota.total_periods, quota.total_throttled) == (88808, 71375)


def test_groups_that_grep_names_are_no_looks_at_one() -> None:
    rows = {"a": (1000, 10), "b": (9000, 8100)}
    text = "".join(
        f"/sys/fs/cgroup/{name}/cpu.stat:nr_periods {periods}\n/sys/fs/cgroup/{name}/cpu.stat:nr_throttled {held}\n"
        for name, (periods, held) in rows.items()
    )
    told = [(one.cgroup, one.periods, one.total_periods, one.total_throttled) for one in cgroup_cpu.read(text).quotas]
    assert told == [("/sys/fs/cgroup/a", None, 1000, 10), ("/sys/fs/cgroup/b", None, 9000, 8100)]


INFO = "ATen/Parallel:\n\tat::get_num_threads() : {each}\nstd::thread::hardware_concurrency() : 96\n"


def test_torch_itself_tells_how_many_threads_each_rank_starts(tmp_path: Path) -> None:
    heads = "    PID USER     S  %CPU COMMAND\n"
    ranks = "".join(f"   90{rank} ml       R 1150.0 python train.py\n" for rank in range(8))
    busy = "top - 10:00:00 up 9 days,  load average: 611.10, 600.00, 590.00\n%Cpu(s): 80.0 us, 19.0 sy,  1.0 id\n"
    busy += heads + ranks
    for each, low, high in ((96, 0.6, 1.0), (4, 0.0, 0.6)):
        load = busy if each > 4 else busy.replace("611.10", " 20.10").replace(" 1.0 id", "70.0 id")
        files = {"info.txt": INFO.format(each=each), "top.txt": load}
        assert low <= shares(judged(tmp_path / str(each), files)).get("cpu.thread_oversubscription", 0.0) <= high
    pools = '[{"user_api": "openmp", "internal_api": "openmp", "num_threads": 64, "prefix": "libgomp"}]'
    assert thread_pools.read(pools).env == {"OMP_NUM_THREADS": "64"}
