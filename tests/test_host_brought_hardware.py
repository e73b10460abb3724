"""Storage, machines, boots and versions as people bring them: one command's output, one file of one node."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from probes.intake import hosts
from probes.intake.tools.host import hardware_log, stuck_in_files
from tests.support.brought import told

STEPS = "".join(f"2026-03-11 09:{minute:02d}:10 step {minute} loss 2.1 step_time 55 s\n" for minute in range(10, 40))


# Names of files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("gn-41.dmesg", "gn-41"),
        ("n22_kern.log", "n22"),
        ("dmesg_c3-14.txt", "c3-14"),
        ("dmesg2.txt", ""),
        ("ticket-4411_dmesg.txt", ""),
        ("rank3.dmesg", ""),
        ("gpu3.dmesg", ""),
        ("before1_dmesg.txt", ""),
        ("messages", ""),
    ],
)
def test_a_file_of_a_whole_node_may_be_called_by_the_node_and_the_tool(name: str, node: str) -> None:
    assert hosts.lone_node(PurePosixPath(name)) == node


def test_a_console_over_the_lan_is_its_node_s() -> None:
    assert hosts.node_of_name(PurePosixPath("dgx-41-sol.log"), ()) == "dgx-41"


# Storage --------------------------------------------------------------------------------------------------------------

HEAD = "    PID STAT WCHAN                            CMD\n"


def test_tasks_that_wait_for_a_file_server_lead_and_one_that_reads_a_disk_does_not(tmp_path: Path) -> None:
    rows = "".join(f"  {pid} Ds   nfs4_wait_clnt_recover           python pretrain.py\n" for pid in (881, 882, 883))
    prompt = "[a@vn-3 ~]$ ps -eo pid,stat,wchan:32,cmd | grep ' D'\n"
    found = told(tmp_path / "nfs", {"ps.txt": prompt + HEAD + rows})
    assert (found.cause, found.subject) == ("host.storage_stall", {"node": "vn-3"})
    one = "    881 D    folio_wait_bit_common            python pretrain.py\n"
    assert told(tmp_path / "disk", {"ps.txt": prompt + HEAD + one}).cause in ("none", "unknown")


def test_rows_of_ps_in_a_file_system_are_read_without_a_heading() -> None:
    text = "ml  4411  0.0 D  fuse_wait_on_page_writeback python\nml  4412  0.0 S  do_epoll_wait python\n"
    assert [(one.pid, one.remote) for one in stuck_in_files.read(text).tasks] == [(4411, True)]
    assert not stuck_in_files.fits("ml 4412 S nfs_wait python\nml 4413 R - grep nfs_wait\n", "")


def test_a_drive_and_its_controller_are_one(tmp_path: Path) -> None:
    kernel = (
        "Mar 11 09:38:12 tz9 kernel: nvme nvme4: I/O 211 QID 14 timeout, aborting\n"
        "Mar 11 09:39:42 tz9 kernel: blk_update_request: I/O error, dev nvme4n1, sector 8812 op 0x0:(READ) flags 0x0\n"
    )
    found = told(tmp_path, {"kern.log": kernel, "t.log": STEPS})
    disks = [one for one in found.diagnosis.ranked if one.hypothesis.cause == "host.storage_stall"]
    assert [one.hypothesis.subject for one in disks] == [{"node": "tz9", "device": "nvme4"}]


# Machines -------------------------------------------------------------------------------------------------------------

RAS = """Memory controller events:
1 2026-03-11 09:39:01 +0100 1 {} error(s): memory read error at CPU_SrcID#1 location: 0:1:0:-1, addr 3518, grain 5

No PCIe AER errors.

