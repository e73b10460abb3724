"""/proc/net/bonding/bond0: the interfaces that make one together, each with its link.

    Slave Interface: ens1f0
    MII Status: down
    Speed: 100000 Mbps

Source   Documentation/networking/bonding.rst; bond_procfs.c of Linux
Errors   ParseError where no member is told
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.net_facts import Links, NetLink
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.network.ip_link import quiet

_MEMBER = re.compile(r"(?:Slave Interface|Member Interface): ([\w.@-]{1,40})\s{0,4}$")
_STATUS = re.compile(r"MII Status: (up|down|going down|going back)\b")
_SPEED = re.compile(r"Speed: (\d{1,7}) Mbps")
_BOND = re.compile(r"bonding[/_-]([\w.-]{1,20}?)(?:\.\w{2,4})?$")


def fits(head: str, name: str) -> bool:
    return "Ethernet Channel Bonding Driver" in head or bool(_MEMBER.search(head) and _STATUS.search(head))


def read(text: str) -> Links:
    found: list[NetLink] = []
    for line in lines_of(text, 200):
        if member := _MEMBER.match(line.strip()):
            found.append(NetLink(clean(member[1])))
        elif found and (status := _STATUS.match(line.strip())):
            found[-1] = replace(found[-1], up=status[1] in ("up", "going down"))
        elif found and (speed := _SPEED.match(line.strip())):
            found[-1] = replace(found[-1], speed_gbps=int(speed[1]) / 1000)
    if not found:
        raise refuse("members of a bond", text)
    return Links(tuple(found[:256]))


def named(facts: Links, path: str) -> Links:
    """With the bond's name, which only the file has."""
    bond = _BOND.search(path)
    return Links(tuple(replace(one, master=bond[1]) for one in facts.links)) if bond else facts


TOOL = Tool("bonding", "net.links", fits, read, quiet, host_in, named)
