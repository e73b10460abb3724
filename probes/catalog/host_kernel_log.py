"""What has this node's kernel complained about: GPUs (Xid), memory, tasks, PCIe, disks, NFS, InfiniBand?

Source   journalctl(1) -k of the last two hours, else dmesg(1) of the ring buffer; lines without interest are dropped on
         the node and counted. Recorded logs of any form are read too (see _kernel_lines.py)
Units    seconds since the epoch (UTC) where the log gives them; times without a zone or year stay as printed
Shape    KernelLog: one record per event, with count, first and last time (see _kernel_events.py)
Errors   ParseError when the text is no kernel log; an empty log is fine. Denied when the node refuses to show it
"""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog.kernel import events
from probes.catalog.kernel.amd import AmdLines
from probes.catalog.kernel.findings import findings
from probes.catalog.kernel.gpu import GpuLines
from probes.catalog.kernel.lines import Clock, log_lines
from probes.catalog.kernel.netfs import NetfsLines
from probes.catalog.kernel.node import NodeLines
from probes.catalog.kernel.notices import NoticeLines
from probes.catalog.kernel.oom import OomLines
from probes.catalog.kernel.tally import Tally
from probes.core import ParseError, Probe, clean, sections
from probes.runner import Denied, read, sh, which

MAX_BYTES = 786_432


def _collect() -> Mapping[str, str]:
    import os
    import pwd
    import time

    cap = 700000  # below the probe's max_bytes, so that the newest lines are the ones that are kept
    words = (
        "nvrm", "xid", "nvidia", "nvswitch", "out of memory", "oom-kill", "oom_reaper", "killed process",
        "kill process", "memory: usage", "blocked for more", "blocked in i/o", "lockup", "rcu", "aer:",
        "pcie bus error", "mce:", "edac", "hardware error", "machine check", "mlx5", "nic link is",
        "infiniband", "not responding",
        ": server ", "i/o error", "medium error", "target error", "ext4-fs error", "read-only", "readonly", "xfs (",
        "nvme", "segfault", "traps:", "panic", "oops", "bug:", "kernel bug", "general protection", "divide error",
        "file-max limit", "been shut down", "ting down file", "amdgpu", "lustre", "beegfs", "ceph: ", "cifs: ", "mmfs",
        "no space left", "quota exceeded", "reboot: ", "linux version", "dmar:", "amd-vi",
    )  # fmt: skip

    def kernel_log() -> tuple[str, str]:
        """(the command, its output). Raises Denied."""
        refused = ""
        journalctl, dmesg = which("journalctl"), which("dmesg")
        if journalctl:
            for form in ("short-iso-precise", "short-iso"):  # the first is unknown to systemd before 234
                argv = [journalctl, "-k", "-q", "--no-pager", "-o", form, "--since", "-2h", "-n", "100000"]
                status, out, _ = sh(argv, 67108864)
                if out.strip():
                    return " ".join(argv), out
                if status == 0:
                    break
        if dmesg:
            sudo = which("sudo")
            for front in ([], [sudo, "-n"]) if sudo and os.getuid() else ([],):
                for argv in ([dmesg, "--time-format", "iso"], [dmesg]):  # the second for old util-linux and busybox
                    status, out, err = sh(front + argv, 67108864)
                    if status == 0 and "not permitted" not in err:
                        return " ".join(front + argv), out
                    refused = refused or err.strip()[:200]
        if journalctl and sh([journalctl, "-k", "-q", "--no-pager", "-n", "1"])[1].strip():
            return journalctl + " -k", ""  # readable, and quiet for two hours
        refused = refused or "no readable journal, no dmesg"
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = f"#{os.getuid()}"
        allow = f"{user} ALL=(root) NOPASSWD: {dmesg or '/usr/bin/dmesg'}"
        raise Denied(
            f"the kernel log is for root only on this node ({refused}): add the user to the group systemd-journal or "
            f"adm, or allow in sudoers: {allow}"
        )

    command, log = kernel_log()
    kept, dropped, size, stack, over = [], 0, 0, 0, 0
    for line in log.splitlines():
        low = line.lower()
        wanted = not line.startswith("==>") and "command line:" not in low and any(word in low for word in words)
        if "blocked for more" in low or "blocked in i/o" in low:
            stack = 40
        # The stack below says what a hung task waits for; the driver spreads "fallen off the bus" over lines.
        wanted = wanted or bool(stack and "+0x" in line) or (line[:1] == " " and "fallen off the bus" in low)
        stack = max(0, stack - 1)
        if wanted:
            kept.append(line[:2000])
        else:
            dropped += 1
    for place in range(len(kept) - 1, -1, -1):
        size += len(kept[place].encode("utf-8", "surrogateescape")) + 1
        if size > cap:
            over = place + 1
            break
    parts = {"date +%s.%N": f"{time.time():.6f}", "/proc/uptime": f"{time.clock_gettime(time.CLOCK_MONOTONIC):.6f}"}
    parts["/proc/sys/kernel/random/boot_id"] = read("/proc/sys/kernel/random/boot_id")
    parts["golden15/dropped"] = f"{dropped} lines without interest, {over} over the cap"
    parts[command] = "\n".join(kept[over:])
    return parts


