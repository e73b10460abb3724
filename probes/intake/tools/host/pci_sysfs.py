"""Files of /sys/bus/pci/devices: each on a line behind its path, as `grep -H .` and loops print them, or as copies.

Source   Linux, Documentation/ABI/testing/sysfs-bus-pci: class, vendor, current_link_speed, aer_dev_fatal and others
Units    as the kernel prints them: lanes, GT/s
Shape    facts host.pci; pci_of(slot -> name -> value) for copies of the files
Errors   ParseError where no device is told
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from probes.catalog.host.pci import Pci, pci_findings
from probes.catalog.host_pci import parse
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

LINKS = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
IDS = ("class", "vendor", "device")
ERRORS = ("aer_dev_nonfatal", "aer_dev_fatal")
SLOT = re.compile(r"([0-9a-fA-F]{4,8})[:_]([0-9a-fA-F]{2})[:_]([0-9a-fA-F]{2})\.([0-7])")  # copied with _ for :
MOST = 4096
_COUNT = re.compile(r"^(\w{1,24}) [1-9]\d{0,19}$", re.M)
_LINE = re.compile(
    rf"(?:\S{{0,200}}/)?([0-9a-fA-F]{{4,8}}:[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}\.[0-7])/({'|'.join((*LINKS, *IDS))})"
    r"\s{0,4}[:= ]\s{0,4}(\S.{0,60})"
)


def slot_of(name: str) -> str:
    """0000:4c:00.0 of the name of a folder; "" where it is none."""
    found = SLOT.fullmatch(name)
    return "{}:{}:{}.{}".format(*found.groups()).lower() if found else ""


def pci_of(devices: Mapping[str, Mapping[str, str]]) -> Pci:
    """As the collector of host.pci brings it. The PCI configuration, which tells of ACS, is not among such files."""
    rows = []
    for slot, files in sorted(devices.items())[:MOST]:
        wrong = {bit for name in ERRORS for bit in _COUNT.findall(files.get(name, "")) if not bit.startswith("TOTAL")}
        ids = {name: files.get(name, "")[2:6] for name in IDS}
        links = {name: files.get(name, "") for name in LINKS}
        rows.append(json.dumps({"slot": slot, **ids, **links, "dead": False, "errors": sorted(wrong)}))
    return parse("==> devices <==\n" + "\n".join(rows) + "\n==> virtual <==\nno\n")


def _fits(head: str, name: str) -> bool:
    found = [line for line in lines_of(head, 400) if line.strip()][:60]
    return sum(bool(_LINE.fullmatch(line.strip())) for line in found) * 2 > len(found) > 0


def read(text: str) -> Pci:
    devices: dict[str, dict[str, str]] = {}
    for line in lines_of(text, 400):
        if found := _LINE.fullmatch(line.strip()):
            devices.setdefault(found[1].lower(), {})[found[2]] = found[3].strip()
    if not devices:
        raise refuse("lines such as '/sys/bus/pci/devices/0000:4c:00.0/current_link_width:16'", text)
    return pci_of(devices)


TOOL = Tool("sysfs of PCI devices", "host.pci", _fits, read, pci_findings, host=host_in)
