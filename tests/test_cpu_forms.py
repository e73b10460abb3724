"""Trouble with CPUs in the many forms in which people bring it: tools, columns, sessions over several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.host.load_facts import Load
from probes.catalog.stacks.profile import parse_profile
from probes.intake import pasted, ps_columns
from probes.intake.commands import asked
from probes.intake.hosts import of_report
from probes.intake.tools import tools_of
from tests.support.brought import told
from tests.support.hardware import judged, shares

PRESSED = "some avg10=71.40 avg60=70.02 avg300=66.90 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
CALM = "some avg10=0.20 avg60=0.31 avg300=0.20 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


# Sessions: whose a command's output is


@pytest.mark.parametrize(
    ("command", "node"),
    [
        ("kubectl -n ml exec -it trainer-worker-3 -c main -- cat /sys/fs/cgroup/cpu.stat", "trainer-worker-3"),
        ("kubectl exec deep-0 -- nproc", "deep-0"),
        ("oc -n ml describe pod deep-worker-0", "deep-worker-0"),
        ("kubectl describe node gke-a3-pool-7", "gke-a3-pool-7"),
        ("ssh -o BatchMode=yes root@hgx-21 uptime", "hgx-21"),
        ("ssh hgx-21", "hgx-21"),
        ("srun --jobid 88 -w cn104 --overlap ps aux", "cn104"),
        ("pdsh -w cn[101-104] uptime", ""),
        ("for h in a1 a2; do ssh $h nproc; done", ""),
        ("cat /proc/loadavg", ""),
    ],
)
def test_a_command_tells_which_node_it_asked(command: str, node: str) -> None:
    assert asked(command).node == node


def test_what_another_node_answered_is_that_nodes_and_what_comes_after_is_not() -> None:
    text = "$ kubectl exec deep-worker-1 -- cat /proc/loadavg\n1.00 1.00 1.00 1/2 3\n$ uptime\n 10:00:00 up 1 day\n"
    assert [part.nodes for part in pasted.parts_of(text)] == [("deep-worker-1",), ()]


def test_a_prompt_with_an_environment_before_it_is_one() -> None:
    text = "(venv) ana@hgx-07:~$ nproc\n96\n(venv) ana@hgx-07:~$ cat /proc/loadavg\n1.00 1.00 1.00 1/2 3\n"
    assert {part.nodes for part in pasted.parts_of(text)} == {("hgx-07",)}


def test_a_folder_that_says_it_is_a_nodes_is_one(tmp_path: Path) -> None:
    assert of_report("host=zeta-b") == "zeta-b"
    assert of_report("date=2026-01-01") == ""


def test_pdsh_below_prompts_gives_each_line_to_its_node(tmp_path: Path) -> None:
    heads = "    PID USER     STAT NLWP %CPU COMMAND"
    rows = {"qx1": [], "qx2": [" 991 root     R      40 3100 tar"]}
    for node, some in rows.items():
        some += [f" {4000 + n} ml       R      70 {50 if node == 'qx2' else 103}.0 python3" for n in range(4)]
    text = "please look\n\n$ pdsh -w qx[1-2] nproc\n" + "".join(f"{node}: 48\n" for node in rows)
    text += "$ pdsh -w qx[1-2] 'ps -eo pid,user,stat,nlwp,pcpu,comm --sort=-pcpu | head'\n"
    text += "".join(f"{node}: {line}\n" for node, some in rows.items() for line in (heads, *some))
    text += "$ pdsh -w qx[1-2] cat /proc/pressure/cpu\n"
    text += "".join(f"{node}: {line}\n" for node in rows for line in (PRESSED if node == "qx2" else CALM).splitlines())
    found = told(tmp_path, {"paste.txt": text})
    assert (found.cause, found.subject["node"], found.subject["pid"]) == ("cpu.process_hotspot", "qx2", 991)
    assert found.probability >= 0.9


# Tables: the columns and forms of tools


def loads(name: str, text: str) -> Load:
    """What the tools tell of one text, the last that tells a load."""
    found = [tool.named(tool.read(text), name) for tool in tools_of(text, name.rpartition("/")[2])]
    return next(one for one in found if isinstance(one, Load))


def test_a_heading_that_grep_took_away_is_known_from_the_command() -> None:
    assert ps_columns.heading("ps aux | grep train") == "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND"
    assert ps_columns.heading("sudo ps -eo pid,psr,pcpu:6,comm --sort=-pcpu | grep pt_") == "PID PSR %CPU COMMAND"
    assert ps_columns.heading("ps -eo pid,lstart,comm | grep x") == ""
    text = "$ ps -eLo pid,lwp,psr,stat,pcpu,comm | grep python\n 50 50 3 Rl 80.0 python\n 50 51 4 Rl 15.0 python\n"
    (part,) = pasted.parts_of(text)
    (one,) = loads("ps", part.text).processes
    assert (one.pid, one.cpu_percent, one.seen_on, one.running) == (50, 95.0, (3, 4), 2)


def test_htop_and_tables_with_commas_for_points_are_read() -> None:
    htop = "  PID USER       PRI  NI  VIRT   RES   SHR S  CPU%▽MEM%   TIME+  Command\n"
    htop += "  771 root        20   0 9000M  100M 10000 R 812.5  0.0  9:00.00 /usr/bin/tar -x\n"
    one = loads("htop.txt", htop).processes[0]
    assert (one.pid, one.comm, one.cpu_percent) == (771, "tar", 812.5)
    german = "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     ZEIT+ BEFEHL\n".replace(
        "BEFEHL", "COMMAND"
    )
    german += "    771 root      20   0 9000000 100000  10000 R 812,5   0,0   9:00.00 tar\n"
    assert loads("top.txt", german).processes[0].cpu_percent == 812.5


MPSTAT = """Linux 6.8.0-45-generic (qx7) \t11/30/26 \t_x86_64_\t(64 CPU)

