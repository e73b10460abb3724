"""How do GPUs, adapters and the bridges above them sit on the PCI bus, and what errors does PCIe count there?

Source   /sys/bus/pci/devices/*: class, vendor, device, current and maximal link, numa_node, local_cpulist (kernel ABI,
         sysfs-bus-pci),
         aer_dev_nonfatal and aer_dev_fatal (sysfs-bus-pci-devices-aer_stats), and the configuration space: its first
         64 bytes for all, the ACS capability of bridges for root only. No driver is asked: a sick one holds nothing up
Units    GT/s, lanes; errors since the device was found
Shape    Pci, as lspci gives it
Errors   ParseError when a line is not what the collector writes; None where the kernel does not say
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from probes.catalog._collected import as_rows, whole_or_none, word
from probes.catalog.host.pci import Pci, PciDevice, pci_findings
from probes.core import ParseError, Probe, sections
from probes.runner import Absent, read

__all__ = ["PROBE", "Pci", "findings", "parse"]

findings = pci_findings
# Whose links matter to training; the machine's own network and screen may be as narrow as they like.
VENDORS = {"10de": "nvidia", "1002": "amd", "15b3": "mellanox", "14e4": "broadcom"}
MOST = 4096


def _collect() -> Mapping[str, str]:
    import os

    root = "/sys/bus/pci/devices"
    links = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")

    def text(slot: str, name: str) -> str:
        try:
            return read(f"{root}/{slot}/{name}", 4096).strip()
        except OSError:
            return ""

    def config(slot: str) -> bytes:
        """64 bytes, or 4096 where this login may see them."""
        try:
            with open(f"{root}/{slot}/config", "rb") as handle:
                return handle.read(4096)
        except OSError:
            return b""

    def errors(slot: str, name: str) -> list[str]:
        found = []
        for line in text(slot, name).split("\n"):
            words = line.split()
            if len(words) == 2 and words[1] != "0" and not words[0].startswith("TOTAL"):
                found.append(words[0])
        return found[:24]

    def access_control(data: bytes) -> int | None:
        """The control register of ACS (PCIe base specification 7.7.11: capability 0x000d, control at 6)."""
        at = 0x100
        for _ in range(64):
            if at < 0x100 or at + 8 > len(data):
                return None
            head = int.from_bytes(data[at : at + 4], "little")
            if head & 0xFFFF == 0x000D:
                return int.from_bytes(data[at + 6 : at + 8], "little")
            at = head >> 20
        return None

    try:
        slots = sorted(os.listdir(root))[:4096]
    except OSError:
        raise Absent("there is no PCI bus here") from None
    rows = []
    for slot in slots:
        kind, vendor = text(slot, "class")[2:6], text(slot, "vendor")[2:]
        if kind[:2] not in ("02", "03", "12") and kind != "0604" and not (kind == "0680" and vendor == "10de"):
            continue
        data = config(slot)
        row: dict[str, Any] = {"slot": slot, "class": kind, "vendor": vendor, "device": text(slot, "device")[2:]}
        row["dead"] = data[:4] == b"\xff\xff\xff\xff"
        for name in links:
            row[name] = text(slot, name)
        if kind != "0604":
            row.update(numa=text(slot, "numa_node"), cpus=text(slot, "local_cpulist")[:400])
        if kind == "0604":
            row["below"] = list(data[0x19:0x1B]) if not row["dead"] else []
            row["acs"] = access_control(data)
        row["errors"] = sorted(set(errors(slot, "aer_dev_nonfatal") + errors(slot, "aer_dev_fatal")))
        rows.append(json.dumps(row))
    flags = ""
    for line in read("/proc/cpuinfo", 65536).split("\n"):
        if line.startswith("flags"):
            flags = line
            break
    return {"devices": "\n".join(rows), "virtual": "yes" if " hypervisor" in flags else "no"}


def parse(text: str) -> Pci:
    """One JSON object per device."""
    parts = sections(text)
    if "devices" not in parts or parts.get("virtual", "").strip() not in ("yes", "no"):
        raise ParseError(f"expected the sections devices and virtual, found {', '.join(parts)[:80]}")
    devices = tuple(_device(row) for row in as_rows(parts["devices"], "PCI device")[:MOST])
    return Pci(devices, parts["virtual"].strip() == "yes", any(device.width for device in devices))


def _device(row: dict[str, Any]) -> PciDevice:
    slot, kind = word(row, "slot", "PCI device", 16), word(row, "class", "PCI device", 4)
    what = f"PCI device {slot}"
    ids = word(row, "vendor", what, 4), word(row, "device", what, 4)
    vendor = VENDORS.get(ids[0], "")
    acs = whole_or_none(row, "acs", what)
    below = row.get("below") or []
    errors = row.get("errors")
    if not isinstance(below, list) or len(below) not in (0, 2) or not isinstance(errors, list):
        raise ParseError(f"{what}: expected two buses below it and a list of errors, found {str(row)[:80]!r}")
    return PciDevice(
        slot=slot,
        kind=_kind(kind, vendor),
        vendor=vendor,
        name=f"{vendor or 'vendor ' + ids[0]} {ids[1]}",
        speed=_speed(word(row, "current_link_speed", what, 40)),
        speed_max=_speed(word(row, "max_link_speed", what, 40)),
        width=_width(word(row, "current_link_width", what, 40)),
        width_max=_width(word(row, "max_link_width", what, 40)),
        redirects=None if acs is None else bool(acs & 0b1100),  # P2P request and completion redirect
        below=(int(below[0]), int(below[1])) if below else None,
        dead=row.get("dead") is True,
        errors=tuple(word({"e": error}, "e", what, 24) for error in errors[:24]),
        numa=_node(row.get("numa")),
        cpus=word(row, "cpus", what, 400) if "cpus" in row else "",
    )


def _kind(code: str, vendor: str) -> str:
    """By the class code of the PCI specification; AMD's and NVIDIA's GPUs for computing are 0302 or 1200."""
    if code == "0604":
        return "bridge"
    if code.startswith("02"):
        return "nic"
    if code == "0680":
        return "switch"
    gpu = vendor in ("nvidia", "amd") and (code in ("0302", "0380", "1200") or (code == "0300" and vendor == "nvidia"))
    return "gpu" if gpu else "other"


def _node(text: Any) -> int | None:
    """-1 where the firmware does not tell."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 5 else None


def _speed(text: str) -> float | None:
    """`16.0 GT/s PCIe`; `Unknown` where there is no link."""
    try:
        return float(text.split()[0]) if text.endswith(("GT/s", "GT/s PCIe")) else None
    except ValueError:
        return None


def _width(text: str) -> int | None:
    """0 and 255 stand for no link."""
    return int(text) if text.isdecimal() and 0 < int(text) < 64 else None


PROBE = Probe(
    "host.pci",
    "Do GPUs and adapters have their full PCIe links, and may GPUs reach each other directly?",
    parse,
    findings,
    collect=_collect,
    by_hand="lspci -Dvvv",
    timeout_s=4.0,
    max_bytes=1_048_576,
    needs="for ACS of bridges: root",
    cost="3 ms",
)
