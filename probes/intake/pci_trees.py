"""Copies of /sys/bus/pci/devices: many small files, one reading of host.pci per tree.

Source   Linux, Documentation/ABI/testing/sysfs-bus-pci: class, vendor, current_link_speed, aer_dev_fatal and others
Shape    PciTrees takes items and gives a NodeFile per tree at the end
Errors   what host.pci cannot read is an Unread with why
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from probes import catalog
from probes.core import Capture
from probes.intake.brought import NodeFile
from probes.intake.items import Item, Unread

LINKS = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")
IDS = ("class", "vendor", "device")
ERRORS = ("aer_dev_nonfatal", "aer_dev_fatal")  # also read as counters
SMALL, MOST = 4096, 4096
_SLOT = re.compile(r"([0-9a-fA-F]{4,8})[:_]([0-9a-fA-F]{2})[:_]([0-9a-fA-F]{2})\.([0-7])")  # copied with _ for :
_COUNT = re.compile(r"^(\w{1,24}) [1-9]\d{0,19}$", re.M)
_ABOVE = re.compile(r"sys|bus|pci|devices|pci[0-9a-fA-F]{4}[:_][0-9a-fA-F]{2}")


class PciTrees:
    def __init__(self) -> None:
        self._devices: dict[PurePosixPath, dict[str, dict[str, str]]] = {}
        self._refs: dict[PurePosixPath, str] = {}

    def take(self, item: Item) -> bool:
        """Whether it is a file of such a tree that nothing else reads."""
        name, slot = item.inside.name, _SLOT.fullmatch(item.inside.parent.name)
        if slot is None or name not in (*LINKS, *IDS, *ERRORS) or len(item.upto(SMALL + 1)) > SMALL:
            return False
        above = item.inside.parent.parent
        while _ABOVE.fullmatch(above.name) or _SLOT.fullmatch(above.name):
            above = above.parent
        device = self._devices.setdefault(above, {}).setdefault("{}:{}:{}.{}".format(*slot.groups()).lower(), {})
        device[name] = item.data.decode("utf-8", "replace").strip()
        self._refs.setdefault(above, str(PurePosixPath(item.ref).parent.parent))
        return name not in ERRORS

    def files(self) -> Iterator[NodeFile | Unread]:
        for above, devices in self._devices.items():
            rows = [
                _row(slot, files) for slot, files in sorted(devices.items())[:MOST] if {*LINKS, *IDS[:2]} & {*files}
            ]
            if not rows:
                continue
            text = "==> devices <==\n" + "\n".join(map(json.dumps, rows)) + "\n==> virtual <==\nno\n"
            reading = catalog.read(Capture("", "host.pci", "ok", text.encode()))
            if reading.parse_error:
                yield Unread(self._refs[above], reading.parse_error)
            else:
                yield NodeFile(self._refs[above], above / "host.pci", "host.pci", reading)


def _row(slot: str, files: dict[str, str]) -> dict[str, object]:
    """As the collector of host.pci writes it. Its PCI configuration, which tells of ACS, is not among such copies."""
    wrong = {bit for name in ERRORS for bit in _COUNT.findall(files.get(name, "")) if not bit.startswith("TOTAL")}
    ids = {name: files.get(name, "")[2:6] for name in IDS}
    return {
        "slot": slot,
        **ids,
        **{name: files.get(name, "") for name in LINKS},
        "dead": False,
        "errors": sorted(wrong),
    }
