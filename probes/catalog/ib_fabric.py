"""What does the InfiniBand fabric look like from this node: which switches and adapters, cabled how, at what speed?

Source   ibnetdiscover(8) of infiniband-diags, which walks the whole fabric by management datagrams; form as printed by
         out_switch, out_ca and their ports in its source, with tabs or blanks. iblinkinfo(8), where it may run too and
         there is time: ports without a working link, which the first leaves out, and LIDs
Units    lanes and names of speeds as printed; Gb/s by reference/ib_speeds.toml
Shape    Fabric: devices by node GUID, each cable once
Errors   ParseError on a line that the tool cannot print. Absent without the tool or without InfiniBand; Denied without
         the right to send management datagrams. One sweep of 512 nodes with 4096 adapters took 3.8 s, and 5.0 s
         with iblinkinfo: on a simulator (ibsim); on switches neither ever ran
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from probes.catalog.network import ib_fabric_collect
from probes.catalog.network.ib_fabric_facts import AGGREGATION, Device, Fabric, Link, guid_of, hca_first
from probes.catalog.network.ib_linkinfo import swept
from probes.core import Finding, ParseError, Probe, clean, sections
from probes.runner import isolate

__all__ = ["PROBE", "Device", "Fabric", "Link", "findings", "guid_of", "parse"]

SECTION, STATES = "ibnetdiscover", "iblinkinfo"
MOST_TOLD = 20  # ports
MOST = 200_000  # lines; 4096 adapters in 160 switches are 34,000
KINDS = {"Switch": "switch", "Ca": "hca", "Rt": "router"}
_GUID = r'"[SHR]-([0-9a-fA-F]{16})"'
_DEVICE = re.compile(rf'(Switch|Ca|Rt)\s+(\d{{1,4}})\s+{_GUID}\s*#\s*"(.*)"([^"]*)')
_PORT = re.compile(
    rf"\[(\d{{1,4}})\](?:\[ext \d{{1,4}}\])?(?:\([0-9a-f]{{1,16}}\))?\s+"
    rf"{_GUID}\[(\d{{1,4}})\](?:\[ext \d{{1,4}}\])?(?: ?\([0-9a-f]{{1,16}}\))?\s*#\s*(.*)"
)
_SPEED = re.compile(r"\blid \d+ (\d{1,2}x|\?\?\?)\s?(\w{2,8}|\?\?\?)(?: [swve]=\S+)*\s*$")
_FROM = re.compile(r"# Initiated from node ([0-9a-f]{16}) port ")
# Lines before a device that say the same again, or what nothing here needs; Chassis and what follows it with -g.
_ASIDE = re.compile(r"(?:vendid|devid|sysimgguid|switchguid|caguid|rtguid)=0x[0-9a-f]{1,16}\S*|Chassis .*|#.*")


def _collect() -> Mapping[str, str]:
    import time

    began = time.monotonic()
    found = {"ibnetdiscover": ib_fabric_collect.ask("ibnetdiscover", [], (0,), 8388608)}
    left = 18.0 - (time.monotonic() - began)
    call = lambda: ib_fabric_collect.ask("iblinkinfo", [], (0,), 8388608)  # noqa: E731  (a child runs it)
    told = isolate([("iblinkinfo", call)], left, 8388608)[0] if left > 1 else {"outcome": "skipped", "why": "no time"}
    if told["outcome"] == "ok":
        found["iblinkinfo"] = told["text"]
    else:
        found["golden15/without iblinkinfo"] = f"{told['outcome']}: {told['why']}"
    return found


def parse(text: str) -> Fabric:
    """The output of ibnetdiscover, alone or below its `==> ibnetdiscover <==`; there also that of iblinkinfo."""
    if not text.lstrip().startswith("==> "):
        return _discovered(text)
    parts = sections(text)
    if SECTION not in parts:
        raise ParseError(f"expected a block '==> {SECTION} <==', found {clean(next(iter(parts)))[:60]!r}")
    fabric = _discovered(parts[SECTION])
    return _with_states(fabric, swept(parts[STATES])) if parts.get(STATES) else fabric


def _with_states(fabric: Fabric, states: Fabric) -> Fabric:
    """Also the ports without a link, and LIDs. iblinkinfo names an adapter by its port: the cable tells which it is."""
    node_of = {(link.b, link.b_port): link.a for link in fabric.links}
    guid_by_port = {link.a: node_of.get((link.b, link.b_port), link.a) for link in states.links}
    down = tuple(replace(one, guid=guid_by_port.get(one.guid, one.guid)) for one in states.down)
    lids = {lid: guid_by_port.get(guid, guid) for lid, guid in states.lids.items()}
    return replace(fabric, down=down, lids=lids)


def _discovered(text: str) -> Fabric:
    lines = text.splitlines()
    if len(lines) > MOST:
        raise ParseError(f"expected at most {MOST} lines of one fabric, found {len(lines)}")
    begun = _FROM.search(text)
    devices: dict[str, Device] = {}
    links: dict[tuple[str, int], Link] = {}
    here = ""
    for number, line in enumerate(map(str.strip, lines), 1):
        if found := _DEVICE.fullmatch(line):
            here = guid_of(found[3])
            devices[here] = _device(found, here)
        elif (found := _PORT.fullmatch(line)) and here:
            _keep(links, _link(found, here, number))
        elif line and not _ASIDE.fullmatch(line):
            raise ParseError(f"line {number}: expected a switch, an adapter or a port, found {clean(line)[:80]!r}")
    if not devices:
        raise ParseError("expected at least one line such as 'Ca 1 \"H-...\"' or 'Switch 65 \"S-...\"', found none")
    hcas_first = (hca_first(link, devices) for link in links.values())
    return Fabric(guid_of(begun[1]) if begun else "", tuple(devices.values()), tuple(hcas_first))


def _device(found: re.Match[str], guid: str) -> Device:
    name = clean(found[4]).strip()[:120]
    aggregates = found[1] == "Ca" and name.lower().endswith(AGGREGATION)
    return Device(guid, "aggregation" if aggregates else KINDS[found[1]], int(found[2]), name)


def _link(found: re.Match[str], here: str, number: int) -> Link:
    speed = _SPEED.search(found[4].rpartition('"')[2])
    if speed is None:
        raise ParseError(f"line {number}: expected a speed such as 'lid 4 4xHDR', found {clean(found[4])[-60:]!r}")
    lanes = None if speed[1] == "???" else int(speed[1][:-1])
    return Link(here, int(found[1]), guid_of(found[2]), int(found[3]), lanes, None if speed[2] == "???" else speed[2])


def _keep(links: dict[tuple[str, int], Link], link: Link) -> None:
    """Both ends tell of a cable: the first to do so is kept."""
    if (link.b, link.b_port) not in links:
        links[link.a, link.a_port] = link


def findings(fabric: Fabric) -> Iterator[Finding]:
    """What is wrong in itself. Whether something is missing only an expected topology can tell."""
    if not fabric.links:
        who = fabric.devices[0]
        yield Finding(
            "ib.fabric_alone", "bad", f"{who.name or who.guid} sees nothing else: its own cable or port is down"
        )
    names = {device.guid: device.name or device.guid for device in fabric.devices}
    for link in fabric.links:
        if link.lanes == 1:
            ends = " and ".join(
                f"{names.get(guid, guid)} port {port}" for guid, port in ((link.a, link.a_port), (link.b, link.b_port))
            )
            yield Finding("ib.link_narrow", "bad", f"{ends}: the cable between them runs on one lane")
    waiting = [f"{names.get(one.guid, one.guid)} port {one.port}" for one in fabric.down if one.phys == "LinkUp"]
    if waiting:
        more = f" and {len(waiting) - MOST_TOLD} more" if len(waiting) > MOST_TOLD else ""
        says = f"{', '.join(waiting[:MOST_TOLD])}{more}: a cable is there, and no subnet manager made the port active"
        yield Finding("ib.fabric_not_active", "warn", says)
    off = [f"{names.get(one.guid, one.guid)} port {one.port}" for one in fabric.down if one.phys == "Disabled"]
    if off:
        more = f" and {len(off) - MOST_TOLD} more" if len(off) > MOST_TOLD else ""
        says = f"switched off by somebody or by the fabric's manager: {', '.join(off[:MOST_TOLD])}{more}"
        yield Finding("ib.fabric_switched_off", "info", says)


PROBE = Probe(
    "ib.fabric",
    "What does the InfiniBand fabric look like from this node?",
    parse,
    findings,
    collect=_collect,
    by_hand="sudo ibnetdiscover; sudo iblinkinfo",
    timeout_s=21.0,
    max_bytes=16_777_216,
    touches="driver",
    needs="read and write on /dev/infiniband/umad*, or `sudo -n` for ibnetdiscover and iblinkinfo",
    cost="not measured: there was no such hardware",
    brings=(ib_fabric_collect,),
)
