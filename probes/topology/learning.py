"""An expected topology out of what was seen, once a person says that it is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from probes.catalog.network.ib_fabric_facts import Fabric
from probes.catalog.network.ib_facts import IbPorts, Port
from probes.topology.expected import ExpectedPort, Topology
from probes.topology.sources import Cables, as_expected_port, is_spare, is_up, rails_of, usual_rate

__all__ = ["Learned", "learn", "rails_of"]


@dataclass(frozen=True, slots=True)
class Learned:
    """`ports`: up, and therefore expected. `not_up`: not up, slower than the others of their node, or expected before
    and not there any more, each as it would be expected: whether it must be so only a person knows.

    `spare`: second ports of adapters, not up, left out. `silent`: "gpu-017 mlx5_3" of adapters that did not answer.
    `unseen`: expected ports that the fabric, although it was asked, does not have: their leaf stays unknown.
    """

    ports: tuple[ExpectedPort, ...]
    not_up: tuple[ExpectedPort, ...]
    spare: int
    silent: tuple[str, ...]
    unseen: tuple[ExpectedPort, ...]

    def topology(self, expect_not_up: bool) -> Topology:
        """With the ports that are not up, as ones that must be up, or without them."""
        ports = self.ports + self.not_up if expect_not_up else self.ports
        return Topology(tuple(sorted(ports, key=lambda port: (port.node, port.rail, port.port))))


def learn(answers: Mapping[str, IbPorts], fabric: Fabric | None = None, before: Topology | None = None) -> Learned:
    """Expected ports of these nodes; cables where the fabric has them, by node GUID. `before`: what was expected, whose
    cables stay known as far as their switches were not seen this time."""
    cables = Cables(fabric)
    known = {(port.guid, port.port): port for port in before.ports if port.guid and port.leaf} if before else {}
    up: list[ExpectedPort] = []
    not_up: list[ExpectedPort] = []
    spare = 0
    for node, facts in answers.items():
        rails = rails_of(facts)
        ports = [port for _, port in rails]
        rate = usual_rate(ports)
        for rail, port in rails:
            if is_spare(port, ports):
                spare += 1
                continue
            found = _with_cable(as_expected_port(node, rail, port, rate, cables), known, cables)
            slow = found.rate_gbps is not None and rate is not None and found.rate_gbps < rate
            (up if is_up(port) and not slow else not_up).append(_at_least(found, rate))
    not_up += _not_there_any_more(up + not_up, before) if before else []
    silent = tuple(f"{node} {one.hca}" for node, facts in answers.items() for one in facts.silent)
    unseen = tuple(port for port in up if cables.asked and not port.leaf)
    return Learned(tuple(up), tuple(not_up), spare, silent, unseen)


def _with_cable(port: ExpectedPort, known: Mapping[tuple[str, int], ExpectedPort], cables: Cables) -> ExpectedPort:
    """Its cable as it was known, unless the fabric shows another, or shows its switch without it."""
    old = known.get((port.guid, port.port))
    if old is None or port.leaf or cables.covers(old):
        return port
    return replace(port, leaf=old.leaf, leaf_guid=old.leaf_guid, leaf_port=old.leaf_port)


def _not_there_any_more(ports: Sequence[ExpectedPort], before: Topology) -> list[ExpectedPort]:
    there = {(port.guid, port.port) for port in ports} | {(port.node, port.hca, port.port) for port in ports}
    return [
        port
        for port in before.ports
        if ((port.guid, port.port) if port.guid else (port.node, port.hca, port.port)) not in there
    ]


def as_seen(node: str, facts: IbPorts, cables: Cables) -> list[ExpectedPort]:
    """What the node's own adapters suggest while nobody has said what must be there: its rails, at the usual rate."""
    rails = rails_of(facts)
    ports = [port for _, port in rails]
    rate = usual_rate(ports)
    wanted: list[tuple[int, Port]] = [(rail, port) for rail, port in rails if not is_spare(port, ports)]
    found = [as_expected_port(node, rail, port, rate, cables) for rail, port in wanted]
    return [_at_least(port, rate) for port in found]


def _at_least(port: ExpectedPort, rate: float | None) -> ExpectedPort:
    return replace(port, rate_gbps=max(port.rate_gbps or 0.0, rate or 0.0) or None)
