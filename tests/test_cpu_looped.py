"""Trouble with CPUs as people write it down from /proc: loops that echo a number, tables of their own, htop's bars."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.host.load_facts import Load
from probes.catalog.ranks.process_extract import extracts_of, is_extract
from probes.intake.tools import tools_of
from tests.support.brought import told

PRESSED = "some avg10=91.00 avg60=90.02 avg300=86.90 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def loads(name: str, text: str) -> Load:
    found = [tool.named(tool.read(text), name) for tool in tools_of(text, name)]
    return next(one for one in found if isinstance(one, Load))


def test_numbers_that_a_loop_echoes_head_the_status_and_the_environment_of_processes() -> None:
    text = "== 801\nCpus_allowed_list:\t0-7\nRANK=12\n== 802\nCpus_allowed_list:\t8-9\nRANK=13\n"
    assert is_extract(text)
    found = {one.pid: (one.rank, one.status["Cpus_allowed_list"]) for one in extracts_of(text)}
    assert found == {801: (12, "0-7"), 802: (13, "8-9")}
    assert not is_extract("== 801\nsome words\n== 802\nothers\n")


def test_a_column_that_stands_twice_is_of_two_looks() -> None:
    heads = "tid comm psr allowed run_delay_ns(t0) run_delay_ns(+5s) nonvol_ctx\n"
    (one,) = loads("threads.txt", heads + "701 NCCL Service 2 3 2-3 1000000000 5000000000 99\n").processes
    assert (one.comm, one.mask, one.run_delay_percent, one.preempted) == ("NCCL Service 2", "2-3", 80.0, None)
    heads = "tid comm psr allowed wait_ms(before) wait_ms(after)\n"
    (one,) = loads("threads.txt", heads + "701 python 3 2-3 100 9100\n10 s apart\n").processes
    assert one.run_delay_percent == 90.0


def test_rows_without_a_heading_tell_by_themselves_where_a_thread_may_run() -> None:
    rows = "".join(f"NCCL Progress {n}  {910 + n} {n} 0-3 88123{n}\n" for n in range(4))
    found = loads("out", rows).processes
    assert [(one.pid, one.comm, one.mask, one.seen_on) for one in found][:1] == [(910, "NCCL Progress 0", "0-3", (0,))]
    foreign = "".join(f"rank {910 + n} {n + 9} 0-3 88123{n}\n" for n in range(4))  # nobody runs outside of his mask
    assert not tools_of(foreign, "out")


MPSTAT = """Linux 6.8.0 (qx3) \t11/30/26 \t_x86_64_\t(96 CPU)

