"""Lines of any program that tell of the node as a whole: it stops, it begins, or a file system has no room.

Source   kernel/reboot.c ("reboot: Restarting system"), systemd-logind and systemd (log messages of their sources), the
         words of spot and preemption notices of the clouds' own agents; strerror(3) for ENOSPC and EDQUOT
"""

from __future__ import annotations

import re

from probes.catalog.kernel.events import IommuFault, NoSpace, Notice
from probes.catalog.kernel.lines import Line
from probes.catalog.kernel.tally import Tally

# (words, what): of the kernel itself, then of other programs. The first that fits counts.
_KERNEL = (
    (("reboot: Restarting system", "reboot: machine restart", "sysrq: Resetting"), "reboot"),
    (("reboot: Power down", "reboot: System halted"), "shutdown"),
)
_OTHERS = (
    (
        ("System is rebooting", "The system will reboot now", "Reached target Reboot", "Reached target System Reboot"),
        "reboot",
    ),
    (
        (
            "System is powering down",
            "System is powered down",
            "The system will power off now",
            "Power key pressed",
            "Reached target Power-Off",
            "Reached target System Power Off",
        ),
        "shutdown",
    ),
)
_PREEMPTED = re.compile(
    r"(?:spot|preempt\w{0,5})[^\n]{0,60}(?:interruption|notice|terminat\w{0,5}|preempted|event|warning|will be)"
    r"|instance (?:is being |was |will be )preempted|\bpreemption (?:notice|event)|instance-action[^\n]{0,40}terminat",
    re.I,
)
_MAINTENANCE = re.compile(
    r"(?:host|scheduled|system) maintenance (?:event|notice|in)|TERMINATE_ON_HOST_MAINTENANCE", re.I
)
_AGENTS = re.compile(
    r"(?:cloud|spot|itn|termination|preempt|maintenance|google|waagent|ec2|aws|metadata|node-?problem)", re.I
)
_CLOCK = re.compile(
    r"(?:System clock wrong by|time reset) ([+-]?\d{1,12}(?:\.\d{1,9})?)"
)  # chrony's reference.c, ntp_loopfilter.c
_IOMMU = re.compile(
    r"(?:DMAR|AMD-Vi|arm-smmu)[^\n]{0,120}?"
    r"(?:Request device \[?|device=)([0-9a-f]{0,4}:?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
)
# drivers/iommu/amd: dev_err puts the device and its driver before the event, where the kernel knows both.
_IOMMU_OF = re.compile(
    r"([a-z][\w-]{1,20}) ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
    r"(?:AMD-Vi: Event logged|\[?IO_PAGE_FAULT|arm-smmu)"
)
_FULL = ("No space left on device", "Disk quota exceeded")
_PLACE = re.compile(r"(?:(/[\w./@+-]{1,200})|\(device ([\w./-]{1,40})\))")


class NoticeLines:
    """Reads one line after another."""

    def __init__(self, tally: Tally):
        self.tally = tally

    def take(self, line: Line) -> bool:
        """True when the line was one of these."""
        text = line.text or line.said
        if _FULL[0] in text or _FULL[1] in text:
            found = _PLACE.search(text)
            device = next((part for part in found.groups() if part), "")[:80] if found else ""
            self.tally.count(NoSpace, (device,), line, device=device)
            return True
        if any(word in text for word in ("DMAR", "AMD-Vi", "arm-smmu")) and self._iommu(text, line):
            return True
        what = self._what(line)
        if what == "clock" and (wrong := _CLOCK.search(line.said[:200])):
            self.tally.count(Notice, (what, wrong[1]), line, what=what, seconds=float(wrong[1]))
        elif what:
            self.tally.count(Notice, (what,), line, what=what)
        return bool(what)

    def _iommu(self, text: str, line: Line) -> bool:
        named = _IOMMU_OF.match(text)
        found = named or _IOMMU.search(text)
        if found is None:
            return False
        device = named[2] if named else found[1]
        device = device if device.count(":") == 2 else f"0000:{device}"
        self.tally.count(IommuFault, (device,), line, device=device, driver=named[1] if named else "")
        return True

    def _what(self, line: Line) -> str:
        if line.text.startswith("Linux version "):
            return "boot"
        if line.text:
            if not line.text.startswith(("reboot: ", "sysrq: ")):
                return ""
            return next((what for words, what in _KERNEL if any(word in line.text for word in words)), "")
        if line.program.startswith(("chronyd", "ntpd")) and _CLOCK.search(line.said[:200]):
            return "clock"
        if line.program.startswith("systemd") or line.program in ("shutdown", "init"):
            return next((what for words, what in _OTHERS if any(word in line.said for word in words)), "")
        if _AGENTS.search(line.program):
            if _PREEMPTED.search(line.said[:400]):
                return "preemption"
            return "maintenance" if _MAINTENANCE.search(line.said[:400]) else ""
        return ""
