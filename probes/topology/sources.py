"""What the two sources say of one port: its own node (ib.ports), and the fabric as one node sees it (ib.fabric)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from probes.catalog.network.ib_fabric_facts import Device, Fabric, Link, guid_of
from probes.catalog.network.ib_facts import IbPorts, Port, Silent
from probes.core import clean
from probes.topology.expected import ExpectedPort, switch_name


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node said when it was asked for its ports. `facts` only when `outcome` is ok; `at`: seconds, any clock
    that the fabric's reading has too."""

    outcome: str
    facts: IbPorts | None = None
    why: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """The other end of an adapter's cable."""

    name: str
    guid: str
    port: int
    link: Link


class Cables:
    """A fabric by adapter: what is at the other end of each port. Keys are node GUIDs, never names."""

    def __init__(self, fabric: Fabric | None, at: float = 0.0) -> None:
        self.at = at
        self.asked = fabric is not None
        self.guids = {device.guid for device in fabric.devices} if fabric else set()
        self._ends: dict[tuple[str, int], End] = {}
        names = {device.guid: device.name for device in fabric.devices} if fabric else {}
        for link in fabric.links if fabric else ():
            for mine, my_port, other, port in (
                (link.a, link.a_port, link.b, link.b_port),
                (link.b, link.b_port, link.a, link.a_port),
            ):
                self._ends[mine, my_port] = End(switch_name(names.get(other, ""), other), other, port, link)

    def end(self, guid: str, port: int) -> End | None:
        """The other end of this adapter's port; None when there is none, or the GUID is not known."""
        return self._ends.get((guid, port)) if guid else None

    def covers(self, port: ExpectedPort) -> bool:
        """Whether the sweep saw the switch that the port belongs into: only then can it miss the port there."""
        return self.asked and (not port.leaf_guid or port.leaf_guid in self.guids)


def is_up(port: Port) -> bool:
    return port.state in ("ACTIVE", "ACTIVE_DEFER")


def rails_of(facts: IbPorts) -> list[tuple[int, Port]]:
    """(rail, port) of the adapters that make the rails: the largest group of one kind on this node.

    Storage and management adapters are of another kind, or fewer. Rails count adapters in their natural order, from 0.
    Ethernet ports that nobody has configured make none.
    """
    groups: dict[tuple[str | None, str | None, str | None], list[Port]] = {}
    for port in facts.ports:
        if port.link_layer != "Ethernet" or is_up(port) or "up" in port.netdevs.values():
            groups.setdefault((port.link_layer, port.hca_type, port.board_id), []).append(port)
    if not groups:
        return []

    def weight(ports: list[Port]) -> tuple[int, bool, float]:
        hcas = len({port.hca for port in ports})
        return hcas, ports[0].link_layer != "Ethernet", max(port.rate_gbps or 0.0 for port in ports)

    ports = max(groups.values(), key=weight)
    order = list(dict.fromkeys(port.hca for port in ports))
    return [(order.index(port.hca), port) for port in ports]


def usual_rate(ports: list[Port]) -> float | None:
    """The rate of most of the ports that are up; that of a port which is down means nothing."""
    rates = Counter(port.rate_gbps for port in ports if is_up(port) and port.rate_gbps is not None)
    return max(rates, key=lambda rate: (rates[rate], rate)) if rates else None


def is_spare(port: Port, others: list[Port]) -> bool:
    """A port that is not up, of an adapter whose other port is: a second, empty cage is common."""
    return not is_up(port) and any(is_up(other) for other in others if other.hca == port.hca and other is not port)


def as_expected_port(node: str, rail: int, port: Port, rate: float | None, cables: Cables) -> ExpectedPort:
    """A port as it was seen, as one that must be there."""
    guid = guid_of(port.node_guid)
    end = cables.end(guid, port.port) if port.link_layer != "Ethernet" else None
    return ExpectedPort(
        node=node,
        hca=clean(port.hca)[:60],
        port=port.port,
        rail=rail,
        guid=guid,
        rate_gbps=port.rate_gbps if is_up(port) else rate,
        leaf=end.name if end else "",
        leaf_guid=end.guid if end else "",
        leaf_port=end.port if end else None,
    )


_OF_PORT = (
    "hca", "port", "link_layer", "state", "phys_state", "rate_gbps", "width", "speed", "lid", "node_guid", "fw_ver",
    "hca_type", "board_id", "pci", "netdevs", "counters",
)  # fmt: skip


def ports_of(facts: Any) -> IbPorts | None:
    """Stored facts of ib.ports as far as they matter here; None when another version stored them.

    By hand, because a page reads those of every node: the general way takes a second for 512 nodes.
    """
    try:
        ports = tuple(Port(**{name: row[name] for name in _OF_PORT}) for row in facts["ports"])
        return IbPorts(facts["boot_id"], ports, tuple(Silent(**row) for row in facts["silent"]))
    except (KeyError, TypeError):
        return None


def fabric_of(facts: Any) -> Fabric | None:
    """Stored facts of ib.fabric, typed again; None when another version stored them."""
    try:
        devices = tuple(Device(**row) for row in facts["devices"])
        return Fabric(facts["from_guid"], devices, tuple(Link(**row) for row in facts["links"]))
    except (KeyError, TypeError):
        return None
