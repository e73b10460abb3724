"""An adapter that must be there is not, or all ports of a leaf are down together: only who knows the fabric tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.topology import PortState, pattern_of
from probes.topology.states import MISSING, UNKNOWN

LINK, SWITCH = "ib.link_down", "ib.switch_down"
MOST = 6  # ports whose readings are named for a leaf


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    if evidence.expected is None:
        return
    by_node: dict[str, list[PortState]] = {}
    for port in evidence.fabric.ports:
        if port.expected:
            by_node.setdefault(port.port.node, []).append(port)
    for ports in by_node.values():
        missing = [port for port in ports if port.state == MISSING]
        if len(missing) == len(ports) > 1:
            yield _node(evidence, missing)
        else:
            yield from (_port(evidence, port) for port in missing)
    yield from _leaf(evidence)


def _reason(evidence: Evidence, port: PortState) -> Reason:
    """On its node's own reading; where the node is silent, on the sweep of the fabric."""
    answered = {one.node: one.ref for one in evidence.all_of("ib.ports") if one.outcome in ("ok", "absent")}
    swept = [one.ref for one in evidence.of("ib.fabric")]
    return Reason(f"{port.port.cable}: {port.says}", answered.get(port.port.node) or swept[-1])


def _port(evidence: Evidence, port: PortState) -> Hypothesis:
    where = port.port
    says = f"Port {where.port} of {where.hca} on {where.node} is missing"
    return Hypothesis(
        LINK,
        {"node": where.node, "hca": where.hca, "port": where.port},
        says + (f": its cable belongs into {where.other_end}" if where.leaf else ""),
        (_reason(evidence, port),),
        ("port_missing",),
        would_change=("the adapter seen again at a second look", "an expected topology without it"),
        nodes=frozenset({where.node}),
    )


def _node(evidence: Evidence, ports: Sequence[PortState]) -> Hypothesis:
    node = ports[0].port.node
    return Hypothesis(
        LINK,
        {"node": node},
        f"All {len(ports)} expected ports of {node} are missing",
        (_reason(evidence, ports[0]),),
        ("port_missing",),
        would_change=("the adapters seen again at a second look", "an expected topology without them"),
        nodes=frozenset({node}),
    )


def _leaf(evidence: Evidence) -> Iterator[Hypothesis]:
    """Every known port of a leaf, three at least, on three nodes: a cable each is less likely than their switch."""
    pattern = pattern_of(evidence.fabric)
    nodes = frozenset(port.port.node for port in pattern.ports)
    if pattern.kind != "leaf" or not pattern.whole or pattern.level != "bad" or len(nodes) < 3:
        return
    if not all(port.expected and port.state != UNKNOWN for port in pattern.ports):
        return
    yield Hypothesis(
        SWITCH,
        pattern.subject,
        f"{pattern.subject['switch']} is down or lost: all {len(pattern.ports)} known ports of it at once",
        tuple(_reason(evidence, port) for port in pattern.ports[:MOST]),
        ("leaf_down",),
        would_change=("one port of this leaf ACTIVE at a second look",),
        nodes=nodes,
    )


RULE = Rule((LINK, SWITCH), judge)
