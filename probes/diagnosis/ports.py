"""Every port of the fabric, put together from all that tells of it, and what its counters did between two looks.

Shape    ports_of(evidence) -> Ports: views by key, the ends of cables
Units    counters raw; seconds
Errors   none: what cannot be attached to a port of a node stands by itself
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from probes.catalog.network.ib_fabric_facts import Device, guid_of
from probes.catalog.network.ib_facts import IbPorts, Port, merged
from probes.catalog.network.net_facts import CounterSet, NetLink
from probes.diagnosis.core import Evidence, Seen
from probes.diagnosis.looks import WEEK_S, Change, Look, change, order_of, time_of

Key = tuple[str, str, int]  # node, HCA (or switch, with node ""), port
_HCA = re.compile(r"^(\S{1,100})[ /:]+((?:mlx\d|hfi\d|bnxt_re|irdma|roce|rdmap|ibp)\w{0,20}|HCA-\d{1,2})$")


@dataclass(slots=True)
class PortView:
    """One port. `switch`: the name of the switch it is of; `peer`: the other end of its cable as (name, port)."""

    node: str
    hca: str
    port: int
    switch: str = ""
    facts: Port | None = None
    ref: str = ""
    looks: list[Look] = field(default_factory=list)
    peer: tuple[str, int] | None = None
    link: NetLink | None = None  # of its network interface
    told_gbps: float | None = None  # its rate, as who brought its counters wrote
    mtu_ref: str = ""  # the reading that told its MTU, where that is another than the port's
    _changes: dict[str, Change] | None = None

    @property
    def called(self) -> str:
        if self.switch:
            return f"port {self.port} of {self.switch}"
        called = f"{self.hca}/{self.port}" if self.hca != "?" else "a port"
        return called + (f" on {self.node}" if self.node else "")

    @property
    def subject(self) -> dict[str, str | int]:
        if self.switch:
            return {"switch": self.switch, "port": self.port}
        own: dict[str, str | int] = {"hca": self.hca, "port": self.port} if self.hca != "?" else {}
        return {"node": self.node, **own} if self.node else own

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset({self.node} if self.node else ())

    @property
    def rate_gbps(self) -> float | None:
        if self.facts is not None and self.facts.rate_gbps is not None:
            return self.facts.rate_gbps
        return self.link.speed_gbps if self.link is not None and self.link.speed_gbps else self.told_gbps

    @property
    def changes(self) -> dict[str, Change]:
        """Counter -> what it did. Only counters that at least two looks have."""
        if self._changes is None:
            times = [one.at for one in self.looks if one.at is not None]
            timed = len(times) == len(self.looks) and (not times or max(times) - min(times) < WEEK_S)
            looks = sorted(self.looks, key=lambda one: (one.at or 0.0,) if timed else one.order)
            names = dict.fromkeys(name for one in looks for name in one.counters)
            found = {name: change(name, [one for one in looks if name in one.counters]) for name in names}
            self._changes = {name: what for name, what in found.items() if what is not None}
        return self._changes

    def rise(self, *names: str) -> int:
        """By how much these counters rose together; what is not known counts as 0."""
        return sum(change.delta or 0 for name in names if (change := self.changes.get(name)) is not None)

    def known(self, *names: str) -> bool:
        """Whether one of them was seen twice and could be compared."""
        return any((change := self.changes.get(name)) is not None and change.delta is not None for name in names)

    def seconds(self, name: str) -> float | None:
        change = self.changes.get(name)
        return change.seconds if change is not None else None

    def ref_of(self, *names: str) -> str:
        return next((self.changes[name].ref for name in names if name in self.changes), self.ref)


@dataclass(slots=True)
class Ports:
    """All that is known of ports. `ends`: (GUID or name, port) -> (name, port) of the other end of its cable."""

    views: dict[Key, PortView] = field(default_factory=dict)
    ends: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    links: dict[tuple[str, str], tuple[NetLink, str]] = field(default_factory=dict)
    lids: dict[str, str] = field(default_factory=dict)  # LID -> GUID
    _by_node: tuple[tuple[Key, ...], list[PortView], dict[str, list[PortView]]] = ((), [], {})

    @property
    def of_nodes(self) -> list[PortView]:
        if len(self._by_node[0]) != len(self.views):  # those that were added meanwhile
            mine = [one for one in self.views.values() if not one.switch]
            by_node: dict[str, list[PortView]] = {}
            for one in mine:
                by_node.setdefault(one.node, []).append(one)
            self._by_node = (tuple(self.views), mine, by_node)
        return self._by_node[1]

    def on(self, node: str) -> list[PortView]:
        return self._by_node[2].get(node, []) if self.of_nodes else []

    def of_device(self, node: str, device: str) -> PortView | None:
        """By its PCI address, its name, or its interface."""
        for one in self.on(node):
            facts = one.facts
            names = {
                one.hca,
                facts.pci if facts else None,
                facts.netdev if facts else None,
                *(facts.netdevs if facts else ()),
            }
            if device in names:
                return one
        return None

    def switch_of(self, devices: Iterable[tuple[str, str]]) -> str:
        """The switch into which the cables of all these (node, device) lead; "" where it is not known, or not one."""
        switches = set()
        for node, device in devices:
            view = self.of_device(node, device)
            end = view.peer if view is not None else self.ends.get((f"{node} {device}", 1))
            switches |= {end[0]} if end else set()
        return switches.pop() if len(switches) == 1 else ""

    def adapter_of(self, view: PortView) -> PortView:
        """The adapter's end of a cable between a switch and an adapter; the port itself where there is none."""
        found = _HCA.match(view.peer[0]) if view.switch and view.peer else None
        if found is None or view.peer is None:
            return view
        return self.views.get((found[1], found[2], view.peer[1])) or PortView(found[1], found[2], view.peer[1])