Average:     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle
Average:       4   88.00    0.00   12.00    0.00    0.00    0.00    0.00    0.00    0.00    0.00
Average:       5   90.00    0.00    9.00    0.00    0.00    0.00    0.00    0.00    0.00    1.00
Average:       6    1.00    0.00    0.00    0.00    0.00    0.00    0.00    0.00    0.00   99.00
"""
SAR = """Linux 6.8.0-45-generic (qx7) \t11/30/26 \t_x86_64_\t(64 CPU)

10:00:01        CPU     %user     %nice   %system   %iowait    %steal     %idle
10:00:06        all      3.00      0.00      1.00      0.00      0.00     96.00
10:00:06          4     99.00      0.00      1.00      0.00      0.00      0.00
10:00:06          6      0.00      0.00      0.00      0.00      0.00    100.00
"""
JSON = """{"sysstat": {"hosts": [{"nodename": "qx7", "sysname": "Linux", "number-of-cpus": 64, "statistics": [
 {"timestamp": "10:00:06", "cpu-load": [{"cpu": "all", "usr": 3.0, "sys": 1.0, "iowait": 0.0, "idle": 96.0},
 {"cpu": "4", "usr": 99.0, "sys": 1.0, "idle": 0.0}, {"cpu": "6", "usr": 0.0, "sys": 0.0, "idle": 100.0}]}]}]}}"""


@pytest.mark.parametrize(("text", "full"), [(MPSTAT, "4-5"), (SAR, "4"), (JSON, "4")])
def test_single_cpus_that_are_full_beside_idle_ones_are_told(text: str, full: str) -> None:
    told = loads("cpus.txt", text)
    assert (told.cpus, told.cpus_full, told.cpus_free) == (64, full, "6")


def test_two_looks_at_schedstat_below_a_command_are_of_its_thread() -> None:
    name = "cat_proc_88_task_91_schedstat_sleep_5_cat_proc_88_task_91_schedstat"
    told = loads(name, "100000000000 40000000000 900\n101000000000 44000000000 950\n").processes
    assert [(one.pid, one.ppid, one.ran_ns, one.waited_ns) for one in told] == [
        (91, 88, 100_000_000_000, 40_000_000_000),
        (91, 88, 101_000_000_000, 44_000_000_000),
    ]


def test_a_table_of_threads_is_read_by_its_heading() -> None:
    text = "TID COMM LAST_CPU RUN_MS WAIT_MS CPUS_ALLOWED_LIST\n"
    text += "71 NCCL Progress 1 3 2000 6000 2-3\n72 python 2 1000.5 0 2-3\n"
    one, two = loads("threads.txt", text).processes
    assert (one.comm, one.seen_on, one.ran_ns, one.waited_ns, one.mask) == (
        "NCCL Progress 1", (3,), 2_000_000_000, 6_000_000_000, "2-3",
    )  # fmt: skip
    assert (two.pid, two.ran_ns) == (72, 1_000_500_000)


# What it means


def test_threads_that_run_on_two_of_many_cpus_collide_with_no_mask_told(tmp_path: Path) -> None:
    rows = "".join(f"{900 + n // 6} {900 + n} {10 + n % 2} Rl 16.0 python\n" for n in range(0, 24))
    table = "    PID     LWP PSR STAT %CPU COMMAND\n" + rows
    found = told(tmp_path, {"node-4/ps.txt": table, "node-4/nproc.txt": "64\n", "node-4/psi_cpu.txt": PRESSED})
    assert (found.cause, found.subject["node"]) == ("cpu.affinity_collision", "node-4")


def test_threads_that_run_on_all_cpus_do_not_collide(tmp_path: Path) -> None:
    rows = "".join(f"{900 + n // 6} {900 + n} {n} Rl 16.0 python\n" for n in range(0, 24))
    table = "    PID     LWP PSR STAT %CPU COMMAND\n" + rows
    found = told(tmp_path, {"node-4/ps.txt": table, "node-4/nproc.txt": "64\n", "node-4/psi_cpu.txt": CALM})
    assert found.cause in ("none", "unknown")


def loader_table(workers: float, ranks: float) -> str:
    rows = "  PID  PPID STAT %CPU NLWP COMMAND\n"
    for rank in range(4):
        rows += f" {100 + rank}    90 Sl   {ranks}   40 python3\n"
        rows += "".join(f" {200 + 10 * rank + n}   {100 + rank} Rl   {workers}    3 pt_data_worker\n" for n in range(2))
    return rows


def test_workers_that_never_wait_beside_ranks_that_do_starve_them(tmp_path: Path) -> None:
    found = told(tmp_path, {"ps.txt": loader_table(99.1, 11.0)})
    assert found.cause == "cpu.dataloader_starved"


@pytest.mark.parametrize(("workers", "ranks"), [(99.1, 101.0), (22.0, 11.0)])
def test_busy_ranks_or_idle_workers_are_no_starving(tmp_path: Path, workers: float, ranks: float) -> None:
    assert told(tmp_path, {"ps.txt": loader_table(workers, ranks)}).cause in ("none", "unknown")


def pyspy_top(gil: float, active: float, beside: float) -> str:
    return (
        "Collecting samples from 'python train.py' (python v3.11.4)\nTotal Samples 3000\n"
        f"GIL: {gil:.2f}%, Active: {active:.2f}%, Threads: 12\n\n"
        "  %Own   %Total  OwnTime  TotalTime  Function (filename)\n"
        f" {beside:.2f}%  {beside:.2f}%   12.00s    12.00s   to_json (stats/writer.py)\n"
        f"  0.00%  {beside:.2f}%    0.00s    12.00s   _bootstrap (threading.py)\n"
        f" 20.00%  20.00%    4.00s     4.00s   forward (net.py)\n"
    )


def test_a_thread_that_keeps_the_lock_in_py_spy_top_is_named(tmp_path: Path) -> None:
    found = told(tmp_path, {"rank2_top.txt": pyspy_top(99.0, 210.0, 75.0)})
    assert (found.cause, found.subject["rank"]) == ("cpu.gil_contention", 2)
    assert "writer.py" in found.says


@pytest.mark.parametrize(("gil", "active", "beside"), [(30.0, 110.0, 75.0), (99.0, 210.0, 12.0)])
def test_a_lock_that_is_mostly_free_or_the_main_threads_is_no_contention(
    tmp_path: Path, gil: float, active: float, beside: float
) -> None:
    assert told(tmp_path, {"rank2_top.txt": pyspy_top(gil, active, beside)}).cause in ("none", "unknown")


def test_a_thread_in_which_the_model_trains_is_not_beside_it() -> None:
    line = (
        "_bootstrap (threading.py:9);run (threading.py:8);train (w.py:3);_call_impl (torch/nn/modules/module.py:7) 90\n"
    )
    other = "_bootstrap (threading.py:9);run (threading.py:8);flush (log.py:3);dumps (json/__init__.py:7) 10\n"
    profile = parse_profile("# py-spy record --gil --format raw\n" + line + other)
    assert (profile.beside, profile.total, profile.lock) == (10, 100, True)


def nsys(syncs: int, launches: int, comma: bool = True) -> str:
    def row(share: float, total: int, calls: int, name: str) -> str:
        many = f"{calls:,}" if comma else str(calls)
        return f"   {share:5.1f}  {total}  {many}  100.0  100.0  1  9999  50.0  {name}\n"

    head = " Time (%)  Total Time (ns)  Num Calls  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  Name\n"
    return (
        " ** CUDA API Summary (cuda_api_sum):\n"
        + head
        + (
            row(70.0, 7_000_000, syncs, "cudaStreamSynchronize")
            + row(20.0, 2_000_000, launches, "cudaLaunchKernel")
            + row(10.0, 1_000_000, 90, "cudaMemcpyAsync")
        )
    )


def test_waiting_for_the_device_after_every_few_kernels_is_asked_for(tmp_path: Path) -> None:
    found = told(tmp_path, {"nsys_rank3.txt": nsys(40_000, 400_000)})
    assert (found.cause, found.subject["rank"]) == ("cpu.implicit_sync", 3)


def test_one_long_wait_at_the_end_of_each_step_is_how_a_program_ahead_of_its_device_looks(tmp_path: Path) -> None:
    assert told(tmp_path, {"nsys_rank3.txt": nsys(300, 400_000, comma=False)}).cause in ("none", "unknown")


def test_a_table_of_torchs_profiler_counts_the_same() -> None:
    text = """-----------------------  ----------  ----------  -----------  ---------  ------------  ----------
                   Name    Self CPU %    Self CPU   CPU total %  CPU total  CPU time avg  # of Calls
  cudaStreamSynchronize        60.00%     600.000ms       60.00%  600.000ms     300.000us        2000
       cudaLaunchKernel        10.00%     100.000ms       10.00%  100.000ms      10.000us       10000
             aten::item         1.00%      10.000ms       62.00%  620.000ms     310.000us        2000
