"""Judges what the kernel log says of GPUs without an Xid, of the node's end and of full file systems."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.kernel.events import GpuProblem, KernelLog
from probes.catalog.kernel.when import last, when
from probes.core import Finding, Severity

# Of the AMD driver and of NVIDIA's without an Xid: how bad, what it means, what to do.
_GPU: dict[str, tuple[Severity, str]] = {
    "init failed": ("bad", "the driver could not start it: power-cycle the node"),
    "version mismatch": ("bad", "the driver's library and its kernel module are of different versions: reboot"),
    "gsp": ("bad", "its firmware (GSP) does not answer: reset it or reboot"),
    "reset": ("bad", "the driver resets it: every process on it is lost"),
    "reset failed": ("bad", "the driver could not reset it: reboot"),
    "ring timeout": ("bad", "a queue of it stood still"),
    "queue stuck": ("bad", "it does not give up the queues of a process: reset or reboot"),
    "uncorrectable": ("bad", "uncorrectable hardware errors (RAS)"),
    "link": ("bad", "uncorrectable errors on its links to other GPUs (XGMI)"),
    "poison": ("bad", "poisoned data was used: its memory is broken"),
    "lost": ("bad", "it is lost from the bus"),
    "page fault": ("warn", "a program used an address that it does not own"),
    "corrected": ("info", "corrected hardware errors"),
}
_NOTICE: dict[str, tuple[str, Severity, str]] = {
    "reboot": ("kernel.reboot", "warn", "the node was told to restart"),
    "shutdown": ("kernel.reboot", "warn", "the node was told to switch off"),
    "preemption": ("kernel.preempted", "bad", "the cloud announced that it takes this node away"),
    "maintenance": ("kernel.maintenance", "warn", "maintenance of the host was announced"),
    "boot": ("kernel.boot", "info", "the kernel started"),
    "clock": ("kernel.clock_wrong", "info", "the time service found the clock wrong"),
}


def more_findings(log: KernelLog) -> Iterator[Finding]:
    """One finding per event."""
    for problem in log.gpu_problems:
        yield _gpu(problem, log)
    for notice in log.notices:
        code, severity, words = _NOTICE[notice.what]
        yield Finding(code, severity, f"{words}, {when(notice, log)}", {"what": notice.what}, last=last(notice))
    for fault in log.iommu_faults:
        says = f"the IOMMU refused accesses of PCIe device {fault.device}, {when(fault, log)}"
        yield Finding("kernel.iommu_fault", "warn", says, {"device": fault.device}, last=last(fault))
    for full in log.no_space:
        where = f" ({full.device})" if full.device else ""
        says = f"no space left on a file system{where}, {when(full, log)}"
        yield Finding("kernel.no_space", "bad", says, {"device": full.device} if full.device else {}, last=last(full))


def _gpu(problem: GpuProblem, log: KernelLog) -> Finding:
    severity, words = _GPU[problem.what]
    subject: dict[str, str | int] = {"what": problem.what, "vendor": problem.vendor}
    if problem.bus_id:
        subject["bus_id"] = problem.bus_id
    name = f"GPU {problem.bus_id}" if problem.bus_id else f"the {problem.vendor.upper()} driver"
    return Finding(
        "kernel.gpu_problem", severity, f"{name}: {words}, {when(problem, log)}", subject, last=last(problem)
    )
