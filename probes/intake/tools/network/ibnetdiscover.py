"""ibnetdiscover(8): the whole fabric, read by the parser of ib.fabric; and its form with -p, one port a line."""

from __future__ import annotations

import re

from probes.catalog.ib_fabric import parse
from probes.catalog.network.ib_fabric_facts import AGGREGATION, Device, DownPort, Fabric, Link, guid_of, hca_first
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

_BLOCK = re.compile(r"^(?:Switch|Ca|Rt)\s{1,8}\d{1,4}\s{1,8}\"[SHR]-[0-9a-fA-F]{16}\"", re.M)
_ROW = re.compile(
    r"^(SW|CA|RT)\s{1,8}(\d{1,6})\s{1,8}(\d{1,4})\s{1,4}0x([0-9a-f]{1,16}) (\d{1,2}x|\?\?\?)\s{1,4}(\w{2,8}|\?\?\?)"
    r"(?: {1,8}-? {0,4}(SW|CA|RT)\s{1,8}(\d{1,6})\s{1,8}(\d{1,4})\s{1,4}0x([0-9a-f]{1,16})"
    r" \( '([^'\n]{0,120})' - '([^'\n]{0,120})' \)"
    r"|\s{1,80}'([^'\n]{0,120})')",
    re.M,
)
KINDS = {"SW": "switch", "CA": "hca", "RT": "router"}


def fits(head: str, name: str) -> bool:
    return bool(_BLOCK.search(head) or _ROW.search(head))


def read(text: str) -> Fabric:
    """A row of -p without a peer is a port without a link."""
    if _BLOCK.search(text):
        return parse(text)
    devices: dict[str, Device] = {}
    links: dict[tuple[str, int], Link] = {}
    down: list[DownPort] = []
    lids: dict[str, str] = {}
    for row in _ROW.finditer(text):
        kind, lid, port, guid, lanes, speed, kind2, lid2, port2, guid2, name, name2, alone = row.groups()
        here = guid_of(guid)
        _note(devices, here, kind, name if name is not None else alone or "")
        lids[lid] = here
        if guid2 is None:
            down.append(DownPort(here, int(port), "Down", ""))
            continue
        there = guid_of(guid2)
        _note(devices, there, kind2, name2)
        lids[lid2] = there
        link = Link(
            here, int(port), there, int(port2),
            None if lanes == "???" else int(lanes[:-1]), None if speed == "???" else speed,
        )  # fmt: skip
        if (there, int(port2)) not in links:
            links[here, int(port)] = link
    if not devices:
        raise refuse("what ibnetdiscover prints", text)
    return Fabric(
        "", tuple(devices.values()), tuple(hca_first(one, devices) for one in links.values()), tuple(down), lids
    )


def _note(devices: dict[str, Device], guid: str, kind: str, name: str) -> None:
    called = clean(name).strip()[:120]
    told = "aggregation" if called.lower().endswith(AGGREGATION) else KINDS[kind]
    if guid not in devices:
        devices[guid] = Device(guid, told, 0, called)


TOOL = Tool("ibnetdiscover", "ib.fabric", fits, read)
