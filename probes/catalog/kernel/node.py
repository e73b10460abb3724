"""Kernel log lines of tasks, PCIe, machine checks, disks and HCAs.

Source   the kernel's own wording: kernel/hung_task.c, kernel/watchdog.c, drivers/pci/pcie/aer.c,
         block/blk-core.c, drivers/edac/edac_mc.c, drivers/net/ethernet/mellanox/mlx5
"""

from __future__ import annotations

import re
from typing import Any

from probes.catalog.kernel.events import (
    Aer,
    FileMax,
    HcaNotice,
    HungTask,
    IoError,
    Link,
    Lockup,
    MachineCheck,
    Nvme,
    Oops,
    RcuStall,
    ReadOnly,
    Segfault,
)
from probes.catalog.kernel.gpu import number
from probes.catalog.kernel.lines import Line
from probes.catalog.kernel.machine import WORDS as MACHINE_WORDS
from probes.catalog.kernel.machine import machine_error
from probes.catalog.kernel.tally import Record, Tally

STACK_LINES = 48
# Functions every sleeping task shows on its way into the scheduler: they do not say what it waits for.
_ASLEEP = (
    "schedule", "__schedule", "io_schedule", "preempt_schedule", "context_switch", "__context_switch", "mutex_lock",
    "__mutex", "rwsem_", "down_", "__down", "wait_for", "__wait_for", "do_wait_for", "bit_wait", "__wait_on",
    "out_of_line_wait", "wait_on_bit", "wait_on_page", "rt_mutex", "percpu_rwsem",
    "__pfx_",
    "__sched_text_start",
    "call_rwsem", "__percpu", "_raw_spin", "? ",
)  # fmt: skip
_OOPS = (
    "BUG: unable to handle", "BUG: kernel NULL pointer", "Unable to handle kernel", "Internal error: Oops",
    "kernel BUG at", "divide error:", "general protection fault", "Kernel panic -",
)  # fmt: skip
_NVME = ("controller is down", "timeout, ", "Removing after", "Device not ready", "resetting controller", "failed to ")
_HCA = (
    ("Cable error", "cable error"),
    ("Cable unplugged", "cable unplugged"),
    ("ealth compromised", "health"),
    ("Health issue", "health"),
    ("Fatal error", "health"), ("health: fatal error", "health"), ("irmware internal error", "health"),
    ("timeout. Will cause a leak of a command resource", "health"),  # cmd.c: its firmware never answered
    ("mlx5_error_sw_reset", "health"), ("enter_error_state", "health"),
    ("PCI reads still not working", "health"),  # mlx5_health_try_recover gives it up
    ("limits exceeded(0x8)", "used up"),  # mlx5_cmd_out_err of a command that asks for one more
    ("no resources(0xf)", "used up"),
    ("insufficient power", "power"),
    ("High temperature", "temperature"),
)  # fmt: skip


