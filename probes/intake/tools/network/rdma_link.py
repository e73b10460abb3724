"""`rdma link` of iproute2, plain or -j, and ibdev2netdev: state of each port and its network interface."""

from __future__ import annotations

import json
import re

from probes.catalog.network.ib_facts import IbPorts, Port
from probes.catalog.network.port_words import node_facts, port
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse, whole

_LINK = re.compile(
    r"^(?:link|\d{1,4}/\d{1,3}:) ([\w.-]{1,60})/(\d{1,3}):? (?=[^\n]{0,200}\bstate )([^\n]{1,300})", re.M
)
_NETDEV = re.compile(r"^([\w.-]{1,60}) port (\d{1,3}) ==> ([\w.@-]{1,40}) \((Up|Down)\)", re.M)


def fits(head: str, name: str) -> bool:
    if head[:1] == "[":
        return '"ifname"' in head[:2000] and '"physical_state"' in head[:4000]
    return bool(_LINK.search(head) or _NETDEV.search(head))


def read(text: str) -> IbPorts:
    """ibdev2netdev's "(Down)" is about the interface, which InfiniBand needs none of: it makes no port down."""
    if text.lstrip()[:1] == "[":
        return node_facts(_of_json(text))
    ports: list[Port] = []
    for hca, number, rest in _LINK.findall(text):
        words = rest.split()
        told = dict(zip(words[::2], words[1::2], strict=False))
        ports.append(_port(hca, int(number), {key: str(value) for key, value in told.items()}))
    for hca, number, netdev, up in _NETDEV.findall(text):
        ports.append(port(hca, int(number), netdev=netdev, netdevs={clean(netdev): up.lower()}))
    if not ports:
        raise refuse("lines such as 'link mlx5_0/1 state ACTIVE physical_state LINK_UP'", text)
    return node_facts(ports)


def _of_json(text: str) -> list[Port]:
    try:
        rows = json.loads(text)
        return [_port(row["ifname"], int(row["port"]), {k: str(v) for k, v in row.items()}) for row in rows[:512]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise refuse(f"what rdma -j link prints ({type(error).__name__})", text) from None


def _port(hca: str, number: int, told: dict[str, str]) -> Port:
    netdev = told.get("netdev")
    ethernet = netdev is not None and "sm_lid" not in told and not netdev.startswith("ib")
    return port(
        hca,
        number,
        state=told.get("state"),
        phys_state=told.get("physical_state"),
        netdev=netdev,
        netdevs={clean(netdev): "up" if told.get("state") == "ACTIVE" else "down"} if netdev else {},
        lid=whole(told.get("lid", "")),
        sm_lid=whole(told.get("sm_lid", "")),
        link_layer="Ethernet" if ethernet else "InfiniBand" if "sm_lid" in told else None,
    )


TOOL = Tool("rdma link", "ib.ports", fits, read, host=host_in)
