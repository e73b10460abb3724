"""Storage that does not answer, as iostat, mmdiag and mmfs.log show it: iostat(1), mmdiag(8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import job_log, judged, raised, waited

HEAD = "Device            r/s     rkB/s   r_await     w/s     wkB/s w_await  aqu-sz  %util\n"
BUSY = "nvme0n1       9211.00 812331.00      0.41  512.00   9000.00    0.52    4.10  99.80\n"
STUCK = "nvme0n1          0.00      0.00      0.00    0.00      0.00    0.00  127.00 100.00\n"
OLD = "Device:  rrqm/s wrqm/s r/s w/s rkB/s wkB/s avgrq-sz avgqu-sz await r_await w_await svctm %util\n"
OLD_STUCK = "sdc 0.00 0.00 0.00 0.00 0.00 0.00 0.00 31.00 0.00 0.00 0.00 0.00 100.00\n"
WAITERS = (
    "=== mmdiag: waiters ===\n"
    "Waiting {}.4410 sec since 10:00:05, monitored, thread 41235 FileBlockReadFetchHandlerThread: on ThCond 0x18 "
    "(FsRecoveryCondvar), reason 'waiting for recovery' \n"
)
MMFS = (
    "2025-03-03_{0}:01:05.123+0000: [I] Node 10.1.1.2 (nsd2) appears to be slow\n"
    "2025-03-03_{0}:01:15.123+0000: [E] Disk lease period expired 0.210 seconds ago in cluster c1.\n"
    "2025-03-03_{0}:01:25.000+0000: [E] File system scratch unmounted by the system with return code 217\n"
)


def cause(tmp_path: Path, name: str, text: str) -> tuple[str, object]:
    job = {f"node-{1 + rank}/rank{rank}.log": job_log(f"node-{1 + rank}", rank, waited(rank)) for rank in range(3)}
    found = judged(tmp_path, job | {f"node-2/{name}": text}).verdict.hypothesis
    return found.cause, found.subject.get("node")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("iostat.txt", HEAD + BUSY + "\n" + HEAD + STUCK),
        ("iostat.txt", OLD + OLD_STUCK),
        ("waiters.txt", WAITERS.format(912)),
        ("mmfs.log.latest", MMFS.format("10")),
    ],
    ids=["iostat", "iostat of sysstat 10", "mmdiag", "mmfs.log"],
)
def test_storage_that_answers_nothing_is_named_with_its_node(tmp_path: Path, name: str, text: str) -> None:
    assert cause(tmp_path, name, text) == ("host.storage_stall", "node-2")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("iostat.txt", HEAD + STUCK + "\n" + HEAD + BUSY),
        ("waiters.txt", WAITERS.format(2)),
        ("mmfs.log.latest", MMFS.format("06")),
    ],
    ids=["busy and answering", "a short wait", "before the job"],
)
def test_storage_that_is_busy_or_was_slow_before_the_job_is_not(tmp_path: Path, name: str, text: str) -> None:
    assert cause(tmp_path, name, text)[0] != "host.storage_stall"


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("OSError: [Errno 116] Stale file handle: '/data/shard-7.tar'", "host.storage_stall"),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/mnt/ceph/x.pt'", "host.storage_stall"),
        ("OSError: [Errno 5] Input/output error: '/scratch/x.bin'", "host.storage_stall"),
        ("OSError: [Errno 107] Transport endpoint is not connected", "fw.rank_exited"),  # a socket's
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-7.tar'", "fw.rank_exited"),
    ],
)
def test_a_rank_to_whom_storage_failed_is_told_from_one_whose_file_is_not_there(
    tmp_path: Path, error: str, named: str
) -> None:
    job = {
        f"node-{1 + rank}/rank{rank}.log": job_log(
            f"node-{1 + rank}", rank, *(raised(rank, error) if rank == 1 else (waited(rank),))
        )
        for rank in range(3)
    }
    found = judged(tmp_path, job).verdict.hypothesis
    assert (found.cause, found.subject.get("node")) == (named, "node-2")


ENTRY = "[<0>] do_syscall_64+0x5c/0x90\n[<0>] entry_SYSCALL_64_after_hwframe+0x6e/0xd8\n"
FROZEN = (
    "[<0>] percpu_rwsem_wait+0x116/0x140\n[<0>] vfs_write+0x3f1/0x410\n[<0>] ksys_write+0x5f/0xe0\n" + ENTRY
)  # fs/super.c: file_start_write of a file system that fsfreeze(8) holds
FORKS = (
    "[<0>] percpu_rwsem_wait+0x116/0x140\n[<0>] cgroup_can_fork+0x58/0x160\n[<0>] copy_process+0x9d1/0x1b60\n" + ENTRY
)


@pytest.mark.parametrize(("stack", "named"), [(FROZEN, True), (FORKS, False)], ids=["a writer", "a lock of cgroups"])
def test_the_kernel_stack_of_a_writer_tells_a_frozen_file_system(tmp_path: Path, stack: str, named: bool) -> None:
    session = f"[root@node-2 ~]# cat /proc/30412/stack\n{stack}[root@node-2 ~]# uptime\n 10:11:02 up 9 days, 1 user\n"
    found, node = cause(tmp_path, "paste.txt", session)
    assert (found == "host.storage_stall" and node == "node-2") is named
