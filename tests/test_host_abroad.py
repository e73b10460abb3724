"""Outputs of tools on hosts that speak another language, in colours, and of other tools for the same question."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from probes.catalog.kernel.lines import Clock, log_lines
from probes.core import without_escapes
from probes.explain import explain
from probes.intake import pasted
from probes.intake.tables import steps_in
from probes.intake.tools.host import bindings, boots, clock_lines, disks, mpstat, nfsiostat, pidstat, process_table


def cause(folder: Path, **files: str) -> tuple[str, dict[str, str | int]]:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    first = explain([folder]).diagnosis.verdict.hypothesis
    return first.cause, dict(first.subject)


# Languages


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("Dateisystem     Größe Benutzt Verf. Verw% Eingehängt auf", "/dev/sdb1  7,0T  7,0T  0  100% /daten"),
        ("Sys. de fichiers blocs de 1K Utilisé Disponible Uti% Monté sur", "/dev/sdb1  700  700  0  100% /data"),
        ("文件系统        容量  已用  可用 已用% 挂载点", "/dev/sdb1  7.0T  7.0T  0  100% /data"),
    ],
)
def test_df_is_known_by_its_rows_below_a_heading_in_any_language(head: str, row: str) -> None:
    assert disks.TOOL.fits(f"{head}\n{row}\n", "df.txt")
    assert [one.used_percent for one in disks.read(f"{head}\n{row}\n").disks] == [100.0]


def test_inodes_of_another_language_are_no_space() -> None:
    text = "Sys. de fichiers Inœuds IUtil. ILibre IUti% Monté sur\n/dev/sdb1  700  700  0  100% /data\n"
    (disk,) = disks.read(text).disks
    assert (disk.used_percent, disk.inodes_used_percent) == (None, 100.0)


def test_prose_with_a_percent_sign_is_no_heading_of_df() -> None:
    assert not disks.TOOL.fits("the disk is full by 100% on all nodes\n/data is the one\n", "note.txt")


def test_sysstat_names_its_average_in_any_language() -> None:
    row = "  1004     4121   41,20    3,80    0,00   55,10   45,00     -  python3"
    assert pidstat.fits(f"Durchschn.:{row}\nDurchschn.:{row}\n", "p.txt")
    (one,) = pidstat.read(f"Durchschn.:{row}\n").processes
    assert (one.pid, one.cpu_percent, one.run_delay_percent) == (4121, 45.0, 55.1)
    shares = "".join("  0,00" for _ in range(8))
    assert mpstat.read(f"Moyenne :  all  99,00{shares}   1,00\n").cpu is not None


def test_top_counts_with_commas_below_german_columns() -> None:
    text = (
        "top - 02:31:02 up 31 days,  2:11,  1 user,  load average: 61,20, 58,11, 40,22\n"
        "%CPU(s): 71,2 us, 27,1 sy,  0,0 ni,  1,2 id,  0,0 wa,  0,0 hi,  0,5 si,  0,0 st\n"
        "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM    ZEIT+ BEFEHL\n"
        "   4121 lin       20   0    12,1g   8,2g  12000 R  1391,0   0,4  41:12.11 rsync\n"
    )
    told = process_table.read(text)
    assert (told.load1, told.cpu and told.cpu.idle) == (61.2, 1.2)
    assert [(one.comm, one.cpu_percent) for one in told.processes] == [("rsync", 1391.0)]


@pytest.mark.parametrize("stamp", ["Mo Mär  2 04:05:06 2026", "lun. mars  2 04:05:06 2026", "一 3月  2 04:05:06 2026"])
def test_a_kernel_log_has_its_times_in_the_language_of_who_asked(stamp: str, tmp_path: Path) -> None:
    text = f"[{stamp}] nfs: server nas-7 not responding, still trying\n"
    text += f"[{stamp}] INFO: task python:71 blocked for more than 122 seconds.\n"
    (line, _) = log_lines(text, Clock())
    assert (line.order, line.stamp) == (
        datetime(2026, 3, 2, 4, 5, 6, tzinfo=UTC).timestamp(),
        "Mon Mar 02 04:05:06 2026",
    )
    assert cause(tmp_path, dmesg__txt=text)[0] == "host.storage_stall"


def test_colours_are_no_part_of_a_prompt() -> None:
    text = "\x1b[01;32mroot@worker-2\x1b[00m:\x1b[01;34m~\x1b[00m# nproc\n64\n"
    assert [part.nodes for part in pasted.parts_of(without_escapes(text))] == [("worker-2",)]


# htop


def test_htop_tells_cpus_by_its_bars_and_tasks_in_its_own_words() -> None:
    text = (
        "    0[||||||||||||100.0%]   1[||||    40.0%]\n"
        "  Mem[||||   211G/1.97T]   Tasks: 112, 9311 thr, 0 kthr; 98 running\n"
        "                           Load average: 61.20 58.11 40.22\n"
        "    PID USER      PRI  NI  VIRT   RES   SHR S  CPU% MEM%   TIME+  Command\n"
        "   4121 lin        20   0  181G 24.1G 2211M R  21.1  1.2  9:00.11 python -u train.py\n"
    )
    told = process_table.read(text)
    assert (told.cpus, told.runnable, told.load1, told.cpu and told.cpu.idle) == (2, 98, 61.2, 30.0)


# What a launcher bound


@pytest.mark.parametrize(
    ("line", "cpus"),
    [
        ("cpu-bind=MASK - n5, task  1  1 [4812]: mask 0xc set", "2-3"),
        ("[n5:4812] MCW rank 1 bound to socket 0[core 1[hwt 0-1]]: [../BB/..][../../..]", "2-3"),
        ("[n5:4812] Rank 1 bound to package[0][hwt:2-3]", "2-3"),
        ("[0] MPI startup(): 1       4812     n5         {2,3}", "2,3"),
    ],
)
def test_a_launcher_tells_the_cpus_of_each_task(line: str, cpus: str) -> None:
    (mask,) = bindings.by_node(f"{line}\n")["n5"].masks
    assert (mask.pid, mask.cpus) == (4812, cpus)


# NFS, boots and clocks

NFS = """
nas-1:/data mounted on /data:

