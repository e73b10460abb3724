"""iblinkinfo(8), by device or with -l one port a line: both ends of every cable, and ports without a link.

Speeds are signalling rates of one lane, 53.125 Gbps for HDR, or names in newer releases. An adapter is named by the
GUID of its port, a switch by its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from probes.catalog.network.ib_fabric_facts import AGGREGATION, Device, DownPort, Fabric, Link, guid_of, hca_first
from probes.catalog.network.ib_names import speed_of
from probes.core import ParseError, clean, lines_of

_HEAD = re.compile(r"^(CA|Switch|RT|Router): (?:(0x[0-9a-fA-F]{1,16}) )?([^\n]{0,120}?):\s*$")
_PORT = re.compile(
    r"^\s{0,12}(?:(0x[0-9a-fA-F]{1,16})\s{1,8}(?:\"([^\"\n]{0,120})\"\s{1,8})?)?(\d{1,6})\s{1,8}(\d{1,4})"
    r"\[[\s\d]{0,4}\] ==\(\s{0,4}(?:(\d{1,2})X\s{1,12}([\w.]{1,10})(?: Gbps)?)?"
    r"\s{0,24}([A-Z][\w]{2,12})/\s{0,8}([A-Za-z]{3,30})\)==>"
    r"\s{0,16}(?:(0x[0-9a-fA-F]{1,16})\s{1,8})?(?:(\d{1,6})\s{1,8}(\d{1,4}))?\[[\s\d]{0,4}\] \"([^\"\n]{0,120})\""
)
_NUMBER = re.compile(r"\d{1,6}(?:\.\d{1,4})?")


def is_port(line: str) -> bool:
    return bool(_PORT.match(line))


@dataclass
class _Sweep:
    devices: dict[str, Device] = field(default_factory=dict)
    links: dict[tuple[str, int], Link] = field(default_factory=dict)
    down: list[DownPort] = field(default_factory=list)
    lids: dict[str, str] = field(default_factory=dict)
    later: list[tuple[str, int, str, int, int | None, str | None, str]] = field(default_factory=list)
    kind: str = ""
    guid: str = ""
    name: str = ""


def swept(text: str) -> Fabric:
    sweep = _Sweep()
    for line in lines_of(text, 600):
        if head := _HEAD.match(line):
            sweep.kind = "switch" if head[1] == "Switch" else "hca" if head[1] == "CA" else "router"
            sweep.guid, sweep.name = guid_of(head[2]) if head[2] else "", head[3]
        elif found := _PORT.match(line):
            _take(sweep, found)
    if not sweep.devices:
        raise ParseError(f"expected ports as iblinkinfo prints them, found {_first(text)!r}")
    for here, port, lid, other, lanes, speed, name in sweep.later:
        there = sweep.lids.get(lid) or f"lid {lid}"
        sweep.devices.setdefault(there, Device(there, "hca", 0, name))
        if (there, other) not in sweep.links:
            sweep.links[here, port] = Link(here, port, there, other, lanes, speed)
    links = tuple(hca_first(one, sweep.devices) for one in sweep.links.values())
    return Fabric("", tuple(sweep.devices.values()), links, tuple(sweep.down), sweep.lids)


def _take(sweep: _Sweep, found: re.Match[str]) -> None:
    guid, name, lid, port, lanes, speed, state, phys, peer, peer_lid, peer_port, peer_name = found.groups()
    here = guid_of(guid) if guid else sweep.guid
    if not here:
        return
    called = clean(name if name is not None else sweep.name).strip()[:120]
    # With -l nothing says what a device is: a switch is in lines with many ports.
    kind = sweep.kind or ("hca" if int(port) <= 2 and here not in sweep.devices else "switch")
    known = sweep.devices.get(here)
    if known is None or (known.kind == "hca" and int(port) > 2):
        kind = "aggregation" if called.lower().endswith(AGGREGATION) else "switch" if int(port) > 2 else kind
        sweep.devices[here] = Device(here, kind, 0, called)
    sweep.lids[lid] = here
    if peer_port is None or state in ("Down", "Initialize", "Init", "Armed"):
        sweep.down.append(DownPort(here, int(port), state, phys))
    if peer_port is None:
        return
    named = speed_of(float(speed)) if speed and _NUMBER.fullmatch(speed) else speed
    width = int(lanes) if lanes else None
    if peer:
        there = guid_of(peer)
        sweep.lids[peer_lid] = there
        if there not in sweep.devices:
            other = "switch" if int(peer_port) > 2 or sweep.devices[here].kind == "hca" else "hca"
            sweep.devices[there] = Device(there, other, 0, clean(peer_name).strip()[:120])
        if (there, int(peer_port)) not in sweep.links:
            sweep.links[here, int(port)] = Link(here, int(port), there, int(peer_port), width, named)
    else:
        sweep.later.append((here, int(port), peer_lid, int(peer_port), width, named, clean(peer_name).strip()[:120]))


def _first(text: str) -> str:
    return clean(next((line for line in text.splitlines() if line.strip()), ""))[:80]
