"""Copies of /sys/bus/pci/devices: many small files, one reading of host.pci per tree.

Shape    PciTrees takes items and gives a NodeFile per tree at the end
Errors   what host.pci cannot read is an Unread with why
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from probes.catalog.host.pci import pci_findings
from probes.core import Capture, ParseError, Reading
from probes.intake.brought import NodeFile
from probes.intake.items import Item, Unread
from probes.intake.tools.host.pci_sysfs import ERRORS, IDS, LINKS, TOOL, pci_of, slot_of

SMALL = 4096
_ABOVE = re.compile(r"sys|bus|pci|devices|pci[0-9a-fA-F]{4}[:_][0-9a-fA-F]{2}")


class PciTrees:
    def __init__(self) -> None:
        self._devices: dict[PurePosixPath, dict[str, dict[str, str]]] = {}
        self._refs: dict[PurePosixPath, str] = {}

    def take(self, item: Item) -> bool:
        """Whether it is a file of such a tree that nothing else reads. Errors are read as counters as well."""
        name, slot = item.inside.name, slot_of(item.inside.parent.name)
        if not slot or name not in (*LINKS, *IDS, *ERRORS) or len(item.upto(SMALL + 1)) > SMALL:
            return False
        above = item.inside.parent.parent
        while _ABOVE.fullmatch(above.name) or slot_of(above.name):
            above = above.parent
        device = self._devices.setdefault(above, {}).setdefault(slot, {})
        device[name] = item.data.decode("utf-8", "replace").strip()
        self._refs.setdefault(above, str(PurePosixPath(item.ref).parent.parent))
        return name not in ERRORS

    def files(self) -> Iterator[NodeFile | Unread]:
        for above, devices in self._devices.items():
            told = {slot: files for slot, files in devices.items() if files.keys() - {*ERRORS, "device"}}
            if not told:
                continue
            try:
                facts = pci_of(told)
            except ParseError as error:
                yield Unread(self._refs[above], str(error))
                continue
            reading = Reading(Capture("", TOOL.probe, "ok"), facts, None, tuple(pci_findings(facts)))
            yield NodeFile(self._refs[above], above / "host.pci", TOOL.probe, reading)