def ports_of(evidence: Evidence) -> Ports:
    found = Ports()
    for seen in evidence.of("ib.ports"):
        for port in seen.facts.ports:
            _facts(found, seen, port)
    for seen in evidence.of("ib.resources"):
        for name, mtu in seen.facts.mtus.items():
            hca, _, number = name.rpartition("/")
            _facts(found, seen, Port(hca, int(number), mtu=mtu))
            _view(found, seen.node, hca, int(number)).mtu_ref = seen.ref
    _fabric(found, evidence)
    for seen in evidence.of("net.links"):
        for link in seen.facts.links:
            _link(found, seen, link)
    for seen in evidence.of("ib.counters", "ib.fabric_errors"):
        for place, one in enumerate(seen.facts.sets):
            _counted(found, seen, one, place)
    for view in found.of_nodes:
        if view.peer is None:
            guid = guid_of(view.facts.node_guid) if view.facts else ""
            names = (guid, f"{view.node} {view.hca}", view.node)
            view.peer = next(
                (found.ends[name, view.port] for name in names if name and (name, view.port) in found.ends), None
            )
    return found


def _view(found: Ports, node: str, hca: str, port: int, switch: str = "") -> PortView:
    return found.views.setdefault((node, switch or hca, port), PortView(node, hca, port, switch))


def _facts(found: Ports, seen: Seen, port: Port) -> None:
    view = _view(found, seen.node, port.hca, port.port)
    if view.facts is None or port.state is not None:
        view.ref = seen.ref if view.facts is None or port.state is not None else view.ref
    if view.facts is None:
        view.facts = port
    else:
        view.facts = merged([IbPorts("", (view.facts,)), IbPorts("", (port,))]).ports[0]
    for place, sample in enumerate(port.samples):
        view.looks.append(
            Look({**sample.hw_counters, **sample.counters}, sample.at, order_of(seen.ref, place), seen.ref)
        )
    if port.counters or port.hw_counters:
        at = port.at if port.at is not None else time_of(seen.ref)
        view.looks.append(
            Look({**port.hw_counters, **port.counters}, at, order_of(seen.ref, len(port.samples)), seen.ref)
        )