MCE events:
1 2026-03-11 09:39:01 +0100 error: Memory read error, mcg mcgstatus=5, mci {}, mcgcap=0x0f
"""


def test_what_ras_mc_ctl_lists_is_read(tmp_path: Path) -> None:
    bad = RAS.format("Uncorrected", "Uncorrected_error")
    assert [one.kind for one in hardware_log.read(bad).errors] == ["uncorrected", "uncorrected"]
    found = told(tmp_path / "bad", {"p.txt": f"[root@tz5 ~]# ras-mc-ctl --errors\n{bad}"})
    assert (found.cause, found.subject) == ("host.machine_check", {"node": "tz5"})
    good = RAS.format("Corrected", "Corrected_error")
    assert told(tmp_path / "good", {"p.txt": f"[root@tz5 ~]# ras-mc-ctl --errors\n{good}"}).cause in ("none", "unknown")


def test_memory_that_failed_explains_a_process_that_ended_by_sigbus(tmp_path: Path) -> None:
    kernel = (
        "Mar 11 09:39:01 tz5 kernel: EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0_DIMM#0 (channel:0 "
        "slot:0 page:0x1ff offset:0x0 grain:32)\n"
    )
    ended = "failed (exitcode: -7) local_rank: 5 (pid: 4120) of binary: /opt/conda/bin/python3.11\n"
    found = told(tmp_path, {"kern.log": kernel, "t.log": STEPS + ended})
    assert (found.cause, found.subject["node"]) == ("host.machine_check", "tz5") and found.probability > 0.9


# Boots ----------------------------------------------------------------------------------------------------------------


def test_a_boot_between_the_job_s_first_and_last_line_leads_but_is_not_certain_without_zones(tmp_path: Path) -> None:
    boots = (
        " -1 1f2e3d4c5b6a79880011223344556677 Sun 2026-02-01 08:11:12 UTC—Wed 2026-03-11 09:33:33 UTC\n"
        "  0 aabbccddeeff00112233445566778899 Wed 2026-03-11 {} UTC—Wed 2026-03-11 10:40:02 UTC\n"
    )
    shell = "[root@hgx2 ~]# journalctl --list-boots\n"
    within = told(tmp_path / "in", {"p.txt": shell + boots.format("09:35:00"), "t.log": STEPS})
    assert (within.cause, within.subject) == ("host.rebooted", {"node": "hgx2"}) and within.probability < 0.99
    early = told(tmp_path / "early", {"p.txt": shell + boots.format("03:35:00"), "t.log": STEPS})
    assert early.cause in ("none", "unknown")


def test_times_with_and_without_a_year_are_of_one_year(tmp_path: Path) -> None:
    glog = (
        "[rank1]:[E311 09:49:41.118 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
    )
    glog += (
        "WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds "
    )
    boot = "p1:          system boot  2026-02-01 10:00\np2:          system boot  2026-03-11 09:45\n"
    boot += "p3:          system boot  2026-02-01 10:00\n"
    found = told(tmp_path, {"t.log": STEPS + glog + "before timing out.\n", "boot.txt": boot})
    assert (found.cause, found.subject) == ("host.rebooted", {"node": "p2"})


def test_a_spot_machine_that_is_told_to_end_is_taken_away(tmp_path: Path) -> None:
    typed = "$ curl -s http://169.254.169.254/latest/meta-data/spot/instance-action\n"
    said = '{"action": "stop", "time": "2026-03-11T09:41:00Z"}\n'
    assert told(tmp_path, {"p.txt": typed + said, "t.log": STEPS}).cause == "host.rebooted"


# Versions -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices()? Error 803: system has unsupported display driver / cuda driver combination\n",
        "[rank8]: RuntimeError: The NVIDIA driver on your system is too old (found version 12020). Please update\n",
    ],
)
def test_a_line_that_refuses_the_driver_is_enough(tmp_path: Path, line: str) -> None:
    assert told(tmp_path, {"t.log": line}).cause == "host.library_mismatch"


def test_drivers_that_a_query_printed_of_many_nodes_are_compared(tmp_path: Path) -> None:
    typed = "$ clush -w h[1-3] nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0\n"
    rows = "h1: 570.124.06\nh2: 550.54.15\nh3: 570.124.06\n"
    refused = (
        "[rank8]: RuntimeError: The NVIDIA driver on your system is too old (found version 12040). Please update\n"
    )
    found = told(tmp_path, {"v.txt": typed + rows, "t.log": refused})
    assert found.cause == "host.library_mismatch" and found.subject["node"] == "h2"


# Beside each other ----------------------------------------------------------------------------------------------------

BUS = "failed (exitcode: -7) local_rank: 2 (pid: 4120) of binary: /opt/conda/bin/python3.11\n"


def test_what_ended_by_sigbus_beside_full_shared_memory_found_no_room_in_it(tmp_path: Path) -> None:
    head = "Filesystem      Size  Used Avail Use% Mounted on\n"
    full = told(tmp_path / "full", {"t.log": STEPS + BUS, "df.txt": head + "shm  64M  64M  0 100% /dev/shm\n"})
    assert full.cause == "host.shm_full" and full.probability > 0.8
    room = told(tmp_path / "room", {"t.log": STEPS + BUS, "df.txt": head + "tmpfs  504G  1G  503G 1% /dev/shm\n"})
    assert room.cause == "fw.rank_exited"


def test_edac_util_names_memory_controllers_and_no_nodes(tmp_path: Path) -> None:
    said = "mc0: 0 Uncorrected Errors with no DIMM info\nmc0: csrow0: 0 Uncorrected Errors\n"
    said += "mc1: csrow2: 2 Uncorrected Errors\n"
    found = told(tmp_path, {"p.txt": f"[root@tz7 ~]# edac-util -v\n{said}", "t.log": STEPS + BUS})
    assert (found.cause, found.subject["node"]) == ("host.machine_check", "tz7")


def test_a_node_that_restarted_after_the_job_began_is_named_however_late_somebody_asked(tmp_path: Path) -> None:
    row = "n{}:  {} up {},  0 users,  load average: 0.11, 0.31, 0.28\n"
    lost = "[rank3]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.\n"

    def asked(clock: str, up: str) -> str:
        return "".join(row.format(n, clock, up if n == 3 else "44 days,  3:11") for n in (1, 2, 3, 4))

    late = told(tmp_path / "late", {"t.log": STEPS + lost, "up.txt": asked("11:31:02", "1:50")})  # up since 09:41
    assert (late.cause, late.subject) == ("host.rebooted", {"node": "n3"})
    early = told(tmp_path / "early", {"t.log": STEPS, "up.txt": asked("11:31:02", "5:50")})  # since 05:41
    assert early.cause in ("none", "unknown")


def test_short_names_between_rules_are_nodes(tmp_path: Path) -> None:
    said = "      Local time: Wed 2026-03-11 09:{0} UTC\n  Universal time: Wed 2026-03-11 09:{0} UTC\n"
    said += "System clock synchronized: {1}\n              NTP service: active\n"
    rule = "---------------\n"
    blocks = "".join(
        f"{rule}n{n}\n{rule}{said.format('44:31' if n == 3 else '40:01', 'no' if n == 3 else 'yes')}" for n in (1, 2, 3)
    )
    error = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
    found = told(tmp_path, {"c.txt": f"$ clush -bw n[1-3] timedatectl\n{blocks}", "t.log": error})
    assert (found.cause, found.subject) == ("host.clock_offset", {"node": "n3"})


def test_images_are_full_by_nature(tmp_path: Path) -> None:
    df = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sr0        1.2G  1.2G     0 100% /media/cdrom\n"
    assert told(tmp_path, {"df.txt": df + "/dev/vda1  1.8T  811G  911G  48% /\n"}).share("host.disk_full") == 0


def test_the_kernel_s_words_of_memory_that_failed_are_read(tmp_path: Path) -> None:
    kernel = (
        "Mar 11 09:39:31 tz9 kernel: mce: Uncorrected hardware memory error in user-access at 3f81233c40\n"
        "Mar 11 09:39:31 tz9 kernel: Memory failure: 0x3f81233: Sending SIGBUS to python3:4120 due to hardware memory "
        "corruption\n"
    )
    found = told(tmp_path, {"kern.log": kernel, "t.log": STEPS + BUS})
    assert (found.cause, found.subject["node"]) == ("host.machine_check", "tz9")


def test_rows_of_stuck_tasks_may_be_counted_and_one_node_alone_may_answer(tmp_path: Path) -> None:
    typed = "$ pdsh -w vn[11-12] \"ps -eo stat,wchan:30,comm | grep '^D' | sort | uniq -c\"\n"
    rows = "vn12:      64 D    rpc_wait_bit_killable          pt_data_worker\n"
    found = told(tmp_path, {"p.txt": typed + rows})
    assert (found.cause, found.subject) == ("host.storage_stall", {"node": "vn12"}) and "64 tasks" in found.says


def test_a_notebook_that_made_room_for_the_job_is_no_end_of_the_job(tmp_path: Path) -> None:
    head = "LAST SEEN   TYPE      REASON      OBJECT                MESSAGE\n"
    row = "9m          Normal    Preempted   pod/{}     Preempted by ml/llm-w-3 on node gx2\n"
    notebook = told(tmp_path / "notebook", {"ev.txt": head + row.format("jupyter-eva-0"), "t.log": STEPS})
    assert notebook.cause in ("none", "unknown")
    assert told(tmp_path / "job", {"ev.txt": head + row.format("sft-w-0"), "t.log": STEPS}).cause == "job.cancelled"


def test_a_library_that_the_job_does_without_and_tasks_of_a_job_that_goes_on_accuse_nobody(tmp_path: Path) -> None:
    line = "WARNING no apex: ImportError: libcudart.so.11.0: cannot open shared object file: No such file, going on\n"
    lines = STEPS.splitlines(keepends=True)
    early = told(tmp_path / "early", {"t.log": "".join([*lines[:5], line, *lines[5:]])})
    assert early.cause in ("none", "unknown")
    assert told(tmp_path / "last", {"t.log": line.replace("WARNING no apex: ", "")}).cause == "host.library_mismatch"
    rows = "".join(
        f"  {pid} D    nfs_wait_bit_killable            python pretrain.py\n" for pid in (881, 882, 883, 884)
    )
    looked = "[a@vn-3 ~]$ date\nWed Mar 11 09:39:50 UTC 2026\n[a@vn-3 ~]$ ps -eo pid,stat,wchan:32,cmd | grep ' D'\n"
    moving = told(tmp_path / "moving", {"ps.txt": looked + HEAD + rows, "t.log": STEPS})
    assert moving.share("host.storage_stall") == 0
