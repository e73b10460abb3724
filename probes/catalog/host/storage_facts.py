"""Facts and findings of host.storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from probes.core import Finding, Severity

FULL_WARN, FULL_BAD = 90.0, 95.0  # NVIDIA Health Validation's, row 51 of the field notes
SHM_FULL = 90.0
DOCKER_SHM = 64 * 2**20  # docker run without --shm-size; DataLoader workers and NCCL need more (pytorch#5040, nccl#290)

NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "ceph", "beegfs", "wekafs", "9p", "afs", "glusterfs")
    + ("orangefs", "panfs", "pvfs2", "virtiofs", "fuse", "davfs", "ncpfs")
)
JOURNALED = frozenset(("ext3", "ext4", "xfs", "btrfs", "f2fs"))  # what is normally read-write

# What a stuck task waits for, by the kernel function it sleeps in: how the name begins, then what it contains.
BEGINS = (("ll_", "Lustre"), ("p9_", "9P"), ("nv_", "the NVIDIA driver"), ("ib_", "InfiniBand"))
CONTAINS = (
    ("nfs", "NFS"),
    ("ptlrpc", "Lustre"),
    ("lustre", "Lustre"),
    ("ldlm", "Lustre"),
    ("rpc", "NFS (RPC)"),
    ("cifs", "CIFS"),
    ("ceph", "Ceph"),
    ("fuse", "FUSE"),
    ("uvm", "the NVIDIA UVM driver"),
    ("nvidia", "the NVIDIA driver"),
    ("os_acquire", "the NVIDIA driver"),
    ("kfd", "the AMD GPU driver"),
    ("mlx5", "an InfiniBand HCA"),
    ("percpu_rwsem_wait", "a lock such as that of a frozen file system"),
)


def waits_for(wchan: str) -> str:
    """In plain words, "" when the name says nothing."""
    found = [name for word, name in BEGINS if wchan.startswith(word)]
    found += [name for word, name in CONTAINS if word in wchan]
    return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class Disk:
    """A local mount. `used_percent` is what df(1) prints: reserved blocks count as used."""

    mount: str
    type: str
    device: str
    read_only: bool  # mounted so
    read_only_by_error: bool  # mounted read-write, and turned read-only below
    outcome: str  # of the statvfs call, "" when it was not asked
    size_bytes: int | None
    free_bytes: int | None  # for users other than root
    used_percent: float | None
    inodes_used_percent: float | None  # None also where the file system has no inode limit


@dataclass(frozen=True, slots=True)
class NetworkMount:
    """Requests are NFS only, from mountstats. `outstanding` may count old requests of a connection that was lost."""

    mount: str
    type: str
    device: str
    interval: bool  # both samples are there
    sent: int | None
    answered: int | None
    completed: int | None
    outstanding: int | None


@dataclass(frozen=True, slots=True)
class BlockedTask:
    """A task in state D. `stuck`: it stood in the same function in both samples and had not run in between."""

    pid: int
    comm: str
    wchan: str  # "" when the node does not show it
    kernel_thread: bool
    stuck: bool
    waits_for: str


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """/dev/shm of the node (no pids), or of a container by the pids of ranks in it."""

    pids: tuple[int, ...]
    outcome: str
    size_bytes: int | None
    used_percent: float | None


@dataclass(frozen=True, slots=True)
class Storage:
    disks: tuple[Disk, ...]
    network_mounts: tuple[NetworkMount, ...]
    blocked: tuple[BlockedTask, ...]  # seen in the second sample, or in the only one
    shm: tuple[SharedMemory, ...]


def findings(storage: Storage) -> Iterator[Finding]:
    """Full or silent disks, file systems gone read-only, small or full shared memory, stuck tasks, silent NFS."""
    for disk in storage.disks:
        yield from _disk(disk)
    for shm in storage.shm:
        yield from _shm(shm)
    yield from _stuck(storage)
    for mount in storage.network_mounts:
        yield from _network(mount, storage)


def _disk(disk: Disk) -> Iterator[Finding]:
    subject = {"mount": disk.mount}
    if disk.outcome in ("hung", "timeout"):
        yield Finding("host.disk_silent", "bad", f"{disk.mount} ({disk.device}) does not answer", subject)
    elif disk.outcome == "failed":
        yield Finding("host.disk_silent", "bad", f"{disk.mount} ({disk.device}) answers with an error", subject)
    if disk.read_only_by_error:
        says = f"{disk.mount} ({disk.type} on {disk.device}) was mounted read-write and is read-only now"
        yield Finding("host.fs_readonly", "bad", f"{says}: see the kernel log", subject)
    elif disk.read_only and disk.mount == "/" and disk.type in JOURNALED:
        says = f"the root file system ({disk.type} on {disk.device}) is mounted read-only; some images do so on purpose"
        yield Finding("host.fs_readonly", "warn", says, subject)
    if disk.read_only or disk.mount == "/dev/shm":
        return  # images are full by nature; /dev/shm is judged as shared memory
    if disk.used_percent is not None and disk.used_percent >= FULL_WARN:
        left = "" if disk.free_bytes is None else f", {disk.free_bytes / 2**30:.1f} GiB left"
        says = f"{disk.mount} is {disk.used_percent:g} % full{left}"
        yield Finding("host.disk_full", _full(disk.used_percent), says, subject)
    if disk.inodes_used_percent is not None and disk.inodes_used_percent >= FULL_WARN:
        says = f"{disk.mount} has used {disk.inodes_used_percent:g} % of its inodes"
        yield Finding("host.inodes_full", _full(disk.inodes_used_percent), says, subject)


def _full(percent: float) -> Severity:
    return "bad" if percent >= FULL_BAD else "warn"


def _shm(shm: SharedMemory) -> Iterator[Finding]:
    if shm.size_bytes is None:
        return
    subject: dict[str, str | int] = {"pid": shm.pids[0]} if shm.pids else {}
    whose = f"the container of process {shm.pids[0]}" if shm.pids else "this node"
    size = f"{shm.size_bytes / 2**20:.0f} MiB"
    if shm.used_percent is not None and shm.used_percent > SHM_FULL:
        says = f"/dev/shm of {whose} is {shm.used_percent:g} % full ({size})"
        yield Finding("host.shm_full", "bad", says, subject)
    elif shm.size_bytes == DOCKER_SHM:
        says = f"/dev/shm of {whose} has {size}, Docker's default: too small for DataLoader workers and NCCL"
        yield Finding("host.shm_small", "warn" if shm.pids else "info", says, subject)


def _stuck(storage: Storage) -> Iterator[Finding]:
    """One finding per function: hundreds of tasks may wait for one dead server."""
    groups: dict[str, list[BlockedTask]] = {}
    for task in storage.blocked:
        if task.stuck:
            groups.setdefault(task.wchan, []).append(task)
    for wchan, tasks in groups.items():
        who = ", ".join(f"{task.comm} ({task.pid})" for task in tasks[:5]) + (", ..." if len(tasks) > 5 else "")
        about = tasks[0].waits_for
        count = "a task is" if len(tasks) == 1 else f"{len(tasks)} tasks are"
        says = f"{count} stuck in the kernel (state D) in {wchan or 'an unknown function'}"
        says += f", waiting for {about}: {who}" if about else f": {who}"
        user = any(not task.kernel_thread for task in tasks)
        yield Finding("host.task_stuck", "bad" if about and user else "warn", says, {"wchan": wchan or "unknown"})


def _network(mount: NetworkMount, storage: Storage) -> Iterator[Finding]:
    if not mount.interval or mount.completed is None or mount.outstanding is None:
        return
    if mount.completed > 0 or (mount.answered or 0) > 0 or mount.outstanding <= 0:
        return
    waiting = any(task.stuck and task.waits_for.startswith("NFS") for task in storage.blocked)
    says = f"NFS {mount.mount} ({mount.device}): {mount.outstanding} requests are out and none was answered within 1 s"
    if mount.sent or waiting:
        yield Finding("host.nfs_silent", "warn", f"{says}: not answering", {"mount": mount.mount})
    else:  # the counters also keep what a lost connection never answered
        says += "; nothing waits for it, so they may be left from a lost connection"
        yield Finding("host.nfs_silent", "info", says, {"mount": mount.mount})
