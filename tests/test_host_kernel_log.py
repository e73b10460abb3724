"""host.kernel_log beyond its recorded outputs: forms of a log line, bursts, severities, and the collector itself."""

from __future__ import annotations

import time

import pytest

from probes import reference
from probes.catalog.host_kernel_log import findings, parse
from probes.catalog.kernel.gpu import bus_id
from probes.core import ParseError

XID79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid=77, name=python3, GPU has fallen off the bus."
AT = 1737426093.5  # 2025-01-21T02:21:33.5 UTC, by date(1)


def sectioned(log: str, now: float = AT + 600, uptime: float = 1000.0) -> str:
    return f"==> date +%s.%N <==\n{now}\n\n==> /proc/uptime <==\n{uptime}\n\n==> dmesg <==\n{log}\n"


def severities(log: str) -> dict[int, str]:
    return {int(finding.subject["xid"]): finding.severity for finding in findings(parse(log))}


# Forms


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (f"2025-01-21T02:21:33,500000+00:00 {XID79}", AT),
        (f"2025-01-21T03:21:33.500000+01:00 {XID79}", AT),
        (f"kern  :warn  : 2025-01-21T02:21:33,500000+00:00 {XID79}", AT),
        (f"2025-01-21T02:21:33.500000+0000 node-7 kernel: {XID79}", AT),
        (f"2025-01-21T02:21:33.500000+00:00 node-7 kernel: [  400.000000] {XID79}", AT),
        (f"[  400.000000] {XID79}", AT),
        (f"[  400.000000][   T41] {XID79}", AT),
        (f"[  400.000000][ C3] {XID79}", AT),
        (f"<4>[  400.000000] {XID79}", AT),
        (f"kern  :warn  : [  400.000000] {XID79}", AT),
        (f"4,3964,400000000,-;{XID79}", AT),
        (f"4,3964,400000000,-,caller=T41;{XID79}", AT),
        (f"Jan 21 02:21:33 node-7 kernel: [  400.000000] {XID79}", AT),
        (f"Jan  1 02:21:33 node-7 kernel: {XID79}", None),
        (f"[Tue Jan 21 02:21:33 2025] {XID79}", None),
        (XID79, None),
    ],
)
def test_a_line_reads_the_same_in_every_form(line: str, at: float | None) -> None:
    """Read at AT + 600 s, 1000 s after boot: second 400 after boot is AT. Local times are no times in UTC."""
    (xid,) = parse(sectioned(line)).xids
    assert (xid.bus_id, xid.xid, xid.pid, xid.process) == ("0000:1b:00", 79, 77, "python3")
    assert xid.first_at == (None if at is None else pytest.approx(at))


@pytest.mark.parametrize(
    ("printed", "normal"),
    [
        ("PCI:0000:38:00", "0000:38:00"),
        ("00000000:38:00.0", "0000:38:00"),
        ("PCI:0018:01:00", "0018:01:00"),
        ("0000:DC:00.0", "0000:dc:00"),
        ("03:00", "0000:03:00"),
        ("PCI:0000:85:00 GPU-I:05", "0000:85:00"),
        ("PCI:zz:00:00", ""),
        ("", ""),
    ],
)
def test_bus_ids_have_one_form(printed: str, normal: str) -> None:
    assert bus_id(printed) == normal


def test_lines_of_other_programs_are_not_the_kernels_word() -> None:
    lines = ["Jan 21 02:21:33 n kernel: fine", f"Jan 21 02:21:33 n app[7]: {XID79}"]
    log = parse("\n".join([*lines, f"2025-01-21T02:21:33+00:00 n app[7]: {XID79}"]))
    assert log.xids == ()


def test_an_empty_log_is_fine_and_has_no_findings() -> None:
    log = parse(sectioned(""))
    assert (log.lines, list(findings(log))) == (0, [])


@pytest.mark.parametrize("text", ["<html>", "\0\0\0", "sudo: a password is required", "lost\nand\nfound"])
def test_what_is_no_kernel_log_is_an_error(text: str) -> None:
    with pytest.raises(ParseError, match="expected a kernel log"):
        parse(text)


# Bursts and times


def test_the_same_xid_within_three_hours_is_one_event_and_later_a_second() -> None:
    def line(hour: int) -> str:
        return f"2025-01-21T{hour:02}:00:00+00:00 {XID79}"

    once = parse("\n".join(line(hour) for hour in (1, 3, 6)))
    assert [(xid.count, xid.bursts) for xid in once.xids] == [(3, 3)]
    twice = parse("\n".join(line(hour) for hour in (1, 3, 7)))
    assert [(xid.count, xid.bursts) for xid in twice.xids] == [(2, 2), (1, 1)]


@pytest.mark.parametrize(("code", "pause", "bursts"), [(13, 20, 2), (13, 14, 1), (31, 20, 1), (31, 181, 2)])
def test_a_burst_ends_after_15_s_for_xid_13_and_3_min_for_others(code: int, pause: int, bursts: int) -> None:
    lines = [f"[  {second}.0] NVRM: Xid (PCI:0000:1b:00): {code}, x" for second in (100, 100 + pause)]
    assert [(xid.count, xid.bursts) for xid in parse("\n".join(lines)).xids] == [(2, bursts)]


