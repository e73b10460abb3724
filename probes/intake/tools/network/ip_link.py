"""`ip link`, `ip addr`, also -d, -j and -br, and ifconfig: interfaces with state, MTU and addresses.

Bare lines `Speed: 1000Mb/s` below a list are of its interfaces with addresses, where as many were asked for, in order.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from probes.catalog.network.net_facts import OVERHEAD, Links, NetLink
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

_LINK = re.compile(r"^\d{1,5}: ([\w.@:-]{1,60}): <([A-Z_,0-9-]{0,200})> mtu (\d{1,6})([^\n]{0,300})$")
_ADDRESS = re.compile(r"^\s{1,12}inet6? ([0-9a-fA-F:.]{2,45})(?:/\d{1,3})?")
_KIND = re.compile(r"^\s{1,12}link/(\w{2,20})")
_IFCONFIG = re.compile(r"^([\w.@-]{1,40}): flags=\d{1,6}<([A-Z_,0-9]{0,200})>\s{1,4}mtu (\d{1,6})")
_BRIEF = re.compile(
    r"^([\w.@:-]{1,60})\s{1,40}(UP|DOWN|UNKNOWN|LOWERLAYERDOWN|DORMANT|NOTPRESENT|TESTING)"
    r"(?:\s{1,40}([0-9a-fA-F:./ ]{2,400}?))?(?:\s{1,8}<([A-Z_,0-9-]{0,200})>)?\s{0,8}$"
)
_RECEIVED = re.compile(r"^\s{1,12}RX: {1,8}bytes\s")  # of `ip -s`
_SPEED = re.compile(r"^\s{0,12}(?:Speed: )?(\d{2,7})\s?Mb/s\s{0,4}$")


_TUNNEL = re.compile(r"^\s{1,12}(vxlan|geneve|ipip|sit|gretap|gre|ip6gre|wireguard)\b(.{0,200})$")
# How programs that set up networks of containers call their tunnels.
_NAMED = (("flannel.", "vxlan"), ("vxlan", "vxlan"), ("cilium_vxlan", "vxlan"), ("cilium_geneve", "geneve"),
    ("genev_sys", "geneve"), ("tunl", "ipip"), ("wg", "wireguard"), ("flannel-wg", "wireguard"),
    ("cilium_wg", "wireguard"), ("kube-wg", "wireguard"), ("wireguard", "wireguard"), ("antrea-gw", ""))  # fmt: skip


_ROWS = re.compile(r"^Iface\s{1,20}MTU\s", re.M)  # netstat -i
_ROW = re.compile(r"^([A-Za-z][\w.@:-]{0,40})\s{1,20}(\d{2,6})(?:\s{1,20}\d{1,20}){4,9}\s{1,12}([A-Z]{1,10})\s{0,4}$")
_FILE = re.compile(r"class[_/]net[_/]([\w.-]{1,40}?)[_/]mtu(?=$|[_.,\s])")  # a file of sysfs, or `cat` of one
_BARE = re.compile(r"\s{0,4}(\d{2,6})\s{0,4}")


def fits(head: str, name: str) -> bool:
    if _BARE.fullmatch(head):
        return bool(_FILE.search(name) or re.search(r"(?:^|[._ -])mtu(?=$|[._ -])", name, re.I))
    if _ROWS.search(head):
        return True
    if head[:1] == "[":
        return '"ifname"' in head[:4000] and '"mtu"' in head[:8000]
    lines = list(lines_of(head[:16384], 600))
    if any(_LINK.match(line) or _IFCONFIG.match(line) for line in lines):
        return True
    return sum(bool(_BRIEF.match(line)) for line in lines) > 1


def read(text: str) -> Links:
    if text.lstrip()[:1] == "[":
        return _of_json(text)
    if bare := _BARE.fullmatch(text):
        return Links((NetLink("", mtu=int(bare[1])),))
    found: list[dict[str, Any]] = []
    speeds: list[float] = []
    counts = ""  # below the heads of counters: those of what came in
    for line in lines_of(text, 600):
        received, counts = counts, line if _RECEIVED.match(line) else ""
        if received and found and (values := line.split()):
            found[-1]["carried"] = values[0].isdecimal() and int(values[0]) > 0
        elif (head := _LINK.match(line)) or (head := _IFCONFIG.match(line)):
            rest = head[4] if head.re is _LINK else ""
            flags = head[2].split(",")
            up = (("LOWER_UP" if head.re is _LINK else "RUNNING") in flags) if head[2] else None
            name = head[1].partition("@")[0]
            master = rest.partition(" master ")[2].partition(" ")[0]
            found.append({"name": name, "up": up, "mtu": int(head[3]), "addresses": [], "kind": "", "master": master})
            found[-1] |= {"tunnel": tunnel_of(name), "in_container": "@if" in head[1]}
            found[-1]["off"] = head.re is _LINK and "UP" not in flags
        elif row := _ROW.match(line):
            up = "R" in row[3]
            found.append({"name": row[1], "up": up, "mtu": int(row[2]), "addresses": [], "kind": "", "master": ""})
        elif brief := _BRIEF.match(line):
            found.append(_of_brief(brief))
        elif speed := _SPEED.match(line):
            speeds.append(int(speed[1]) / 1000)
        elif found and (address := _ADDRESS.match(line)):
            found[-1]["addresses"].append(address[1])
        elif found and (tunnel := _TUNNEL.match(line)):
            over = re.search(r" dev ([\w.-]{1,40})", tunnel[2])
            found[-1] |= {"tunnel": tunnel[1], "over": over[1] if over else ""}
        elif found and (kind := _KIND.match(line)):
            found[-1]["kind"] = kind[1]
    if not found:
        raise refuse("interfaces as `ip link` prints them", text)
    asked = [one for one in found if one["addresses"] and one["name"] != "lo"]
    if len(asked) == len(speeds) > 1:
        for one, gbps in zip(asked, speeds, strict=True):
            one["speed_gbps"] = gbps
    return Links(tuple(NetLink(**one | {"addresses": tuple(one["addresses"])}) for one in found[:2000]))


def tunnel_of(name: str) -> str:
    return next((kind for begin, kind in _NAMED if name.startswith(begin)), "")


def _of_brief(brief: re.Match[str]) -> dict[str, Any]:
    """A row of `ip -br`; UNKNOWN is the state of what has no carrier to tell of, such as lo and tunnels."""
    addresses = [one.partition("/")[0] for one in (brief[3] or "").split() if "/" in one]
    up = None if brief[2] == "UNKNOWN" else brief[2] == "UP"
    name = brief[1].partition("@")[0]
    told = {"tunnel": tunnel_of(name), "in_container": "@if" in brief[1]}
    return {"name": name, "up": up, "addresses": addresses[:64], "kind": "", "master": "", **told}


def _of_json(text: str) -> Links:
    try:
        rows = json.loads(text)
        links = []
        for row in rows[:2000]:
            if not row:
                continue
            given = row.get("addr_info") or ()
            about = row.get("linkinfo") or {}
            kind = str(about.get("info_kind", "")) if isinstance(about, dict) else ""
            data = about.get("info_data") if isinstance(about, dict) else None
            name = clean(str(row["ifname"]))[:60]
            links.append(
                NetLink(
                    name,
                    "LOWER_UP" in row.get("flags", ()),
                    int(row["mtu"]),
                    addresses=tuple(str(one.get("local", ""))[:45] for one in given if isinstance(one, dict)),
                    kind=str(row.get("link_type", ""))[:20],
                    master=clean(str(row.get("master", "")))[:60],
                    tunnel=kind if kind in OVERHEAD else tunnel_of(name),
                    over=clean(str(data.get("link", "")))[:60] if isinstance(data, dict) else "",
                    in_container="link_netnsid" in row and not name.startswith(("veth", "cali", "lxc")),
                )
            )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise refuse("what ip -j link prints", text) from None
    return Links(tuple(links))


def quiet(facts: Links) -> tuple[Finding, ...]:
    """Only a comparison between nodes tells what is wrong."""
    return ()


def named(facts: Links, path: str) -> Links:
    """The interface of a file of sysfs."""
    found = _FILE.search(path)
    if found is None or len(facts.links) != 1 or facts.links[0].name:
        return facts
    return Links((replace(facts.links[0], name=clean(found[1])),))


TOOL = Tool("ip link", "net.links", fits, read, quiet, host_in, named)