class NodeLines:
    """Reads one line after another. Holds what an earlier line said about a later one: the task whose stack follows."""

    def __init__(self, tally: Tally):
        self.tally = tally
        self.task: Record | None = None
        self.stack_left = 0
        self.oops_left = 0

    def take(self, line: Line) -> bool:
        """True when the line belongs to an event."""
        text = line.text
        self.oops_left -= 1
        if self.stack_left > 0 and self.task and "+0x" in text:
            self._frame(text)
            return False
        self.stack_left -= 1
        if not _ANY.search(text):  # most lines: one search is far cheaper than one for each word
            return False
        for words, read in self._TABLE:
            if any(word in text for word in words):
                return bool(read(self, line))
        return False

    # Tasks and the kernel itself

    def _hung(self, line: Line) -> bool:
        """`INFO: task NAME:PID blocked for more than 120 seconds.`: NAME may hold colons, spaces, even a line break."""
        before, _, after = line.text.partition(" blocked ")
        seconds = number(after.partition("more than ")[2], 8)
        name, _, tail = before.rpartition(":")
        pid = number(tail)
        if seconds is None or pid is None:
            return False
        name = name.partition("INFO: task ")[2] if "INFO: task " in name else name
        new: dict[str, Any] = {"pid": pid, "process": name[:64], "seconds": seconds, "where": "", "modules": ()}
        self.task = self.tally.count(HungTask, (pid, name[:64]), line, **new)
        self.task.fields["seconds"] = max(seconds, self.task.fields["seconds"])
        self.stack_left = STACK_LINES
        return True

    def _frame(self, text: str) -> None:
        """` ? nfs_wait_bit_killable+0x1e/0x30 [nfs]`, older ` [<ffffffff81510915>] ? nfs_wait+0x25/0x70`."""
        assert self.task is not None
        before, _, after = text.partition("+0x")
        name = before.split(" ")[-1]
        module = after.partition(" [")[2].partition("]")[0]
        if module and module.replace("_", "").isalnum():
            self.task.add("modules", module[:40], 8)
        if not self.task.fields["where"] and name and not name.startswith(_ASLEEP):
            self.task.fields["where"] = name[:64]

    def _lockup(self, line: Line) -> bool:
        """`watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:1234]`"""
        rest = line.text.partition("soft lockup - CPU#")[2]
        cpu, seconds = number(rest, 6), number(rest.partition("stuck for ")[2], 8)
        name, _, tail = rest.partition("! [")[2].rpartition(":")
        fields: dict[str, Any] = {"cpu": cpu, "seconds": seconds, "process": name[:64], "pid": number(tail)}
        record = self.tally.count(Lockup, (cpu,), line, **fields)
        record.fields["seconds"] = max(seconds or 0, record.fields["seconds"] or 0) or None
        return True

    def _rcu(self, line: Line) -> bool:
        if "rcu" not in line.text:
            return False
        self.tally.count(RcuStall, (), line)
        return True

    def _oops(self, line: Line) -> bool:
        if line.text.startswith("traps: "):
            return False  # a process, not the kernel
        if self.oops_left > 0 and "Kernel panic" not in line.text:
            return True  # the same event goes on
        self.oops_left = 12
        self.tally.count(Oops, ("panic",) if "Kernel panic" in line.text else (), line)
        return True

    def _segfault(self, line: Line) -> bool:
        """`NAME[PID]: segfault at 7f79 ip 7f7c sp 7f7d error 4 in libnccl.so.2[7f7c+d3d3]`"""
        before, _, after = line.text.partition("]: segfault at ")
        name, _, tail = before.rpartition("[")
        pid = number(tail)
        if pid is None:
            return False
        library = after.partition(" in ")[2].partition("[")[0]
        self.tally.count(Segfault, (pid, library[:64]), line, pid=pid, process=name[:64], library=library[:64])
        return True

    def _trap(self, line: Line) -> bool:
        """`traps: NAME[PID] general protection fault ip:7f7c sp:7f7d error:0 in libnccl.so.2[7f7c+d3d3]`"""
        before, _, after = line.text.removeprefix("traps: ").partition("] ")
        name, _, tail = before.rpartition("[")
        pid = number(tail)
        if pid is None or not line.text.startswith("traps: "):
            return False
        library = after.partition(" in ")[2].partition("[")[0]
        self.tally.count(Segfault, (pid, library[:64]), line, pid=pid, process=name[:64], library=library[:64])
        return True

    def _file_max(self, line: Line) -> bool:
        self.tally.count(FileMax, (), line)
        return True

    # PCIe and machine checks

    def _aer(self, line: Line) -> bool:
        """`pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)`"""
        before, _, rest = line.text.partition("PCIe Bus Error: ")
        words = before.replace("AER:", "").split()
        device = words[-1].rstrip(":")[:32] if words else ""
        said = rest.partition("severity=")[2] or rest
        severity = "corrected" if said.startswith("Correct") else "nonfatal" if "Non-Fatal" in said[:40] else "fatal"
        if not device:
            return False
        fields: dict[str, Any] = {"device": device, "severity": severity, "layers": (), "errors": ()}
        record = self.tally.count(Aer, (device, severity), line, **fields)
        layer = rest.partition("type=")[2].partition(",")[0].strip()
        if layer:
            record.add("layers", layer[:40], 4)
        self.bus_error = (device, record)
        return True

    bus_error: tuple[str, Record] | None = None

    def _aer_detail(self, line: Line) -> bool:
        """`pcieport 0000:00:03.0:    [12] Timeout                (First)` below a bus error of the same device."""
        if self.bus_error and self.bus_error[0] in line.text:
            bit, _, name = line.text.partition(" [")[2].partition("] ")
            if number(bit.strip(), 2) is not None and name and not name.startswith("error status"):
                self.bus_error[1].add("errors", name.partition("(First)")[0].strip()[:40], 8)
        return False

    def _machine_check(self, line: Line) -> bool:
        found = machine_error(line.text)
        if found is None:
            return False
        device, corrected, errors = found
        check = self.tally.count(MachineCheck, (device, corrected), line, device=device, corrected=corrected)
        check.count += errors - 1
        return True

    # Storage

    def _read_only(self, line: Line) -> bool:
        device = line.text.partition("(")[2].partition(")")[0].removeprefix("device ")[:40]
        self.tally.count(ReadOnly, (device,), line, device=device)
        return True

    def _io_error(self, line: Line) -> bool:
        for mark in ("error, dev ", "I/O error on device ", "I/O error on dev ", "fs error (device ", "fs (", "FS ("):
            if mark in line.text:
                device = line.text.partition(mark)[2].partition(" ")[0].partition(",")[0].partition(")")[0].rstrip(":")
                self.tally.count(IoError, (device[:40],), line, device=device[:40])
                return True
        return False

    def _nvme(self, line: Line) -> bool:
        device = line.text.partition("nvme nvme")[2].partition(":")[0]
        if number(device, 4) is None or not any(word in line.text for word in _NVME):
            return False
        self.tally.count(Nvme, (device,), line, device=f"nvme{device}"[:12])
        return True

    # HCAs

    def _mlx5(self, line: Line) -> bool:
        words = line.text.partition("mlx5_core ")[2].split(" ", 2)
        device = words[0].rstrip(":")[:32]
        for mark, what in _HCA:
            if mark in line.text:
                self.tally.count(HcaNotice, (device, what), line, device=device, what=what)
                return True
        lower = line.text.lower()
        up = "link up" in lower or "link active" in lower
        if not up and "link down" not in lower:
            return False
        return self._link(
            line, device, words[1].rstrip(":")[:32] if len(words) > 1 and words[1].endswith(":") else "", up
        )

    def _bnxt(self, line: Line) -> bool:
        """Its firmware failed, or a command was never answered (bnxt.c, bnxt_hwrm.c)."""
        device = line.text.partition("bnxt_en ")[2].partition(" ")[0].rstrip(":")[:32]
        if not any(mark in line.text for mark in _BNXT):
            return self._nic_link(line)
        return self.tally.count(HcaNotice, (device, "health"), line, device=device, what="health") is not None

    def _nic_link(self, line: Line) -> bool:
        """Of bnxt_en, ice, i40e, ixgbe and gve: `bnxt_en 0000:21:00.0 eth2: NIC Link is Down`."""
        found = _NIC_LINK.search(line.text)
        return found is not None and self._link(line, found[1], found[2] or "", found[3].lower() == "up")

    def _cxi(self, line: Line) -> bool:
        """Of Slingshot's adapters: `cxi_core 0000:c3:00.0: cxi3[hsn3] CXI_EVENT_LINK_DOWN`; or with a colon."""
        found = _CXI.search(line.text)
        return found is not None and self._link(line, found[1], found[2], found[3] == "UP")

    def _link(self, line: Line, device: str, name: str, up: bool) -> bool:
        known = self.tally.find(Link, device, name)
        was_up = known is not None and known.fields["up"] is True
        record = self.tally.count(Link, (device, name), line, device=device, name=name, drops=0, up=None)
        record.fields["drops"] += was_up and not up
        earlier = known if up and known is not None else record  # hours later, it came back all the same
        earlier.fields["up"] = record.fields["up"] = up
        return True

    # The first row with one of its words in the line reads it.
    _TABLE = (
        ((" blocked for more than ", " blocked more than ", " blocked in I/O wait for more than "), _hung),
        (("soft lockup - CPU#",), _lockup),
        (("detected stall", "self-detected stall", "detected expedited stall"), _rcu),
        (("]: segfault at ",), _segfault),
        (("] general protection fault ip:", "] trap invalid opcode ip:", "] trap divide error ip:"), _trap),
        (_OOPS + ("Oops: ",), _oops),
        (("PCIe Bus Error: ",), _aer),
        (MACHINE_WORDS, _machine_check),
        (
            ("filesystem read-only", "forced readonly", "hutting down filesystem", "been shut down", "ting down file"),
            _read_only,
        ),
        (("I/O error", "medium error, dev ", "critical target error, dev ", "EXT4-fs error"), _io_error),
        (("nvme nvme",), _nvme),
        (("mlx5_core ",), _mlx5),
        (("bnxt_en ",), _bnxt),
        ((": NIC Link is ", ": Device link is "), _nic_link),
        (("CXI_EVENT_LINK_",), _cxi),
        (("file-max limit",), _file_max),
        (("] ",), _aer_detail),
    )


_NIC_LINK = re.compile(
    r"([0-9a-f]{2,4}:[0-9a-f]{2}:[0-9a-f:.]{2,8})(?: ([\w.@-]{1,32}))?: (?:NIC Link|Device link) is (up|down)", re.I
)
_BNXT = ("Firmware fatal reset event", "irmware heartbeat stopped", "Error (timeout: ")
_CXI = re.compile(r"([0-9a-f:]{7,12}\.\d): cxi\d{1,3}\[(\w{1,15})\]:? CXI_EVENT_LINK_(UP|DOWN)")
_ANY = re.compile("|".join(re.escape(word) for words, _ in NodeLines._TABLE for word in words))
