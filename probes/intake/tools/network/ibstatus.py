"""ibstatus(8): `Infiniband device 'mlx5_0' port 1 status:` and what sysfs says of it."""

from __future__ import annotations

import re

from probes.catalog.network.ib_facts import IbPorts
from probes.catalog.network.port_words import node_facts, port
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse, whole

_DEVICE = re.compile(r"^Infiniband device '([^'\n]{1,64})' port (\d{1,3}) status:", re.M)
_LINE = re.compile(r"^\s{0,16}([a-z_ ]{3,20}):[ \t]{0,16}(\S[^\n]{0,100})$", re.M)
_RATE = re.compile(r"([\d.]{1,8}) Gb/sec(?: \((\d{1,2})X ?(\w{0,8})\))?")


def fits(head: str, name: str) -> bool:
    return bool(_DEVICE.search(head))


def read(text: str) -> IbPorts:
    found = list(_DEVICE.finditer(text))
    if not found:
        raise refuse("lines such as \"Infiniband device 'mlx5_0' port 1 status:\"", text)
    ports = []
    for one, after in zip(found, [*found[1:], None], strict=True):
        body = text[one.end() : after.start() if after else one.end() + 2000][:2000]
        told = {key.strip(): value.strip() for key, value in _LINE.findall(body)}
        rate = _RATE.match(told.get("rate", ""))
        ports.append(
            port(
                one[1],
                int(one[2]),
                state=told.get("state", "").partition(": ")[2] or None,
                phys_state=told.get("phys state", "").partition(": ")[2] or None,
                rate_gbps=number(rate[1]) if rate else None,
                width=int(rate[2]) if rate and rate[2] else None,
                speed=(rate[3] or None) if rate else None,
                lid=whole(told.get("base lid", "")),
                sm_lid=whole(told.get("sm lid", "")),
                link_layer=told.get("link_layer"),
                gids=(f"0 ? {told['default gid']}",) if "default gid" in told else (),
            )
        )
    return node_facts(ports)


TOOL = Tool("ibstatus", "ib.ports", fits, read, host=host_in)