def parse(text: str) -> events.KernelLog:
    """The sections above, or a recorded kernel log in any form that dmesg, journalctl and /dev/kmsg print."""
    text = clean(text)
    if not text.lstrip().startswith("==> "):
        return _log(text, "", Clock(), "", None, None)
    parts = sections(text)
    command = next((name for name in parts if "journalctl" in name or "dmesg" in name), None)
    if command is None:
        raise ParseError(f"no section of dmesg or journalctl, only {', '.join(parts)[:120]}")
    clock = Clock(_seconds(parts, "date +%s.%N"), _seconds(parts, "/proc/uptime"))
    dropped, over = _dropped(parts.get("golden15/dropped", ""))
    return _log(parts[command], command, clock, parts.get("/proc/sys/kernel/random/boot_id", "").strip(), dropped, over)


def _seconds(parts: Mapping[str, str], name: str) -> float | None:
    """The first word of a section. /proc/uptime counts suspended time too, which training nodes do not have."""
    if name not in parts:
        return None
    word = parts[name].split()[:1]
    try:
        seconds = float(word[0])
        if not 0 <= seconds < 1e11:
            raise ValueError
    except (IndexError, ValueError):
        raise ParseError(f"section {name}: expected seconds, found {parts[name][:40]!r}") from None
    return seconds


def _dropped(text: str) -> tuple[int | None, int | None]:
    if not text:
        return None, None
    words = text.split()
    try:
        return int(words[0]), int(words[4])
    except (IndexError, ValueError):
        raise ParseError(f"section golden15/dropped: expected two counts, found {text[:60]!r}") from None


def _log(text: str, source: str, clock: Clock, boot_id: str, dropped: int | None, over: int | None) -> events.KernelLog:
    tally = Tally()
    readers = tuple(kind(tally) for kind in (GpuLines, AmdLines, OomLines, NetfsLines, NoticeLines, NodeLines))
    count = stamped = known = 0
    first = last = ""
    for line in log_lines(text, clock):
        if line.text or line.stamp:
            count += 1
            stamped += bool(line.stamp)
            first, last = first or line.stamp, line.stamp or last
            known += any(reader.take(line) for reader in readers)
    if count and not stamped and not known:
        raise ParseError(f"expected a kernel log, found {text.strip()[:80]!r}")
    off_bus = _without_79(tally)
    generic = [check for check in tally.of(events.MachineCheck) if check.device]
    return events.KernelLog(
        source, clock.now, clock.wall(0.0), boot_id, count, dropped, over,
        xids=tally.of(events.Xid),
        sxids=tally.of(events.SXid),
        off_bus=off_bus,
        oom_kills=tally.of(events.OomKill),
        hung_tasks=tally.of(events.HungTask),
        lockups=tally.of(events.Lockup),
        rcu_stalls=tally.of(events.RcuStall),
        aer=tally.of(events.Aer),
        machine_checks=tuple(generic) or tally.of(events.MachineCheck),  # "events logged" only where nothing says more
        nfs_stalls=tally.of(events.NfsStall),
        read_only=tally.of(events.ReadOnly),
        io_errors=tally.of(events.IoError),
        nvme=tally.of(events.Nvme),
        peermem=tally.of(events.Peermem),
        links=tally.of(events.Link),
        hca_notices=tally.of(events.HcaNotice),
        segfaults=tally.of(events.Segfault),
        oopses=tally.of(events.Oops),
        file_max=tally.of(events.FileMax),
        gpu_problems=tally.of(events.GpuProblem),
        notices=tally.of(events.Notice),
        no_space=tally.of(events.NoSpace),
        iommu_faults=tally.of(events.IommuFault),
        first=first,
        last=last,
    )  # fmt: skip


def _without_79(tally: Tally) -> tuple[events.OffBus, ...]:
    said = {xid.bus_id for xid in tally.of(events.Xid) if xid.xid == 79}
    return tuple(gone for gone in tally.of(events.OffBus) if gone.bus_id not in said)


PROBE = Probe(
    "host.kernel_log",
    "What has this node's kernel complained about in the last two hours?",
    parse,
    findings,
    collect=_collect,
    by_hand='journalctl -k -o short-iso-precise --since "-2h" || dmesg --time-format iso',
    timeout_s=8.0,
    max_bytes=MAX_BYTES,
    touches="kernel-log",
    needs="the kernel log: root, group systemd-journal or adm, or sudo for dmesg where kernel.dmesg_restrict is 1",
    cost="29 ms",
)
