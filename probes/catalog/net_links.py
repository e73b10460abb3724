"""Which network interfaces does this node have, are they up, and with what MTU, speed, addresses and flow control?

Source   /sys/class/net/*: carrier, mtu, speed, type, master, device/infiniband (kernel ABI, sysfs-class-net);
         /proc/net/if_inet6; netdevice(7) SIOCGIFADDR for the first IPv4 address of each; ethtool's ioctls for pause
         frames (linux/ethtool.h: ETHTOOL_GPAUSEPARAM); of RoCE interfaces /sys/class/net/*/ecn (mlx5) and, where it is
         installed, dcb(8) (pfc, apptrust, app, buffer, dcbx, ets) or mlnx_qos(1), which never ran on an adapter
         here. No tool is needed and no right
Units    bytes, Gb/s
Shape    Links, as `ip` and `ethtool` give them; None where the kernel does not say
Errors   ParseError when a line is not what the collector writes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from probes.catalog._collected import as_rows, whole_or_none, word
from probes.catalog.network.net_facts import Links, NetLink
from probes.catalog.network.net_qos import flow_control
from probes.core import Finding, ParseError, Probe, sections
from probes.runner import Absent, isolate, read, sh, which

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

    def notification(here: str) -> bool | None:
        """Whether both ends of congestion notification are on for every priority; None where the driver shows none."""
        found = []
        for end in ("roce_np", "roce_rp"):
            folder = f"{here}/ecn/{end}/enable"
            found += [text(f"{folder}/{one}") for one in sorted(os.listdir(folder))] if os.path.isdir(folder) else []
        return all(one == "1" for one in found) if found else None

    def asking(commands: list[list[str]]) -> Callable[[], str]:
        """One line for each command that answered, at once: a later one may hang."""

        def ask() -> str:
            for argv in commands:
                status, out, _ = sh(argv)
                if status == 0:
                    os.write(1, (json.dumps([" ".join(argv), out.replace("\n==> ", "\n= => ")]) + "\n").encode())
            return ""

        return ask

    roce: list[str] = []
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
            row["ecn"] = notification(here) if row["hca"] else None
            if row["hca"] and row["type"] == 1:
                roce.append(name)
            rows.append(json.dumps(row))
    parts = {"links": "\n".join(rows)}
    shows = [["dcb", what, "show", "dev"] for what in ("pfc", "apptrust", "app", "buffer", "dcbx", "ets")]
    for tools in (shows, [["mlnx_qos", "-i"]]):
        if roce and which(tools[0][0]):
            told = isolate([(name, asking([tool + [name] for tool in tools])) for name in roce[:32]], 1.5)
            answers = [json.loads(line) for one in told for line in one["text"].split("\n") if line.endswith("]")]
            parts.update(answers)
            if any(title.startswith("dcb pfc ") for title, _ in answers):
                break  # iproute2 brings a dcb also where the driver leaves all this to mlnx_qos
    return parts


def parse(text: str) -> Links:
    """One JSON object per interface."""
    parts = sections(text)
    if "links" not in parts:
        raise ParseError(f"expected the section links, found {', '.join(parts)[:80]}")
    found = {link.name: link for link in (_link(row) for row in as_rows(parts["links"], "interface")[:MOST])}
    for title, body in parts.items():
        if title.startswith(("dcb ", "mlnx_qos -i ")):
            name = title.rpartition(" ")[2]
            told = flow_control(f"{title}\n{body}")
            settings = told.get(name) or told.get("") or _empty(title, body, found.get(name))
            if settings and name in found:
                known = {"trust"} if found[name].trust else set()  # by `dcb apptrust`: `dcb app` says less
                kept = {key: value for key, value in settings.items() if key not in known}
                found[name] = replace(found[name], **kept)  # type: ignore[arg-type]
    return Links(tuple(found.values()))


def _empty(title: str, body: str, link: NetLink | None) -> dict[str, object]:
    """mlx5 trusts DSCP as long as it has an entry for it, else PCP: mlx5e_dcbnl_ieee_delapp in en_dcbnl.c of Linux."""
    mlx5 = link is not None and link.hca.startswith("mlx5")
    return {"trust": "pcp"} if mlx5 and title.startswith("dcb app ") and not body.strip() else {}


def _link(row: dict[str, Any]) -> NetLink:
    name = word(row, "name", "interface", 40)
    what = f"interface {name}"
    up, pause, addresses, ecn = row.get("up"), row.get("pause"), row.get("addresses"), row.get("ecn")
    known = up in (True, False) and pause in (True, False, None) and ecn in (True, False, None)
    if not known or not isinstance(addresses, list):
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
        ecn=ecn,
    )


def findings(links: Links) -> Iterator[Finding]:
    """None: only a comparison between nodes, or with what NCCL uses, tells what is wrong."""
    yield from ()


PROBE = Probe(
    "net.links",
    "Which network interfaces are up, with what MTU, speed, addresses and flow control?",
    parse,
    findings,
    collect=_collect,
    by_hand="ip -d addr; ethtool DEVICE; ethtool -a DEVICE; dcb pfc show dev DEVICE; "
    "dcb app show dev DEVICE; dcb buffer show dev DEVICE; dcb dcbx show dev DEVICE; dcb ets show dev DEVICE",
    timeout_s=4.0,
    cost="5 ms",
)
