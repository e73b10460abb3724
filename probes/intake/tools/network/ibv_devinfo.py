"""ibv_devinfo(1) of rdma-core, also with -v: `hca_id: mlx5_0`, its ports, active and largest MTU, GIDs."""

from __future__ import annotations

import re

from probes.catalog.network.ib_facts import IbPorts
from probes.catalog.network.ibv_devinfo import HCA, MTU, ports
from probes.catalog.network.port_words import node_facts
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

_PORT = re.compile(r"^\s{0,32}port:\s{1,16}\d{1,3}\s*$", re.M)


def fits(head: str, name: str) -> bool:
    mtus = len(MTU.findall(head))
    lines = sum(bool(line.strip()) for line in lines_of(head, 400))
    return bool(mtus or _PORT.search(head)) if HCA.search(head) else 3 * mtus >= max(lines, 1)


def read(text: str) -> IbPorts:
    found = ports(text)
    if not found:
        raise refuse("adapters with ports as ibv_devinfo prints them", text)
    return node_facts(found)


TOOL = Tool("ibv_devinfo", "ib.ports", fits, read, host=host_in)
