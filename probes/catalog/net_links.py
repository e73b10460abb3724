"""Which network interfaces does this node have, are they up, and with what MTU, speed, addresses and pause frames?

Source   /sys/class/net/*: carrier, mtu, speed, type, master, device/infiniband (kernel ABI, sysfs-class-net);
         /proc/net/if_inet6; netdevice(7) SIOCGIFADDR for the first IPv4 address of each; ethtool's ioctls for pause
         frames (linux/ethtool.h: ETHTOOL_GPAUSEPARAM). No tool is needed and no right
Units    bytes, Gb/s
Shape    Links, as `ip` and `ethtool` give them; None where the kernel does not say
Errors   ParseError when a line is not what the collector writes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from probes.catalog._collected import as_rows, whole_or_none, word
from probes.catalog._net_facts import Links, NetLink
from probes.core import Finding, ParseError, Probe, sections
from probes.runner import Absent, read

__all__ = ["PROBE", "Links", "findings", "parse"]

MOST = 512
KINDS = {1: "ether", 32: "infiniband", 772: "loopback"}  # if_arp.h


def _collect() -> Mapping[str, str]:
    import fcntl
    import json
    import os
    import socket
    import struct

    root = "/sys/class/net"

    def text(path: str) -> str:
        """ "" also for what the kernel refuses while an interface is switched off."""
        try:
            return read(path, 65536).strip()
        except OSError:
            return ""

    def number(path: str) -> int | None:
        told = text(path)
        return int(told) if told.lstrip("-").isdigit() else None

    def pause(name: str, sock: socket.socket) -> bool | None:
        import array

        told = array.array("B", struct.pack("IIII", 0x12, 0, 0, 0))  # ETHTOOL_GPAUSEPARAM
        try:
            fcntl.ioctl(sock, 0x8946, struct.pack("16sP", name.encode()[:15], told.buffer_info()[0]))
        except OSError:
            return None
        _, _, receives, sends = struct.unpack("IIII", told.tobytes())
        return bool(receives or sends)

    def address(name: str, sock: socket.socket) -> list[str]:
        try:
            answer = fcntl.ioctl(sock, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return []
        return [socket.inet_ntoa(answer[20:24])]

    try:
        names = sorted(os.listdir(root))[:512]
    except OSError:
        raise Absent("there is no /sys/class/net here") from None
    others: dict[str, list[str]] = {}
    for line in text("/proc/net/if_inet6").split("\n"):
        words = line.split()
        if len(words) == 6:
            others.setdefault(words[5], []).append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0])))
    rows = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name in names:
            here = f"{root}/{name}"
            if not os.path.isdir(here):
                continue
            carrier = text(here + "/carrier")
            speed = number(here + "/speed")
            row: dict[str, Any] = {"name": name, "mtu": number(here + "/mtu"), "type": number(here + "/type")}
            row["up"] = carrier == "1" if carrier else False
            row["mbps"] = speed if speed and speed > 0 else None
            row["addresses"] = (address(name, sock) + others.get(name, []))[:16]
            row["master"] = (
                os.path.basename(os.path.realpath(here + "/master")) if os.path.exists(here + "/master") else ""
            )
            hcas = sorted(os.listdir(here + "/device/infiniband")) if os.path.isdir(here + "/device/infiniband") else []
            row["hca"] = hcas[0] if hcas else ""
            row["pause"] = pause(name, sock) if row["type"] == 1 else None
            rows.append(json.dumps(row))
    return {"links": "\n".join(rows)}


def parse(text: str) -> Links:
    """One JSON object per interface."""
    parts = sections(text)
    if "links" not in parts:
        raise ParseError(f"expected the section links, found {', '.join(parts)[:80]}")
    return Links(tuple(_link(row) for row in as_rows(parts["links"], "interface")[:MOST]))


def _link(row: dict[str, Any]) -> NetLink:
    name = word(row, "name", "interface", 40)
    what = f"interface {name}"
    up, pause, addresses = row.get("up"), row.get("pause"), row.get("addresses")
    if up not in (True, False) or pause not in (True, False, None) or not isinstance(addresses, list):
        raise ParseError(f"{what}: expected up, pause and addresses, found {str(row)[:80]!r}")
    kind, mbps = whole_or_none(row, "type", what), whole_or_none(row, "mbps", what)
    return NetLink(
        name,
        up=up,
        mtu=whole_or_none(row, "mtu", what),
        speed_gbps=None if mbps is None else mbps / 1000,
        addresses=tuple(word({"a": one}, "a", what, 45) for one in addresses[:16]),
        kind=KINDS.get(kind or 0, ""),
        master=word(row, "master", what, 40),
        hca=word(row, "hca", what, 40),
        pause=pause,
    )


def findings(links: Links) -> Iterator[Finding]:
    """None: only a comparison between nodes, or with what NCCL uses, tells what is wrong."""
    yield from ()


PROBE = Probe(
    "net.links",
    "Which network interfaces are up, with what MTU, speed, addresses and pause frames?",
    parse,
    findings,
    collect=_collect,
    by_hand="ip -d addr; ethtool DEVICE; ethtool -a DEVICE",
    timeout_s=4.0,
)