10:00:01     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle
"""


@pytest.mark.parametrize(("used", "sure"), [(99.0, True), (40.0, False)])
def test_threads_that_share_two_cpus_of_many_collide_where_these_are_full(
    tmp_path: Path, used: float, sure: bool
) -> None:
    rows = "python  701 6 6-7 1\n" + "".join(f"pt_data_worker  {710 + n} {6 + n % 2} 6-7 9\n" for n in range(8))
    each = {5: 0.0, 6: used, 7: used, 8: 0.5}
    table = MPSTAT + "".join(
        f"10:00:06 {cpu:6d} {of:7.2f}{'   0.00' * 8} {100 - of:7.2f}\n" for cpu, of in each.items()
    )
    asked = (("sh t.sh 701", rows), ("mpstat -P 5-8 5 1", table))
    verdict = told(tmp_path, {"paste.txt": "".join(f"root@qx3:~# {ask}\n{out}" for ask, out in asked)})
    assert (verdict.cause == "cpu.affinity_collision" and verdict.subject.get("node") == "qx3") == sure


def test_htops_bars_alone_tell_which_cpus_are_full_and_how_many_there_are() -> None:
    text = "    0[||||||||100.0%]   8[   0.0%]\n    1[||||||||100.0%]   9[   0.7%]\n  Tasks: 61, 420 thr; 21 running\n"
    found = loads("htop.txt", text)
    assert (found.cpus, found.cpus_full, found.cpus_free, found.runnable) == (10, "0-1", "8-9", 21)
    counted_from_one = text.replace("    0[", "    2[")
    assert loads("htop.txt", counted_from_one).cpus == 9


RANKS = "    PID NLWP %CPU STAT COMMAND\n" + "".join(f"  {700 + n}  290 1150 Rl   python\n" for n in range(8))


def test_ranks_that_a_table_names_by_number_and_threads_alone_are_the_jobs(tmp_path: Path) -> None:
    """One has a number of Slurm; the others are called, busy and threaded as it."""
    files = {
        "gpu21/shell.txt": f"$ ps -o pid,nlwp,pcpu,stat,comm -C python\n{RANKS}"
        "$ tr '\\0' '\\n' </proc/700/environ | grep -E 'SLURM|OMP'\nSLURM_PROCID=0\nSLURM_NTASKS_PER_NODE=8\n",
        "gpu21/nproc.txt": "96\n",
        "gpu21/pressure_cpu.txt": PRESSED,
        "gpu21/loadavg.txt": "690.10 680.00 670.00 691/4000 999\n",
    }
    assert told(tmp_path, files).cause == "cpu.thread_oversubscription"


@pytest.mark.parametrize("mask", ["0-191", "0-15"])
def test_a_wide_mask_that_all_share_counts_the_cpus_and_a_narrow_one_does_not(tmp_path: Path, mask: str) -> None:
    rows = "".join(f" {700 + n}  1 vit  Rl 600 2300 python train.py\n" for n in range(8))
    status = "".join(
        f"Name:\tpython\nState:\tR (running)\nPid:\t{700 + n}\nThreads:\t600\nCpus_allowed_list:\t{mask}\n"
        for n in range(3)
    )
    files = {
        "qx6/ps.txt": "    PID PPID USER STAT NLWP %CPU CMD\n" + rows,
        "qx6/status.txt": status,
        "qx6/pressure_cpu.txt": PRESSED,
        "qx6/loadavg.txt": "1400.10 1380.00 1370.00 1401/7000 999\n",
    }
    assert (told(tmp_path, files).cause == "cpu.thread_oversubscription") == (mask == "0-191")


def test_a_container_beside_the_jobs_takes_the_cpu_and_one_of_its_pod_does_not(tmp_path: Path) -> None:
    heads = "CONTAINER ID   NAME          CPU %      MEM USAGE / LIMIT   MEM %   NET I/O   BLOCK I/O   PIDS\n"
    rows = "1f0b7c9d2e11   opt-train-2   800.00%    4GiB / 9GiB         40%     0B / 0B   0B / 0B     90\n"
    rows += "9ac0d1e2f344   solr-merge    6100.00%   4GiB / 9GiB         40%     0B / 0B   0B / 0B     90\n"
    files = {"qx8/docker_stats.txt": heads + rows, "qx8/nproc.txt": "64\n", "qx8/pressure_cpu.txt": PRESSED}
    found = told(tmp_path, files)
    assert (found.cause, found.subject["process"]) == ("cpu.process_hotspot", "solr-merge")


def test_ranks_without_a_number_that_wait_for_a_cpu_show_that_somebody_is_held_up(tmp_path: Path) -> None:
    heads = "Linux 5.15.0 (gpu23) 04/02/2026 _x86_64_ (64 CPU)\n\n"
    heads += "10:00:01      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command\n"
    row = "10:00:06     1001      {}   {}    0.00    0.00   {}   {}     4  {}\n"
    for wait, sure in (("41.00", True), (" 0.50", False)):
        ranks = "".join(row.format(700 + n, "50.00", wait, "50.00", "python3") for n in range(4))
        text = heads + row.format(9001, "3100.00", " 0.00", "3100.00", "lammps") + ranks
        found = told(tmp_path / f"n{sure}", {"gpu23/pidstat.txt": text})
        assert (found.cause == "cpu.process_hotspot" and found.probability > 0.8) == sure