def _fabric(found: Ports, evidence: Evidence) -> None:
    for seen in evidence.of("ib.fabric"):
        found.devices |= {one.guid: one for one in seen.facts.devices}
        found.lids |= seen.facts.lids
        for link in seen.facts.links:
            names = {end: found.devices[end].name if end in found.devices else end for end in (link.a, link.b)}
            for mine, my_port, other, port in (
                (link.a, link.a_port, link.b, link.b_port),
                (link.b, link.b_port, link.a, link.a_port),
            ):
                found.ends[mine, my_port] = names[other] or other, port
                if names[mine]:
                    found.ends.setdefault((names[mine], my_port), (names[other] or other, port))


def _link(found: Ports, seen: Seen, link: NetLink) -> None:
    there = found.links.get((seen.node, link.name))
    if there is not None:
        told = {key: getattr(link, key) for key in NetLink.__dataclass_fields__}
        old = {key: getattr(there[0], key) for key in NetLink.__dataclass_fields__}
        link = NetLink(
            **(old | {key: value for key, value in told.items() if value not in (None, "", ())} | {"name": link.name})
        )
        if told["pfc"] == ():
            link = NetLink(**({key: getattr(link, key) for key in NetLink.__dataclass_fields__} | {"pfc": ()}))
    found.links[seen.node, link.name] = link, there[1] if there else seen.ref
    if (view := found.of_device(seen.node, link.name)) is not None:
        view.link = link


def _counted(found: Ports, seen: Seen, one: CounterSet, place: int) -> None:
    view = _whose(found, seen, one, one.node or seen.node)
    view.ref = view.ref or seen.ref
    view.told_gbps = one.rate_gbps or view.told_gbps
    at = one.at if one.at is not None else time_of(seen.ref)
    view.looks.append(Look(one.counters, at, order_of(seen.ref, place), seen.ref))
    if one.peer and view.peer is None:
        name, _, number = one.peer.rpartition(" port ")
        view.peer = name, int(number) if number.isdecimal() else 0


def _whose(found: Ports, seen: Seen, one: CounterSet, node: str) -> PortView:
    if one.kind == "switch":
        return _view(found, "", "", one.port or 0, switch=one.name)
    if one.kind == "hca":
        known = found.of_device(node, one.name) if one.name else None
        return known or _view(found, node, one.name or _only(found, node), one.port or 1)
    if one.kind == "switchport" and node:
        return _view(found, "", "", one.port or 0, switch=node)
    if one.kind in ("netdev", "switchport"):
        name = one.name or _only(found, node)
        return found.of_device(node, name) or _view(found, node, name, 1)
    if one.kind == "lid":
        return _by_lid(found, seen, one)
    guid = guid_of(one.name)
    for view in found.of_nodes:
        if view.facts and guid and guid_of(view.facts.node_guid) == guid and view.port == one.port:
            return view
    return _by_name(
        found, seen, one.label or (found.devices[guid].name if guid in found.devices else one.name), guid, one
    )


def _by_lid(found: Ports, seen: Seen, one: CounterSet) -> PortView:
    for view in found.of_nodes:
        if (
            view.facts
            and view.facts.lid is not None
            and str(view.facts.lid) == one.name
            and view.node in (seen.node, "")
        ):
            return view
    for view in found.of_nodes:
        if view.facts and view.facts.lid is not None and str(view.facts.lid) == one.name:
            return view
    if (device := found.devices.get(found.lids.get(one.name, ""))) is not None:
        return _by_name(found, seen, device.name, device.guid, one)
    return _view(found, seen.node, f"LID {one.name}", one.port or 1)


def _by_name(found: Ports, seen: Seen, name: str, guid: str, one: CounterSet) -> PortView:
    kind = found.devices[guid].kind if guid in found.devices else ""
    adapter = _HCA.match(name)
    if adapter and kind != "switch":
        return _view(found, adapter[1], adapter[2], one.port or 1)
    return _view(found, "", "", one.port or 0, switch=name or guid)


def _only(found: Ports, node: str) -> str:
    """The node's only port; else "?"."""
    mine = found.on(node)
    return mine[0].hca if len(mine) == 1 else "?"


def usual(values: Iterable[float]) -> float | None:
    """The value that most have; the higher of two that as many have."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value)) if counts else None