"""
    (tool,) = tools_of(text, "prof.txt")
    facts = tool.read(text)
    assert (facts.sync_ns, facts.syncs, facts.launches) == (600_000_000, 2000, 10_000)


@pytest.mark.parametrize(("device_s", "cause"), [(3.1, "cpu.implicit_sync"), (18.0, "unknown")])
def test_waits_after_more_kernels_count_where_the_device_rests(tmp_path: Path, device_s: float, cause: str) -> None:
    table = f"""-----------------------  ----------  ----------  -----------  ---------  ------------  ----------
                   Name    Self CPU %    Self CPU   CPU total %  CPU total  CPU time avg  # of Calls
  cudaStreamSynchronize        70.00%      14.000s       70.00%    14.000s       7.000ms        2000
       cudaLaunchKernel         5.00%       1.000s        5.00%     1.000s       5.000us      200000
-----------------------  ----------  ----------  -----------  ---------  ------------  ----------
Self CPU time total: 20.000s
Self CUDA time total: {device_s:.3f}s
"""
    assert told(tmp_path, {"profile_rank2.txt": table}).cause == cause


# Loops and counts that people type ------------------------------------------------------------------------------------

LOOP = 'for p in $(pgrep -x python3); do echo "$p $(ls /proc/$p/task | wc -l) $(cat /proc/$p/schedstat)"; done'
TALLY = "ps -eLo stat,pid,comm | awk '$1 ~ /^R/ {print $2, $3}' | sort | uniq -c"


def crowd(threads: int, running: int, waited: int) -> str:
    rows = "".join(
        f"{pid} {threads} {400_000_000_000 + ran} {90_000_000_000 + late} 8247310\n"
        for ran, late in ((0, 0), (10**10 - waited, waited))
        for pid in (711, 712, 713, 714)
    )
    counts = "".join(f"{running:>7} {pid} python3\n" for pid in (711, 712, 713, 714))
    shown = "Average:     all   90.00    0.00    9.00    0.00    0.00    0.00    0.00    0.00    0.00    1.00"
    calm = shown.replace("90.00", "12.00").replace("9.00 ", "0.50 ").replace(" 1.00", "87.00")
    heads = "Linux 6.8.0 (ws-9)  01/02/26  _x86_64_  (48 CPU)\n\n"
    heads += "10:00:01 CPU %usr %nice %sys %iowait %irq %soft %steal %guest %gnice %idle\n"
    return f"$ {LOOP}\n{rows}$ {TALLY}\n{counts}$ mpstat 5 1\n{heads}{shown if running > 20 else calm}\n$ exit\n"


def test_a_loop_over_processes_tells_their_threads_and_what_they_waited(tmp_path: Path) -> None:
    cause = "cpu.thread_oversubscription"
    found = judged(tmp_path / "many", {"GPU-77.txt": crowd(190, 60, 6 * 10**9)}).verdict.hypothesis
    assert (found.cause, found.subject) == (cause, {"node": "ws-9"}), "a ticket's number is no node"
    assert shares(judged(tmp_path / "asleep", {"GPU-77.txt": crowd(190, 2, 10**6)})).get(cause, 0.0) < 0.2


PERF = """\
# Overhead  Command  Shared Object           Symbol
# ........  .......  ......................  ..............................
    {omp:.2f}%  python3  libgomp-a34b3233.so.1   [.] gomp_team_barrier_wait_end
    11.20%  python3  libtorch_cpu.so         [.] at::native::index_kernel
     6.02%  python3  [kernel.kallsyms]       [k] __schedule