read:   ops/s    kB/s   kB/op   retrans   avg RTT (ms)   avg exe (ms)   avg queue (ms)   errors
        1.100   8.100   8.000  31 (2.2%)      {0}.301        {0}.118            0.811   0 (0.0%)
"""


def test_reads_that_take_a_minute_are_of_a_server_that_does_not_answer() -> None:
    (found,) = nfsiostat.TOOL.findings(nfsiostat.read(NFS.format(61000)))  # type: ignore[misc]
    assert "61 s" in found.says


def test_reads_of_milliseconds_are_no_finding() -> None:
    assert list(nfsiostat.TOOL.findings(nfsiostat.read(NFS.format(11)))) == []  # type: ignore[misc]


def test_uptime_p_is_known_under_any_name_and_a_date_may_stand_before_uptime_s() -> None:
    assert boots.TOOL.fits("up 6 weeks, 2 days, 3 hours\n", "clush.txt")
    assert boots.TOOL.fits("Mon May 11 02:31:11 UTC 2026\n2026-05-11 02:14:41\n", "date_uptime_-s")


def test_clockdiff_tells_of_the_node_that_it_asked() -> None:
    told = clock_lines.by_node("host=n-7 rtt=1(0)ms/1ms delta=-181871ms/-181871ms Mon May 11 02:31:12 2026\n")
    assert told["n-7"].service_offset_s == pytest.approx(-181.871)


AGENT = "Detected dead node 'n-2_77_0'\ntorch.distributed.elastic.rendezvous.api.RendezvousClosedError\n"


def test_of_two_clocks_that_is_off_whose_node_the_rendezvous_drops(tmp_path: Path) -> None:
    loop = "n-1 1780000000.1\nn-2 1779999870.2\n"
    assert cause(tmp_path, loop__txt=loop, agent__log=AGENT) == ("host.clock_offset", {"node": "n-2"})


def test_two_clocks_within_seconds_are_no_reason(tmp_path: Path) -> None:
    assert cause(tmp_path, loop__txt="n-1 1780000000.1\nn-2 1780000002.2\n", agent__log=AGENT)[0] != "host.clock_offset"


def test_a_panel_of_clocks_tells_of_its_columns(tmp_path: Path) -> None:
    text = "Time,n-1:9100,n-2:9100\n2026-05-11 02:10:00,0.00001,41.1\n2026-05-11 02:11:00,0.00001,41.2\n"
    assert cause(tmp_path, ntp_offset__csv=text, agent__log=AGENT) == ("host.clock_offset", {"node": "n-2"})


# Threads, versions, machines


def test_threads_that_the_system_refuses_are_too_many_unless_the_job_went_on(tmp_path: Path) -> None:
    refused = "OpenBLAS blas_thread_init: pthread_create failed for thread 9 of 96: Resource temporarily unavailable\n"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert cause(tmp_path / "a", err__log=refused)[0] == "cpu.thread_oversubscription"
    steps = "".join(f"step {n} loss=2.{n}\n" for n in range(10, 30))
    assert cause(tmp_path / "b", err__log=refused + steps)[0] in ("none", "unknown")


def test_two_nodes_with_different_libraries_are_told_without_blame(tmp_path: Path) -> None:
    for node, version in (("n-1", "2.21.5"), ("n-2", "2.20.5")):
        (tmp_path / node).mkdir()
        (tmp_path / node / "pip_freeze.txt").write_text(f"numpy==1.26.4\nnvidia-nccl-cu12=={version}\ntorch==2.5.1\n")
    told = {one.hypothesis.cause: dict(one.hypothesis.subject) for one in explain([tmp_path]).diagnosis.ranked}
    assert told["host.library_mismatch"] == {}


def test_a_bus_error_on_the_node_of_an_uncorrected_error_speaks_for_the_machine(tmp_path: Path) -> None:
    (tmp_path / "n9").mkdir()
    (tmp_path / "n9" / "mcelog.txt").write_text(
        "Hardware event. This is not a software error.\nMCE 0\nCPU 3 BANK 7 TSC 1a2b3c ADDR 2f1a40c0\n"
        "MCG status:MCIP RIPV\nSTATUS bd00000000010091 MCGSTATUS 5\nUncorrected error\n"
    )
    (tmp_path / "n9" / "run.log").write_text(
        "E0511 02:13:13.812000 228 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -7) "
        "local_rank: 5 (pid: 481) of binary: /opt/conda/bin/python3.11\n"
    )
    assert cause(tmp_path)[0] == "host.machine_check"


def test_one_of_two_nodes_that_is_young_leads_only_where_a_rank_lost_another(tmp_path: Path) -> None:
    up = "== n-1\n 02:30:08 up 31 days,  2:10,  1 user,  load average: 9.1, 9.3, 9.1\n"
    up += "== n-2\n 02:30:08 up 5:06,  1 user,  load average: 9.1, 9.3, 9.1\n"
    assert cause(tmp_path, up__txt=up)[0] == "unknown"


# Tables of steps


def test_titans_table_tells_how_long_its_data_took() -> None:
    head = "step,time_metrics/end_to_end(s),time_metrics/data_loading(s),time_metrics/data_loading(%)\n"
    told = steps_in(head + "10,4.8,4.1,85.4\n20,4.9,4.2,85.7\n")
    assert told.splitlines()[0] == "step 10 step_time 4.800000 s data_time: 4.100000 s"


# Two looks at one task


def _looked(folder: Path, second: int) -> float:
    (folder / "n7").mkdir()
    for look, pid in ((1, 411), (2, second)):
        (folder / "n7" / f"ps_{look}.txt").write_text(
            f"  PID STAT WCHAN                          COMMAND\n  {pid} Dl   nfs_wait_bit_killable          python\n"
        )
    ranked = explain([folder]).diagnosis.ranked
    return max((one.probability for one in ranked if one.hypothesis.cause == "host.storage_stall"), default=0.0)


def test_a_task_that_waits_for_one_file_server_at_both_looks_is_stuck(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert _looked(tmp_path / "a", 411) > 0.5
    assert _looked(tmp_path / "b", 412) < 0.4
