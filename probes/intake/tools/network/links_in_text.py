"""Any text of one node in which speeds or links of its network interfaces stand, and ibdev2netdev's (Up) and (Down)."""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Links, NetLink
from probes.core import clean
from probes.intake.first_words import parts_by_first_word
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse
from probes.intake.tools.network import ethtool, ip_link
from probes.intake.tools.network._port_words import QUICK, ports_told
from probes.intake.tools.network.ip_link import quiet

_OWN = (ethtool, ip_link)
_PAIR = re.compile(r"^(\S{2,60}) port (\d{1,3}) ==> ([\w.@-]{1,40}) \((Up|Down)\)", re.M)
SHARE = 0.6


def fits(head: str, name: str) -> bool:
    if _PAIR.search(head):
        return True
    if head.lstrip()[:1] in "{[<" or any(own.fits(head, name) for own in _OWN):
        return False
    if not mentions(head[:8_192], QUICK):
        return False
    ports, share = ports_told(head[:8_192])
    if parts_by_first_word(head[:8_192]):
        return False  # of several nodes: each is read by itself
    return share >= SHARE and any(one.kind == "netdev" for one in ports)


def read(text: str) -> Links:
    links = [NetLink(clean(dev), up=state == "Up", hca=clean(hca)) for hca, _, dev, state in _PAIR.findall(text)[:4096]]
    for one in ports_told(text[:4_194_304])[0] if not links else ():
        if one.kind == "netdev":
            up, rate = one.values.get("up"), one.values.get("rate_gbps")
            links.append(
                NetLink(
                    clean(one.name), up=up if isinstance(up, bool) else None,
                    speed_gbps=rate if isinstance(rate, float) else None,
                )
            )  # fmt: skip
    if not links:
        raise refuse("speeds or links of interfaces", text)
    return Links(tuple(links))


TOOL = Tool("links in text", "net.links", fits, read, quiet, host_in)
