"""lspci, plain, -nn, -D and -vv/-vvv.

Source   lspci(8); NVIDIA's vendor id 10de, Mellanox 15b3. Link and ACS lines need root
Shape    facts host.pci
Errors   ParseError when no device is in it
"""

from __future__ import annotations

import re
from typing import Any

from probes.catalog.host.pci import Pci, PciDevice, pci_findings
from probes.core import ParseError, clean, lines_of
from probes.intake.tools import Tool

_DEVICE = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ([A-Z0-9][\w /.-]{2,60}?)"
    r"(?: \[[0-9a-f]{4}\])?: ([^\n]{1,200})"
)
# `for b in ...; do echo -n "$b "; lspci -s $b -vv | grep LnkSta:; done`: nothing says what is there
_LOOPED = re.compile(
    r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2})(?:(:[0-9a-f]{2}\.[0-7])|:?)[\s:]{1,8}(LnkSta:\s{0,8}Speed [^\n]{1,200})"
)
_LINK = re.compile(r"Speed ([\d.]{1,5})GT/s[^,]{0,16}, Width x(\d{1,2})")
_CAP = re.compile(r"Speed ([\d.]{1,5})GT/s, Width x(\d{1,2})")
_BEHIND = re.compile(r"secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})")
_VIRTUAL = ("Red Hat", "QEMU", "Virtio", "VMware", "Amazon.com", "Hyper-V", "Microsoft Corporation Hyper",
    "Google, Inc.",
    "440FX", "82G33/G31", "Xen")  # fmt: skip
_KINDS = {"3D controller": "gpu", "VGA compatible controller": "gpu", "Display controller": "gpu",
    "Processing accelerators": "gpu", "Infiniband controller": "nic", "Ethernet controller": "nic",
    "Network controller": "nic", "PCI bridge": "bridge"}  # fmt: skip


def _fits(head: str, name: str) -> bool:
    lines = [line for line in lines_of(head[:32768]) if line.strip()][:200]
    count = sum(bool(_DEVICE.match(line) or _LOOPED.match(line)) for line in lines)
    # A number alone is what somebody counted beside it: lspci | grep -c NVIDIA
    other = sum(not line[:1].isspace() and not _DEVICE.match(line) and not line.strip().isdecimal() for line in lines)
    return count > 0 and (other <= count // 2 or "LnkSta:" in head)


def read(text: str) -> Pci:
    rows: list[dict[str, Any]] = []
    for line in lines_of(text, 1000):
        if found := _DEVICE.match(line):
            rows.append(_device(found))
        elif found := _LOOPED.match(line):
            slot = f"{int(found[1] or '0', 16):04x}:{found[2]}{found[3] or ':00.0'}"
            rows.append({"slot": slot, "kind": "unnamed", "vendor": "", "name": ""})
            _detail(rows[-1], found[4])
        elif rows:
            _detail(rows[-1], line.strip())
    if not rows:
        raise ParseError("expected lspci, found no line that begins with a PCI address")
    virtual = any(word in row["name"] for row in rows for word in _VIRTUAL)
    detail = any(row.get("width") for row in rows)
    return Pci(tuple(PciDevice(**row) for row in rows[:4096]), virtual, detail)


def _device(found: re.Match[str]) -> dict[str, Any]:
    name = clean(found[4])[:120]
    lower = name.lower()
    vendor = "nvidia" if "nvidia" in lower or "[10de:" in name else ""
    vendor = vendor or ("amd" if "advanced micro devices" in lower or "[1002:" in name else "")
    vendor = vendor or ("mellanox" if "mellanox" in lower or "[15b3:" in name else "")
    kind = _KINDS.get(found[3].strip(), "other")
    if kind == "gpu" and (vendor not in ("nvidia", "amd") or (vendor == "amd" and found[3].startswith("VGA"))):
        kind = "other"  # the board's own screen
    if found[3].strip() == "Bridge" and vendor == "nvidia":
        kind = "switch"
    domain = int(found[1], 16) if found[1] else 0
    slot = f"{domain:04x}:{found[2]}"
    return {"slot": slot, "kind": kind, "vendor": vendor, "name": name, "dead": "(rev ff)" in name}


def _detail(row: dict[str, Any], line: str) -> None:
    if line.startswith("LnkCap:") and (found := _CAP.search(line)):
        row["speed_max"], row["width_max"] = float(found[1]), int(found[2])
    elif line.startswith("LnkSta:") and (found := _LINK.search(line)):
        row["speed"], row["width"] = float(found[1]), int(found[2])
    elif line.startswith("Bus: primary=") and (behind := _BEHIND.search(line)):
        row["below"] = (int(behind[1], 16), int(behind[2], 16))
    elif line.startswith("ACSCtl:"):
        row["redirects"] = "ReqRedir+" in line or "CmpltRedir+" in line
    elif line.startswith("UESta:"):
        row["errors"] = tuple(re.findall(r"([A-Za-z]{3,20})\+", line))[:16]
    elif line.startswith("CESta:"):
        row["corrected"] = tuple(re.findall(r"([A-Za-z]{3,20})\+", line))[:16]
    elif line.startswith("!!! Unknown header type"):
        row["dead"] = True


TOOL = Tool("lspci", "host.pci", _fits, read, pci_findings)