def test_findings_carry_age_and_count_and_never_say_now() -> None:
    log = parse(sectioned("\n".join(f"[  {second}.000000] {XID79}" for second in (100, 101, 400))))
    (finding,) = findings(log)
    assert "3 times in 2 bursts from 2025-01-21 02:16:33 UTC to 2025-01-21 02:21:33 UTC" in finding.says
    assert "the last 10 min before this reading" in finding.says
    assert " now" not in finding.says


def test_hundreds_of_kinds_of_events_do_not_fill_the_memory() -> None:
    log = parse("\n".join(f"[ 1.0] NVRM: Xid (PCI:{n:04x}:00:00): 79, x" for n in range(3000)))
    assert len(log.xids) == 500


# Severity


def test_every_xid_of_the_field_table_has_a_row() -> None:
    codes = [code for row in reference.rows("xid") for code in row["codes"]]
    asked = {
        8,
        11,
        13,
        31,
        43,
        45,
        46,
        48,
        54,
        61,
        62,
        63,
        64,
        69,
        74,
        79,
        92,
        94,
        95,
        109,
        110,
        119,
        120,
        136,
        140,
        143,
    }
    assert asked | set(range(144, 152)) | {154, 155, 158, 160, 167, 172} <= set(codes)
    assert len(codes) == len(set(codes)), "a code stands in one row"
    for row in reference.rows("xid"):
        assert row["class"] in ("APP", "HW", "DRV", "SYM", "INFO") and row["severity"] in ("info", "warn", "bad"), row


def test_row_remapping_alone_is_harmless_and_beside_an_ecc_error_it_is_not() -> None:
    remap = "[ 1.0] NVRM: Xid (PCI:0000:19:00): 63, Row Remapper: New row marked for remapping"
    assert severities(remap) == {63: "info"}
    assert severities(f"{remap}\n[ 2.0] NVRM: Xid (PCI:0000:19:00): 48, DBE") == {63: "warn", 48: "bad"}
    assert severities(f"{remap}\n[ 2.0] NVRM: Xid (PCI:0000:1a:00): 48, DBE") == {63: "info", 48: "bad"}


