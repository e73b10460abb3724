"""Are this node's disks, shared memory and network mounts in order, and which tasks are stuck in the kernel?

Source   /proc/self/mountinfo and mountstats (proc(5)), /proc/PID/{stat,status,wchan}, statvfs(3) of local mounts and of
         /dev/shm, each in a child of its own. A network mount is never touched: a dead server would hang the asker.
         D states and mountstats are read twice, a second apart: a passing wait does not count
Units    bytes, percent, requests
Shape    Storage
Errors   ParseError when a file is not what the kernel prints; None where a number could not be read
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from probes.catalog.host.storage_facts import Storage, findings
from probes.catalog.host.storage_parse import parse
from probes.core import Probe
from probes.runner import Absent, Denied, holds_gpu, isolate, read

__all__ = ["PROBE", "Storage", "findings", "parse"]


def _collect() -> Mapping[str, str]:
    import os
    import time

    # Which mounts may be touched at all. Everything else is only looked up in the kernel's own files.
    local = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "vfat", "exfat")
    pseudo = (
        "proc", "sysfs", "cgroup", "cgroup2", "devpts", "devtmpfs", "mqueue", "debugfs", "tracefs", "securityfs", "bpf",
        "pstore", "configfs", "fusectl", "hugetlbfs", "binfmt_misc", "autofs", "nsfs", "efivarfs", "rpc_pipefs",
        "ramfs", "selinuxfs", "fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal", "nfsd",
    )  # fmt: skip
    memory = ("/", "/tmp", "/run", "/dev/shm", "/var/tmp")

    def text(path: str, limit: int = 65536) -> str:
        try:
            return read(path, limit)
        except OSError:
            return ""

    def mounts() -> list[list[str]]:
        """[line, device, mount point, type]; the type follows the lone dash. The last mount on a point is on top."""
        found = {}
        for line in text("/proc/self/mountinfo", 4194304).split("\n"):
            fields = line.split(" ")
            if "-" in fields[6:]:
                kind = fields[fields.index("-", 6) + 1]
                if kind not in pseudo and (kind != "tmpfs" or fields[4] in memory):
                    found[fields[4]] = [line, fields[2], fields[4], kind]
        return list(found.values())[:500]

    def nfs_stats() -> str:
        """Blocks of NFS mounts without operations that were never used."""
        kept, wanted, count = [], False, 0
        for line in text("/proc/self/mountstats", 8388608).split("\n"):
            if line.startswith("device "):
                wanted = " with fstype nfs" in line and count < 32
                count += wanted
            if wanted and not line.endswith(": 0 0 0 0 0 0 0 0") and not line.endswith(": 0 0 0 0 0 0 0 0 0"):
                kept.append(line[:1000])
        return "\n".join(kept)

    def task(folder: str) -> str:
        """A line about a task in state D, "" for any other."""
        stat = text(folder + "/stat", 4096).strip().replace("\n", "?").replace("\r", "?")
        if stat.rpartition(")")[2][1:2] != "D":
            return ""
        switches = "-"
        for line in text(folder + "/status", 8192).split("\n"):
            if line.startswith("voluntary_ctxt_switches:"):
                switches = line.split()[1]
        wchan = text(folder + "/wchan", 128).strip()
        return f"{wchan if wchan and wchan != '0' else '-'} {switches} {stat}"

    def blocked(threads_of: list[str]) -> str:
        found = []
        for pid in [entry for entry in os.listdir("/proc") if entry.isdigit()][:20000]:
            found.append(task("/proc/" + pid))
        for pid in threads_of:
            try:
                threads = os.listdir(f"/proc/{pid}/task")[:256]
            except OSError:
                continue
            found += [task(f"/proc/{pid}/task/{thread}") for thread in threads if thread != pid]
        return "\n".join([line for line in found if line][:500])

    def namespace(pid: str) -> str:
        try:
            return os.readlink(f"/proc/{pid}/ns/mnt")
        except OSError:
            return ""

    def ask(path: str) -> Callable[[], str]:
        """One statvfs as a line of numbers, for a child of its own."""

        def answer() -> str:
            try:
                found = os.statvfs(path)
            except PermissionError as error:
                raise Denied(str(error)) from None
            except FileNotFoundError as error:
                raise Absent(str(error)) from None
            numbers = (found.f_frsize, found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
            return " ".join(str(number) for number in numbers)

        return answer

    began = time.monotonic()
    python: list[str] = []
    others: dict[str, list[str]] = {}
    for pid in [entry for entry in os.listdir("/proc") if entry.isdigit()][:20000]:
        comm = text(f"/proc/{pid}/comm", 64)
        trains = comm.startswith(("python", "pt_main_thread"))
        if time.monotonic() - began < 0.3 and (trains or (pid != "2" and holds_gpu(pid))):
            python.append(pid)
            others.setdefault(namespace(pid), []).append(pid)
    others.pop("", None)
    others.pop(namespace("self"), None)

    known = mounts()
    parts = {"/proc/self/mountinfo": "\n".join(line for line, _, _, _ in known)}
    parts["/proc/self/mountstats 1"], parts["golden15/blocked 1"] = nfs_stats(), blocked(python[:64])
    first = time.monotonic()
    calls, devices = [], set()
    for _, device, point, kind in known:
        inside = point.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1", "ignore")
        if (kind in local or kind == "tmpfs" or (kind == "overlay" and point == "/")) and device not in devices:
            devices.add(device)
            calls.append((point, ask(os.fsdecode(inside))))
    calls = calls[:48]
    count = len(calls)
    for pids in list(others.values())[:16]:
        calls.append((" ".join(pids[:8]), ask(f"/proc/{pids[0]}/root/dev/shm")))
    answers = [
        f"{answer['name']}\t{answer['outcome']}\t{answer['text'] or answer['why']}" for answer in isolate(calls, 1.5)
    ]
    parts["golden15/statvfs"] = "\n".join(answers[:count])
    parts["golden15/shm"] = "\n".join(answers[count:])
    time.sleep(max(0.0, first + 1.0 - time.monotonic()))
    parts["/proc/self/mountstats 2"], parts["golden15/blocked 2"] = nfs_stats(), blocked(python[:64])
    return parts


PROBE = Probe(
    "host.storage",
    "Are disks, shared memory and network mounts in order, and which tasks are stuck?",
    parse,
    findings,
    collect=_collect,
    by_hand="df -lPT; df -lPi; cat /proc/self/mountstats; cat /proc/PID/wchan of tasks in state D",
    timeout_s=6.0,
    max_bytes=524_288,
    touches="disk",
    cost="14 ms",
)