"""
CHILDREN = """\
# Children      Self  Command  Shared Object                        Symbol
    {ext:.2f}%     0.40%  python3  _pairs.cpython-312-x86_64-linux-gnu.so   [.] Pairs::match
    70.00%    22.00%  python3  libpython3.12.so.1.0                 [.] _PyEval_EvalFrameDefault
     8.00%     3.00%  python3  libpython3.12.so.1.0                 [.] PyGILState_Ensure
"""


def test_threads_that_only_wait_for_each_other_in_openmp_are_a_sign_but_no_proof(tmp_path: Path) -> None:
    cause = "cpu.thread_oversubscription"
    assert 0.05 < shares(judged(tmp_path / "a", {"perf.txt": PERF.format(omp=48.1)}))[cause] < 0.4
    assert shares(judged(tmp_path / "b", {"perf.txt": PERF.format(omp=4.1)})).get(cause, 0.0) == 0


def test_an_extension_below_which_python_runs_again_calls_back(tmp_path: Path) -> None:
    cause = "cpu.native_callback"
    assert shares(judged(tmp_path / "a", {"perf_rank2.txt": CHILDREN.format(ext=81.0)}))[cause] > 0.4
    assert shares(judged(tmp_path / "b", {"perf_rank2.txt": CHILDREN.format(ext=9.0)})).get(cause, 0.0) == 0


def test_rows_of_threads_in_another_file_are_of_the_ranks_that_their_status_tells(tmp_path: Path) -> None:
    head = (
        "top - 10:00:00 up 1 day,  1 user,  load average: 21.00, 20.00, 9.00\n"
        "%Cpu(s): 70.0 us, 30.0 sy,  0.0 ni,  0.0 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st\n\n"
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
    )
    row = "{:7d} ml        20   0    2.5g 400000  95000 R  {:4.1f}   1.6   0:11.96 {}\n"
    rows = "".join(row.format(pid, 9.0, "python") for pid in (901, 902, *range(940, 980)))
    rows += row.format(911, 5.0, "gloo_tcp_loop") + row.format(912, 5.0, "pt_gloo_runloop")
    session = "[ml@kite-3 ~]$ nproc\n4\n"
    for pid in (901, 902):
        session += f"[ml@kite-3 ~]$ cat /proc/{pid}/status\nName:\tpython\nPid:\t{pid}\nThreads:\t64\n"
        session += "Cpus_allowed_list:\t0-3\n"
        session += f"[ml@kite-3 ~]$ tr '\\0' '\\n' < /proc/{pid}/environ\nRANK={pid - 901}\nWORLD_SIZE=2\n"
    found = judged(tmp_path, {"top-H.txt": head + rows, "session.txt": session}).verdict.hypothesis
    assert (found.cause, found.subject.get("node")) == ("cpu.thread_oversubscription", "kite-3")
