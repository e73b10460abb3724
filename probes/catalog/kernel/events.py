"""What a kernel log can tell: the facts of host.kernel_log. Lines of one event are collapsed into one record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """`first` and `last` are the stamps as printed ("" none); `first_at`, `last_at` seconds since the epoch or None."""

    count: int  # lines, or errors where one line reports several
    bursts: int  # groups of lines with a pause between them
    first: str
    last: str
    first_at: float | None
    last_at: float | None
    text: str  # the message of the first line


@dataclass(frozen=True, slots=True)
class Xid(Event):
    bus_id: str  # dddd:bb:dd, as the driver prints it (nvidia-smi prints 00000000:bb:dd.0)
    xid: int
    pid: int | None  # of the first line that names one; often a victim, not the cause
    process: str
    pids: tuple[int, ...]  # at most 16
    caused_by: int | None  # "caused by previous Xid N", newer drivers
    verdict: str  # of 154: the recovery action of the last line
    fatal: bool | None  # of 144 to 150: any line says Fatal; None where lines do not say
    link: int | None  # NVLink of the first line that names one
    subcodes: tuple[int, ...]  # of 144 to 150: bits 20 to 25 of the first word (gpud)


@dataclass(frozen=True, slots=True)
class SXid(Event):
    """Of an NVSwitch. The Severity and Data lines of an event are not counted."""

    bus_id: str
    sxid: int
    fatal: bool | None
    links: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffBus(Event):
    """A GPU that fell off the bus without an Xid 79."""

    bus_id: str


@dataclass(frozen=True, slots=True)
class GpuProblem(Event):
    """What a GPU driver says without an Xid. `what`: init failed, gsp, version mismatch (NVIDIA); reset, reset failed,
    ring timeout, uncorrectable, corrected, link, poison, page fault, lost, init failed (AMD)."""

    bus_id: str  # dddd:bb:dd, "" where the line names no GPU
    vendor: str  # nvidia, amd
    what: str


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """The node is about to stop, or has begun: reboot, shutdown, preemption, maintenance, boot; or "clock", which was
    wrong by `seconds`."""

    what: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class IommuFault(Event):
    """The IOMMU refused a device's access: DMAR (Intel), AMD-Vi, arm-smmu. `driver`: the device's, where the line names
    it, as `nvidia 0000:41:00.0: AMD-Vi: ...` does."""

    device: str  # dddd:bb:dd.f
    driver: str = ""


@dataclass(frozen=True, slots=True)
class NoSpace(Event):
    """A program or the kernel was told ENOSPC. `device`: the file system where the line names one."""

    device: str


@dataclass(frozen=True, slots=True)
class OomKill(Event):
    pid: int
    process: str
    constraint: str  # CONSTRAINT_MEMCG: a cgroup's limit; CONSTRAINT_NONE: the whole node; "" not printed
    cgroup: str
    limit_bytes: int | None
    rss_bytes: int | None  # anonymous memory of the process when it was killed
    task_cgroup: str = ""  # the killed process's own


@dataclass(frozen=True, slots=True)
class HungTask(Event):
    pid: int
    process: str
    seconds: int  # the longest reported
    where: str  # the function it waits in, from the stack below the line; "" when the log has none
    modules: tuple[str, ...]  # kernel modules in that stack


@dataclass(frozen=True, slots=True)
class Lockup(Event):
    cpu: int | None
    seconds: int | None
    process: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class RcuStall(Event):
    pass


@dataclass(frozen=True, slots=True)
class Aer(Event):
    device: str  # dddd:bb:dd.f of the port or device that reports
    severity: str  # corrected, nonfatal, fatal
    layers: tuple[str, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MachineCheck(Event):
    device: str
    corrected: bool | None  # None: the log does not say


@dataclass(frozen=True, slots=True)
class NfsStall(Event):
    """A network file system of any kind."""

    server: str
    answering: bool  # an OK stands after the last "not responding"
    kind: str = "NFS"  # NFS, Lustre, BeeGFS, Ceph, CIFS, GPFS


@dataclass(frozen=True, slots=True)
class ReadOnly(Event):
    device: str


@dataclass(frozen=True, slots=True)
class IoError(Event):
    device: str


@dataclass(frozen=True, slots=True)
class Nvme(Event):
    device: str


@dataclass(frozen=True, slots=True)
class Peermem(Event):
    """An error of its own, or it was not loaded: `refused` says so."""

    refused: bool = False


@dataclass(frozen=True, slots=True)
class Link(Event):
    """Link messages of one port. `drops` counts how often it went down after it had been up."""

    device: str
    name: str
    drops: int
    up: bool | None  # at the end of the log


@dataclass(frozen=True, slots=True)
class HcaNotice(Event):
    device: str
    what: str  # cable error, cable unplugged, health, power, temperature


@dataclass(frozen=True, slots=True)
class Segfault(Event):
    pid: int
    process: str
    library: str


@dataclass(frozen=True, slots=True)
class Oops(Event):
    pass


@dataclass(frozen=True, slots=True)
class FileMax(Event):
    """The node's limit of open files was reached."""


@dataclass(frozen=True, slots=True)
class KernelLog:
    source: str  # the command, "" for a recorded log
    now: float | None  # the node's clock when it was read, seconds since the epoch
    booted_at: float | None  # the same clock; None: not known
    boot_id: str
    lines: int  # lines read here
    dropped: int | None  # lines the node read and did not send because nothing in them is of interest; None: not known
    over_cap: int | None  # interesting lines too many to send, the oldest
    xids: tuple[Xid, ...] = ()
    sxids: tuple[SXid, ...] = ()
    off_bus: tuple[OffBus, ...] = ()
    oom_kills: tuple[OomKill, ...] = ()
    hung_tasks: tuple[HungTask, ...] = ()
    lockups: tuple[Lockup, ...] = ()
    rcu_stalls: tuple[RcuStall, ...] = ()
    aer: tuple[Aer, ...] = ()
    machine_checks: tuple[MachineCheck, ...] = ()
    nfs_stalls: tuple[NfsStall, ...] = ()
    read_only: tuple[ReadOnly, ...] = ()
    io_errors: tuple[IoError, ...] = ()
    nvme: tuple[Nvme, ...] = ()
    peermem: tuple[Peermem, ...] = ()
    links: tuple[Link, ...] = ()
    hca_notices: tuple[HcaNotice, ...] = ()
    segfaults: tuple[Segfault, ...] = ()
    oopses: tuple[Oops, ...] = ()
    file_max: tuple[FileMax, ...] = ()
    gpu_problems: tuple[GpuProblem, ...] = ()
    notices: tuple[Notice, ...] = ()
    no_space: tuple[NoSpace, ...] = ()
    iommu_faults: tuple[IommuFault, ...] = ()
    first: str = ""  # stamp of the first line that has one, as printed
    last: str = ""
