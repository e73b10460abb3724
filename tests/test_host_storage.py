"""host.storage beyond its recorded outputs: thresholds, what counts as stuck, what is never touched, the collector."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from probes.catalog import host_storage
from probes.catalog.host.storage_facts import waits_for
from probes.catalog.host_storage import PROBE, findings, parse
from probes.core import ParseError
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.namespaces import root_is_a_mount, unshare_mounts
from tests.support.sshd_nodes import FrozenMount
from tests.support.wait import until

ROOT = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw"
NFS = "40 22 0:50 / /data rw - nfs4 s:/data rw"


def storage(mounts: str = ROOT, **parts: str) -> str:
    named = {"/proc/self/mountinfo": mounts} | {key.replace("_", " "): text for key, text in parts.items()}
    return "\n".join(f"==> {place(name)} <==\n{text}\n" for name, text in named.items())


def place(name: str) -> str:
    word, _, number = name.partition(" ")
    folder = "/proc/self/" if word == "mountstats" else "golden15/" if not word.startswith("/") else ""
    return f"{folder}{name}"


def found(text: str) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in findings(parse(text))]


def blocked(wchan: str, pid: int = 5, switches: int = 1, parent: int = 1, started: int = 9) -> str:
    return f"{wchan} {switches} {pid} (python) D {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started} 1 1"


def mountstats(sends: int, receives: int, operations: int) -> str:
    head = "device s:/data mounted on /data with fstype nfs4 statvers=1.1\n"
    xprt = f"\txprt:\ttcp 832 0 1 0 11 {sends} {receives} 0 12154 0 24 26 5726\n"
    return f"{head}{xprt}\tper-op statistics\n\t        READ: {operations} {operations} 0 1 1 6 7 8"


# Disks and shared memory


@pytest.mark.parametrize(("free", "severity"), [(101, None), (100, "warn"), (51, "warn"), (50, "bad"), (0, "bad")])
def test_a_disk_is_judged_as_df_prints_it(free: int, severity: str | None) -> None:
    text = storage(statvfs=f"/\tok\t4096 1000 {free} {free} 1000 900")
    assert found(text) == ([("host.disk_full", severity)] if severity else [])


def test_blocks_kept_for_root_count_as_used() -> None:
    """df(1): used / (used + available). 600 used of 1000, 300 available to others, 100 kept: 66.7 percent."""
    (disk,) = parse(storage(statvfs="/\tok\t4096 1000 400 300 0 0")).disks
    assert (disk.used_percent, disk.free_bytes, disk.inodes_used_percent) == (66.7, 300 * 4096, None)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("hung", "host.disk_silent"),
        ("timeout", "host.disk_silent"),
        ("failed", "host.disk_silent"),
        ("denied", None),
        ("absent", None),
    ],
)
def test_a_disk_that_does_not_answer_is_bad_and_one_that_we_may_not_ask_is_not(outcome: str, code: str | None) -> None:
    assert found(storage(statvfs=f"/\t{outcome}\twhy")) == ([(code, "bad")] if code else [])


def test_a_file_system_that_an_error_made_read_only_is_told_once_per_disk() -> None:
    line = "22 1 8:17 / {} rw - xfs /dev/sdb1 ro"
    assert found(storage("\n".join(line.format(f"/var/{n}") for n in range(50)))) == [("host.fs_readonly", "bad")]
    assert found(storage("22 1 8:17 / /x ro - xfs /dev/sdb1 ro")) == []


def test_only_the_upper_of_two_mounts_on_one_point_counts() -> None:
    lower, upper = "22 1 8:1 / /d rw - ext4 /dev/a rw", "23 1 8:2 / /d rw - xfs /dev/b rw"
    (disk,) = parse(storage(f"{lower}\n{upper}", statvfs="/d\tok\t1 10 5 5 0 0")).disks
    assert disk.device == "/dev/b"


@pytest.mark.parametrize(
    ("pids", "blocks", "free", "expected"),
    [
        ("7", 16384, 16384, [("host.shm_small", "warn")]),
        ("7", 16385, 16385, []),
        ("7", 10000, 990, [("host.shm_full", "bad")]),
        ("7", 10000, 1000, []),
        ("7", 0, 0, []),
    ],
)
def test_shared_memory_of_a_container(pids: str, blocks: int, free: int, expected: list[tuple[str, str]]) -> None:
    assert found(storage(shm=f"{pids}\tok\t4096 {blocks} {free} {free} 0 0")) == expected


def test_dockers_default_in_our_own_namespace_is_only_a_note() -> None:
    text = storage("25 24 0:23 / /dev/shm rw - tmpfs shm rw", statvfs="/dev/shm\tok\t4096 16384 16000 16000 0 0")
    assert found(text) == [("host.shm_small", "info")]


# Stuck tasks and NFS


@pytest.mark.parametrize(
    ("first", "second", "stuck"),
    [
        (blocked("nfs_wait"), blocked("nfs_wait"), True),
        (blocked("nfs_wait"), blocked("nfs_other"), False),
        (blocked("nfs_wait"), blocked("nfs_wait", switches=2), False),
        (blocked("nfs_wait"), blocked("nfs_wait", started=10), False),
        (blocked("nfs_wait", pid=4), blocked("nfs_wait", pid=5), False),
        ("", blocked("nfs_wait"), False),
        (blocked("-"), blocked("-"), True),
        (blocked("nfs_wait"), None, False),
    ],
)
def test_only_a_task_that_has_not_moved_between_two_samples_is_stuck(
    first: str, second: str | None, stuck: bool
) -> None:
    read = parse(storage(blocked_1=first, **({} if second is None else {"blocked_2": second})))
    assert [task.stuck for task in read.blocked] == [stuck]


def test_hundreds_of_tasks_in_one_function_are_one_finding() -> None:
    lines = "\n".join(blocked("rpc_wait_bit_killable", pid) for pid in range(10, 300))
    (finding,) = findings(parse(storage(blocked_1=lines, blocked_2=lines)))
    assert finding.severity == "bad" and finding.says.startswith("290 tasks are stuck") and "NFS" in finding.says


def test_a_kernel_thread_or_an_unknown_wait_is_a_warning() -> None:
    thread, unknown = blocked("nfs_wait", parent=2), blocked("folio_wait_bit", pid=6)
    text = storage(blocked_1=f"{thread}\n{unknown}", blocked_2=f"{thread}\n{unknown}")
    assert found(text) == [("host.task_stuck", "warn"), ("host.task_stuck", "warn")]


@pytest.mark.parametrize(
    ("wchan", "what"),
    [
        ("rpc_wait_bit_killable", "NFS (RPC)"),
        ("nfs4_wait_clnt_recover", "NFS"),
        ("ptlrpc_set_wait", "Lustre"),
        ("ll_file_io", "Lustre"),
        ("uvm_va_space_mm_shutdown", "the NVIDIA UVM driver"),
        ("nvidia_ioctl", "the NVIDIA driver"),
        ("os_acquire_rwlock_write", "the NVIDIA driver"),
        ("request_wait_answer", ""),
        ("", ""),
    ],
)
def test_the_function_says_what_a_task_waits_for(wchan: str, what: str) -> None:
    assert waits_for(wchan) == what


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((10, 10, 5), (13, 10, 5), ["warn"]),  # sent, nothing came back
        ((13, 10, 5), (13, 10, 5), ["info"]),  # old requests, or a lost connection's
        ((13, 10, 5), (14, 11, 6), []),
        ((10, 10, 5), (10, 10, 5), []),
        ((13, 10, 5), (13, 10, 6), []),
    ],
)
def test_an_nfs_mount_is_silent_when_requests_are_out_and_nothing_comes_back(
    before: tuple[int, int, int], after: tuple[int, int, int], expected: list[str]
) -> None:
    text = storage(NFS, mountstats_1=mountstats(*before), mountstats_2=mountstats(*after))
    assert found(text) == [("host.nfs_silent", severity) for severity in expected]


def test_a_task_that_waits_for_nfs_proves_that_old_requests_matter() -> None:
    stats, task = mountstats(13, 10, 5), blocked("rpc_wait_bit_killable")
    text = storage(NFS, mountstats_1=stats, mountstats_2=stats, blocked_1=task, blocked_2=task)
    assert found(text) == [("host.task_stuck", "bad"), ("host.nfs_silent", "warn")]


# Broken and hostile input


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("==> golden15/statvfs <==\n/\tok\t1 2 3 4 5 6\n", "no section /proc/self/mountinfo"),
        (storage("no mounts here"), "proc_pid_mountinfo"),
        (storage(statvfs="/ ok 1"), "expected name, outcome and numbers"),
        (storage(statvfs="/\tok\t1 2 3 4 5 -6"), "expected six numbers"),
        (storage(shm="pid\tok\t1 2 3 4 5 6"), "expected process numbers"),
        (storage(NFS, mountstats_2="device s mounted on /data with fstype nfs\n\txprt:\ttcp 1"), "expected counters"),
        (storage(blocked_1="- 1 5 (python) D"), "expected wchan, switches"),
    ],
)
def test_what_the_kernel_cannot_print_is_an_error(text: str, error: str) -> None:
    with pytest.raises(ParseError, match=error):
        parse(text)


@pytest.mark.parametrize("piece", [" - ", "\t", ") D ", "9 ", "xprt: ", "device ", "READ: 1 1 "])
def test_long_hostile_lines_are_read_in_no_time(piece: str) -> None:
    line = piece * (100_000 // len(piece))
    began = time.monotonic()
    for section in ("statvfs", "shm", "blocked_1", "blocked_2", "mountstats_1"):
        with suppress(ParseError):
            parse(storage(NFS, **{section: line}))
    assert time.monotonic() - began < 1.0


# The collector, for real


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_this_machines_storage_is_read(python: str) -> None:
    capture = capture_here(PROBE, python)
    assert capture.outcome == "ok", capture.why
    assert capture.took_s < 5
    read = parse(capture.text)
    assert not root_is_a_mount() or "/" in [disk.mount for disk in read.disks]
    for disk in read.disks:
        room = os.statvfs(disk.mount)
        assert disk.size_bytes == room.f_frsize * room.f_blocks


def test_network_mounts_are_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = (
        "nfs",
        "nfs4",
        "cifs",
        "lustre",
        "gpfs",
        "ceph",
        "beegfs",
        "wekafs",
        "fuse.sshfs",
        "9p",
        "autofs",
        "squashfs",
    )
    lines = [ROOT, *(f"{n} 1 0:{n} / /net/{kind} rw - {kind} s rw" for n, kind in enumerate(kinds, 50))]
    asked: list[str] = []

    def pretend(path: str, limit: int = 0) -> str:
        if path == "/proc/self/mountinfo":
            return "\n".join(lines)
        raise OSError(path)

    def isolate(calls: list[tuple[str, Any]], deadline_s: float) -> list[dict[str, Any]]:
        asked.extend(name for name, _ in calls)
        return []

    monkeypatch.setattr(host_storage, "read", pretend)
    monkeypatch.setattr(host_storage, "isolate", isolate)
    monkeypatch.setattr(os, "statvfs", lambda path: asked.append(path))
    host_storage._collect()
    assert asked == ["/"]


@pytest.mark.needs_root
def test_a_writer_to_a_frozen_file_system_is_seen_as_stuck(tmp_path: Path) -> None:
    with FrozenMount(tmp_path) as frozen:
        writer = subprocess.Popen(
            ["dd", "if=/dev/zero", f"of={frozen.mount}/x", "bs=1k", "count=1"], stderr=subprocess.DEVNULL
        )
        try:
            stat = Path(f"/proc/{writer.pid}/stat")
            until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "D", 10, "state D")
            capture = capture_here(PROBE)
        finally:
            frozen.thaw()
            writer.wait(10)
    assert capture.outcome == "ok", capture.why
    assert capture.took_s < 5
    read = parse(capture.text)
    (task,) = [task for task in read.blocked if task.pid == writer.pid]
    assert (task.comm, task.stuck, task.kernel_thread) == ("dd", True, False)


@pytest.mark.needs_root
def test_the_shared_memory_of_a_container_is_measured() -> None:
    inside = "mount -t tmpfs -o size=64m tmpfs /dev/shm && echo ready && exec "
    python = f"'{sys.executable}' -I -S -c 'import time; time.sleep(60)'"
    container = subprocess.Popen(["unshare", *unshare_mounts(), "sh", "-c", inside + python], stdout=subprocess.PIPE)
    try:
        assert container.stdout is not None and container.stdout.readline() == b"ready\n"
        comm = Path(f"/proc/{container.pid}/comm")
        until(lambda: comm.read_text().startswith("python"), 10, "python in the namespace")
        read = parse(capture_here(PROBE).text)
    finally:
        container.kill()
        container.communicate()
    (shm,) = [shm for shm in read.shm if container.pid in shm.pids]
    assert (shm.size_bytes, shm.used_percent) == (64 * 2**20, 0.0)
