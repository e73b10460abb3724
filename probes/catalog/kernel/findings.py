"""Judges the events of a kernel log. Old events keep their times: nothing here says "now"."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from probes import reference
from probes.catalog.kernel.events import Event, KernelLog, Link, MachineCheck, OomKill, SXid, Xid
from probes.catalog.kernel.findings_more import more_findings
from probes.catalog.kernel.when import last as _last
from probes.catalog.kernel.when import when as _when
from probes.core import Finding, Severity

# Of our own judgement, not from a standard: a corrected PCIe or memory error now and then is normal.
AER_STORM = 10
CE_STORM = 100
BOOT_S = 600.0
ECC = frozenset((48, 64, 94, 95, 140, 171, 172))  # row remapping (63) beside one of these is no longer harmless

_AER: dict[str, Severity] = {"fatal": "bad", "nonfatal": "warn"}
_HCA: dict[str, Severity] = {
    "health": "bad",
    "cable error": "warn",
    "temperature": "warn",
    "cable unplugged": "warn",
    "used up": "warn",
}

# SXids whose own word misleads (NVIDIA Fabric Manager guide DU-09883, as read by gpud and NVSentinel).
_SXIDS: dict[int, tuple[Severity, str]] = {
    12028: ("bad", "logged as non-fatal, but GPU access hangs: reset the GPU"),
    20009: ("info", "noise unless it keeps rising"),
    22013: ("info", "can be ignored"),
    24001: ("info", "corrected single-bit error"),
    24002: ("info", "corrected single-bit error"),
    24003: ("info", "corrected single-bit error"),
    10004: ("bad", "thermal event: check the cooling"),
    11004: ("warn", "check the fabric manager's configuration"),
}


# Of Xid 149, the link's firmware, as gpud reads NVIDIA's NVLink5 table.
_SUBCODES_149 = {
    2: ": signal integrity of the link",
    4: ": cartridge error, hardware",
    10: ": the link's PHY timed out, hardware",
    40: ": the host",
    **dict.fromkeys((21, 32, 33, 34, 35, 36, 37), ": look at the device at the other end"),
    **dict.fromkeys((42, 43), ": signal integrity, check the cables"),
    **dict.fromkeys((15, 16, 17, 18, 22, 38), ": software or a person's doing"),
}


def findings(log: KernelLog) -> Iterator[Finding]:
    """One finding per event, with its count and times."""
    for xid in log.xids:
        yield _xid(xid, log)
    for sxid in log.sxids:
        yield _sxid(sxid, log)
    for gone in log.off_bus:
        says = f"GPU {gone.bus_id} has fallen off the bus, without an Xid, {_when(gone, log)}"
        yield Finding(
            "kernel.gpu_off_bus",
            "bad",
            f"{says}: drain the node, cold-cycle it",
            {"bus_id": gone.bus_id},
            last=_last(gone),
        )
    yield from more_findings(log)
    yield from _tasks(log)
    yield from _pcie(log)
    yield from _storage(log)
    yield from _rdma(log)


@functools.cache
def table() -> dict[int, dict[str, Any]]:
    """xid.toml by code."""
    return {code: row for row in reference.rows("xid") for code in row["codes"]}


def _xid(event: Xid, log: KernelLog) -> Finding:
    subject: dict[str, str | int] = {"bus_id": event.bus_id, "xid": event.xid}
    row = table().get(event.xid)
    says = f"GPU {event.bus_id}: Xid {event.xid}"
    if row is None:
        says += f", not in our table, {_when(event, log)}: look it up in NVIDIA's Xid catalogue"
        return Finding("kernel.xid", "warn", says, subject, last=_last(event))
    severity: Severity = row["severity"]
    says += f" ({row['mnemonic']}), {_when(event, log)}"
    if event.process:
        says += f", names process {event.process} ({event.pid})"
    action, note = row["action"], row["note"]
    if event.xid == 154 and event.verdict:
        severity = "info" if event.verdict == "None" else "warn"
        action = event.verdict
    if event.fatal is False:
        severity, note = ("info" if event.xid in (144, 145) else "warn"), f"the driver says Nonfatal; {note}"
    if event.caused_by:
        note = f"caused by Xid {event.caused_by}, says the driver"
    if event.xid == 63 and any(other.bus_id == event.bus_id and other.xid in ECC for other in log.xids):
        severity, note = "warn", "beside an ECC error: the remap is pending until the GPU is reset"
    if event.subcodes:
        words = _SUBCODES_149.get(event.subcodes[0], "") if event.xid == 149 else ""
        note += f" (sub-code {', '.join(map(str, event.subcodes))}, link {event.link}{words})"
    return Finding(
        "kernel.xid", severity, f"{says}. To do: {action}. {note[:1].upper()}{note[1:]}", subject, last=_last(event)
    )


def _sxid(event: SXid, log: KernelLog) -> Finding:
    severity, note = _SXIDS.get(event.sxid, ("warn", "look it up in NVIDIA's SXid table"))
    if event.fatal:
        severity, note = "bad", "fatal: the GPUs behind this switch lose NVLink; reset GPUs and switches, or reboot"
    links = f" on link {', '.join(map(str, event.links))}" if event.links else ""
    says = f"NVSwitch {event.bus_id}: SXid {event.sxid}{links}, {_when(event, log)}: {note}"
    return Finding("kernel.sxid", severity, says, {"bus_id": event.bus_id, "sxid": event.sxid}, last=_last(event))


def _oom(kill: OomKill, log: KernelLog) -> Finding:
    why = {"": "", "CONSTRAINT_NONE": " of the whole node"}.get(kill.constraint, " within the limit of its cgroup")
    if kill.limit_bytes is not None:
        why += f" of {kill.limit_bytes / 2**30:.1f} GiB"
    used = "" if kill.rss_bytes is None else f", which held {kill.rss_bytes / 2**30:.1f} GiB"
    says = f"the kernel killed process {kill.process} ({kill.pid}){used}: no memory left{why}, {_when(kill, log)}"
    return Finding("kernel.oom_kill", "bad", says, {"pid": kill.pid, "process": kill.process}, last=_last(kill))


def _tasks(log: KernelLog) -> Iterator[Finding]:
    for kill in log.oom_kills:
        yield _oom(kill, log)
    for task in log.hung_tasks:
        where = f" in {task.where}" if task.where else ""
        where += f" ({', '.join(task.modules)})" if task.modules else ""
        says = f"process {task.process} ({task.pid}) was stuck in the kernel{where} for over {task.seconds} s"
        yield Finding(
            "kernel.hung_task",
            "bad",
            f"{says}, {_when(task, log)}",
            {"pid": task.pid, "process": task.process},
            last=_last(task),
        )
    for lockup in log.lockups:
        says = f"CPU {lockup.cpu} was stuck for {lockup.seconds} s in {lockup.process or 'the kernel'} (soft lockup)"
        subject: dict[str, str | int] = {} if lockup.cpu is None else {"cpu": lockup.cpu}
        yield Finding("kernel.soft_lockup", "bad", f"{says}, {_when(lockup, log)}", subject, last=_last(lockup))
    for stall in log.rcu_stalls:
        yield Finding(
            "kernel.rcu_stall",
            "bad",
            f"a CPU did not answer the kernel (RCU stall), {_when(stall, log)}",
            last=_last(stall),
        )
    for oops in log.oopses:
        says = f"the kernel itself failed ({oops.text[:80]}), {_when(oops, log)}: reboot the node"
        yield Finding("kernel.oops", "bad", says, last=_last(oops))
    for fault in log.segfaults:
        ours = any(word in fault.library for word in ("nccl", "cuda", "torch", "nvidia"))
        severity: Severity = "bad" if ours else "warn" if fault.process.startswith(("python", "pt_")) else "info"
        where = f" in {fault.library}" if fault.library else ""
        says = f"process {fault.process} ({fault.pid}) crashed{where} (segmentation fault), {_when(fault, log)}"
        yield Finding(
            "kernel.segfault", severity, says, {"pid": fault.pid, "process": fault.process}, last=_last(fault)
        )
    for full in log.file_max:
        yield Finding(
            "kernel.file_max",
            "bad",
            f"the node's limit of open files was reached, {_when(full, log)}",
            last=_last(full),
        )


def _pcie(log: KernelLog) -> Iterator[Finding]:
    for aer in log.aer:
        storm: Severity = "warn" if aer.count >= AER_STORM else "info"
        severity = _AER.get(aer.severity, storm)
        what = f" ({', '.join(aer.layers + aer.errors)})" if aer.layers or aer.errors else ""
        says = f"PCIe device {aer.device}: {aer.severity} bus errors{what}, {_when(aer, log)}"
        yield Finding("kernel.aer", severity, says, {"device": aer.device, "errors": aer.severity}, last=_last(aer))
    for check in log.machine_checks:
        yield Finding(
            "kernel.machine_check", _check(check), _check_says(check, log), {"device": check.device}, last=_last(check)
        )


def _check(check: MachineCheck) -> Severity:
    if check.corrected is None:
        return "warn"
    return "bad" if not check.corrected else "warn" if check.count >= CE_STORM else "info"


def _check_says(check: MachineCheck, log: KernelLog) -> str:
    what = {True: "corrected", False: "uncorrected", None: "undecoded"}[check.corrected]
    return f"{what} hardware errors of {check.device or 'the node (machine check)'}, {_when(check, log)}"


def _storage(log: KernelLog) -> Iterator[Finding]:
    for nfs in log.nfs_stalls:
        says = f"{nfs.kind} server {nfs.server} did not answer, {_when(nfs, log)}"
        says += "; it answered again" if nfs.answering else "; no OK since"
        yield Finding(
            "kernel.nfs_stall", "info" if nfs.answering else "bad", says, {"server": nfs.server}, last=_last(nfs)
        )
    for device in log.read_only:
        says = (
            f"the file system on {device.device} was made read-only or shut down after an error, {_when(device, log)}"
        )
        yield Finding("kernel.fs_readonly", "bad", says, {"device": device.device}, last=_last(device))
    for error in log.io_errors:
        says = f"I/O errors on {error.device}, {_when(error, log)}"
        empty = error.device.startswith(("fd", "sr"))  # a drive without a disk in it
        yield Finding("kernel.io_error", "info" if empty else "bad", says, {"device": error.device}, last=_last(error))
    for nvme in log.nvme:
        says = f"{nvme.device} timed out or was reset, {_when(nvme, log)}"
        yield Finding("kernel.nvme", "warn", says, {"device": nvme.device}, last=_last(nvme))


def _rdma(log: KernelLog) -> Iterator[Finding]:
    for lost in log.peermem:
        says = f"nvidia-peermem reports errors, {_when(lost, log)}: a process died while the HCA used its GPU memory"
        if lost.refused:
            says = f"nvidia-peermem was not loaded, {_when(lost, log)}: it does not fit the RDMA modules of this kernel"
        yield Finding("kernel.peermem", "warn", says, last=_last(lost))
    for link in log.links:
        yield from _link(link, log)
    for notice in log.hca_notices:
        if notice.what == "power" or (notice.what == "cable unplugged" and _boots(notice, log)):
            continue  # healthy nodes print both while they boot
        severity = _HCA[notice.what]
        says = f"HCA {notice.device}: {notice.what}, {_when(notice, log)}"
        yield Finding("kernel.hca", severity, says, {"device": notice.device, "what": notice.what}, last=_last(notice))


def _link(link: Link, log: KernelLog) -> Iterator[Finding]:
    port = f"port of {link.device}" + (f" ({link.name})" if link.name else "")
    subject = {"device": link.device}
    if link.up is False and link.drops:
        yield Finding(
            "kernel.link",
            "bad",
            f"{port} went down and did not come back, {_when(link, log)}",
            subject,
            last=_last(link),
        )
    elif link.drops:
        severity: Severity = "warn" if link.drops > 1 else "info"
        yield Finding(
            "kernel.link",
            severity,
            f"{port} went down {link.drops} times, {_when(link, log)}",
            subject,
            last=_last(link),
        )
    elif link.up is False and not _boots(link, log):
        yield Finding("kernel.link", "warn", f"{port} went down, {_when(link, log)}", subject, last=_last(link))


def _boots(event: Event, log: KernelLog) -> bool:
    """While a node boots, unused ports go down and their cables are missing. Without times nothing is said of them."""
    if (since := re.fullmatch(r"\[ {0,8}(\d{1,9})\.\d{3,6}\]", event.first)) is not None:
        return int(since[1]) < BOOT_S
    return log.booted_at is None or event.first_at is None or event.first_at - log.booted_at < BOOT_S