@pytest.mark.parametrize(
    ("message", "severity"),
    [
        ("45, pid=1, name=python3, Ch 00000001 caused by previous Xid 149", "info"),
        ("43, pid=1, name=python3, Ch 00000001", "info"),
        ("144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)", "info"),
        ("149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)", "warn"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", "bad"),
        ("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "info"),
        ("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "warn"),
        ("79, GPU has fallen off the bus.", "bad"),
        ("999, something new", "warn"),
    ],
)
def test_severity_follows_the_table_and_the_words_of_the_line(message: str, severity: str) -> None:
    code = int(message.split(",")[0])
    assert severities(f"[ 1.0] NVRM: Xid (PCI:0000:19:00): {message}") == {code: severity}


def test_the_verdict_of_154_is_what_to_do() -> None:
    line = "[ 1.0] NVRM: Xid (PCI:0000:19:00): 154, GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"
    (finding,) = findings(parse(line))
    assert "To do: Drain P2P" in finding.says


def test_a_gpu_off_the_bus_is_told_once_and_not_beside_its_xid_79() -> None:
    words = (
        "The NVIDIA GPU 0000:b3:00.0",
        "(PCI ID: 10de:26b5) installed in",
        "fallen off the bus and is not responding",
    )
    bare = "\n".join(f"[ 1.0] NVRM: {part}" for part in words)
    assert [finding.code for finding in findings(parse(bare))] == ["kernel.gpu_off_bus"]
    assert [f.code for f in findings(parse(f"{bare}\n[ 2.0] NVRM: Xid (PCI:0000:b3:00): 79, x"))] == ["kernel.xid"]


def test_an_nfs_server_that_answers_again_is_no_longer_at_fault() -> None:
    lost = "[ 1.0] nfs: server s not responding, still trying"
    back = "[ 9.0] nfs: server s OK"
    assert [f.severity for f in findings(parse(lost))] == ["bad"]
    assert [f.severity for f in findings(parse(f"{lost}\n{back}"))] == ["info"]
    assert [f.severity for f in findings(parse(f"{lost}\n{back}\n{lost}"))] == ["bad"]
    assert [f.severity for f in findings(parse(f"{lost}\n[ 9.0] nfs: server t OK"))] == ["bad"]


@pytest.mark.parametrize(("second", "codes"), [(599, []), (601, ["kernel.link", "kernel.hca"])])
def test_ports_that_are_down_while_the_node_boots_are_unused_ones(second: int, codes: list[str]) -> None:
    words = ("0000:9d:00.1 enp1: Link down", "0000:9d:00.1: Port module event: module 1, Cable unplugged")
    lines = "\n".join(f"[ {second}.0] mlx5_core {part}" for part in words)
    assert [finding.code for finding in findings(parse(sectioned(lines)))] == codes
    assert list(findings(parse(lines))) == []


@pytest.mark.parametrize(
    ("messages", "severity"), [("up down up", "info"), ("up down up down up", "warn"), ("up down", "bad")]
)
def test_a_port_that_was_up_and_went_down_is_told(messages: str, severity: str) -> None:
    log = "\n".join(f"[ 1.0] mlx5_core 0000:9d:00.1 enp1: Link {state}" for state in messages.split())
    assert [(f.code, f.severity) for f in findings(parse(log))] == [("kernel.link", severity)]


@pytest.mark.parametrize(("device", "severity"), [("sda", "bad"), ("nvme0n1", "bad"), ("sr0", "info"), ("fd0", "info")])
def test_a_drive_without_a_disk_in_it_is_no_fault(device: str, severity: str) -> None:
    (finding,) = findings(
        parse(f"[ 1.0] blk_update_request: I/O error, dev {device}, sector 0 op 0x0:(READ) flags 0x0")
    )
    assert (finding.severity, finding.subject["device"]) == (severity, device)


@pytest.mark.parametrize(
    ("message", "device"),
    [
        ("Buffer I/O error on dev dm-0, logical block 7, async page read", "dm-0"),
        ("Buffer I/O error on device sdb, logical block 7", "sdb"),
        ("critical medium error, dev sdc, sector 7", "sdc"),
        ("EXT4-fs (sde1): I/O error while writing superblock", "sde1"),
        ('XFS (nvme0n1p1): metadata I/O error in "xfs_buf_ioend" at daddr 0x1 len 8 error 5', "nvme0n1p1"),
        ("EXT4-fs error (device sdd1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0", "sdd1"),
    ],
)
def test_io_errors_name_their_device_in_every_wording(message: str, device: str) -> None:
    (error,) = parse(f"[ 1.0] {message}").io_errors
    assert error.device == device


def test_what_one_oom_report_says_is_not_said_of_the_next_victim() -> None:
    report = ["python invoked oom-killer: gfp_mask=0x0", "memory: usage 9kB, limit 1024kB, failcnt 8"]
    lines = [*report, "x invoked oom-killer: gfp_mask=0x0", "Out of memory: Killed process 2 (x) total-vm:1kB"]
    (kill,) = parse("\n".join(f"[ 1.0] {part}" for part in lines)).oom_kills
    assert (kill.limit_bytes, kill.constraint) == (None, "")


@pytest.mark.parametrize(("times", "severity"), [(9, "info"), (10, "warn")])
def test_corrected_pcie_errors_matter_as_a_storm(times: int, severity: str) -> None:
    line = "[ 1.0] pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)\n"
    (finding,) = findings(parse(line * times))
    assert (finding.severity, finding.subject["device"]) == (severity, "0000:00:03.0")


@pytest.mark.parametrize(
    "name", ["a:b", "kworker/u8:2[x]", "task (with) brackets", "x blocked", ":", "migration/3", "python3.10: eval"]
)
def test_names_of_hung_tasks_may_hold_anything(name: str) -> None:
    (task,) = parse(f"[ 1.0] INFO: task {name}:1234 blocked for more than 120 seconds.").hung_tasks
    assert (task.pid, task.process) == (1234, name)


@pytest.mark.parametrize("name", ["python", "a) total", "(sd-pam)"])
def test_names_of_killed_processes_may_hold_brackets(name: str) -> None:
    (kill,) = parse(
        f"[ 1.0] Out of memory: Killed process 12 ({name}) total-vm:1kB, anon-rss:2kB, file-rss:0kB"
    ).oom_kills
    assert (kill.pid, kill.process, kill.rss_bytes) == (12, name, 2048)


# Hostile input


def test_a_number_that_no_clock_reaches_is_no_time() -> None:
    log = parse(sectioned("[99999999999999.5] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."))
    assert [xid.first_at for xid in log.xids] == [None]
    assert [finding.severity for finding in findings(log)] == ["bad"]


@pytest.mark.parametrize(
    "piece",
    [
        "[", "NVRM: Xid (", "Xid (PCI:", "Killed process ", "INFO: task :", " blocked for more than ", "] ", "9",
        "EDAC MC0: 1 CE ", "SXid (PCI:0000:04:00.0): ", "1,1,1,-;", "PCIe Bus Error: severity=", ": server ",
        "mlx5_core ", "x+0x1/0x2 [m]",
    ],
)  # fmt: skip
def test_long_hostile_lines_are_read_in_no_time(piece: str) -> None:
    head = "[ 1.0] INFO: task t:1 blocked for more than 120 seconds.\n"
    text = head + "\n".join(piece * (100_000 // len(piece)) for _ in range(5)) + "\n" + f"{piece}\n" * 5_000
    began = time.monotonic()
    list(findings(parse(text)))
    assert time.monotonic() - began < 1.0
