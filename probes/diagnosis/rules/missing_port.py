"""An adapter that must be there is not, or all ports of a leaf are down together: only who knows the fabric tells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, node_of
from probes.diagnosis.looks import order_of
from probes.diagnosis.ports import PortView
from probes.diagnosis.rules.fabric_events import lost_switches
from probes.diagnosis.rules.port_down import DATA
from probes.topology import PortState, pattern_of
from probes.topology.states import MISSING, UNKNOWN

_LISTED = re.compile(r"\[\d{1,3}\]([A-Za-z][\w.-]{1,40}):\d")  # [0]mlx5_0:1/IB
LINK, SWITCH = "ib.link_down", "ib.switch_down"
MOST = 6  # ports whose readings are named for a leaf


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _vanished(evidence)
    if evidence.expected is None:
        yield from _fewer(evidence)
        yield from _not_taken(evidence)
        yield from _rail(evidence)
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


def _vanished(evidence: Evidence) -> Iterator[Hypothesis]:
    """Of two sweeps, in the order of their files: what the first has and the last has not."""
    sweeps = sorted(evidence.of("ib.fabric"), key=lambda seen: order_of(seen.ref))
    if len(sweeps) < 2:
        return
    first, last = sweeps[0], sweeps[-1]
    now = {device.guid for device in last.facts.devices}
    was = {device.guid: device for device in first.facts.devices}
    if len(now & set(was)) * 2 < len(was):
        return  # another fabric
    gone = [device for guid, device in was.items() if guid not in now]
    lost = {device.guid for device in gone if device.kind == "switch"}
    behind = {link.a for link in first.facts.links if link.b in lost} | {
        link.b for link in first.facts.links if link.a in lost
    }
    names = {device.guid: device.name for device in was.values()}
    for device in gone:
        also = behind & (set(was) - now)
        nodes = frozenset(_node_of(names.get(guid, "")) for guid in also) - {""}
        if device.kind == "switch":
            says = f"{device.name or device.guid} was in the fabric ({first.ref}) and is not any more ({last.ref})"
            yield Hypothesis(
                SWITCH,
                {"switch": device.name or device.guid},
                f"Switch {device.name or device.guid} is gone from the fabric, with {len(also)} adapters behind it",
                (Reason(says, last.ref),),
                ("switch_gone",),
                would_change=("the switch seen again in a new sweep",),
                nodes=nodes,
            )
        elif device.kind == "hca" and device.guid not in behind:
            node, _, hca = device.name.rpartition(" ")
            yield Hypothesis(
                LINK,
                {"node": node or device.name} | ({"hca": hca} if node else {}),
                f"{device.name or device.guid} is gone from the fabric",
                (Reason(f"{device.name} was there in {first.ref} and is not in {last.ref}", last.ref),),
                ("port_missing",),
                would_change=("the adapter seen again in a new sweep",),
                nodes=frozenset({node or device.name}),
            )


def _fewer(evidence: Evidence) -> Iterator[Hypothesis]:
    """An adapter that all other nodes have, two at least that have the same ones, and one node has not."""
    sets: dict[str, set[str]] = {}
    stated = any(view.facts is not None and view.facts.state is not None for view in evidence.ports.of_nodes)
    for view in evidence.ports.of_nodes:
        if view.node and view.facts is not None and (view.facts.state is not None or not stated):
            sets.setdefault(view.node, set()).add(view.hca)
    kinds = Counter(frozenset(one) for one in sets.values())
    if len(kinds) != 2 or min(kinds.values()) != 1 or len(sets) < 3:
        return
    for node, mine in sets.items():
        others = [one for other, one in sets.items() if other != node] if kinds[frozenset(mine)] == 1 else []
        if len(others) < 2 or any(one != others[0] for one in others) or not mine < others[0]:
            continue
        # Adapters are numbered anew when one is gone: only with one that is last is its name certain.
        gone = sorted(others[0] - mine)
        ref = next(view.ref for view in evidence.ports.on(node))
        says = f"{node} shows {len(mine)} adapters, each of {len(others)} other nodes {len(others[0])}"
        yield Hypothesis(
            LINK,
            {"node": node} | ({"hca": gone[0]} if len(gone) == 1 else {}),
            f"{says}: {', '.join(gone[:4])} is missing",
            (Reason(says, ref),),
            ("port_missing_by_peers",),
            would_change=("lspci on that node: whether the adapter is on its bus",),
            nodes=frozenset({node}),
        )


def _not_taken(evidence: Evidence) -> Iterator[Hypothesis]:
    """An adapter that NCCL lists on all other nodes, two at least, and not on one."""
    sets: dict[str, set[str]] = {}
    lines: dict[str, Said] = {}
    for one in evidence.job.said("nccl_net"):
        if one[0].name == "NET/IB" and (listed := set(_LISTED.findall(str(one[0].more.get("devices", ""))))):
            sets.setdefault(node_of(evidence, one), set()).update(listed)
            lines.setdefault(node_of(evidence, one), one)
    kinds = Counter(frozenset(one) for one in sets.values())
    if len(kinds) != 2 or len(sets) < 3 or "" in sets:
        return
    (most, _), (few, count) = kinds.most_common()
    node = next(node for node, mine in sets.items() if mine == few)
    known = any(view.facts is not None and view.facts.state for view in evidence.ports.on(node))
    if count > 1 or not few < most or known:
        return
    gone = sorted(most - few)
    says = f"NCCL takes {len(few)} adapters on {node}, {len(most)} on {len(sets) - 1} other nodes"
    yield Hypothesis(
        LINK, {"node": node} | ({"hca": gone[0]} if len(gone) == 1 else {}), f"{says}: without {', '.join(gone[:4])}",
        (quoted(*lines[node]),), ("adapter_not_taken",),
        would_change=("ibstat on that node: the adapter's port ACTIVE", "another NCCL_IB_HCA on that node"),
        nodes=frozenset({node}),
    )  # fmt: skip


def _node_of(name: str) -> str:
    return name.rpartition(" ")[0] or name


def _rail(evidence: Evidence) -> Iterator[Hypothesis]:
    """One adapter of every node is down, the others work: what they share is their switch. Where an earlier sweep tells
    it by name, all down ports of it count, whatever they are called."""
    down = [
        view for view in evidence.ports.of_nodes if view.facts is not None and view.facts.state == "DOWN" and view.node
    ]
    up = [
        view
        for view in evidence.ports.of_nodes
        if view.facts is not None and view.facts.state == "ACTIVE" and view.node
    ]
    groups: dict[tuple[str, str], list[PortView]] = {}
    for view in down:
        key = ("switch", view.peer[0]) if view.peer else ("hca", f"{view.hca}/{view.port}")
        groups.setdefault(key, []).append(view)
    for (kind, name), views in _of_one_switch(groups, up).items():
        nodes = frozenset(view.node for view in views)
        same = [
            view
            for view in up
            if (view.peer and view.peer[0] == name if kind == "switch" else f"{view.hca}/{view.port}" == name)
        ]
        part = bool(same) and kind == "hca" and len(views) == len(down)  # the others may hang on another leaf
        if len(nodes) < 3 or (same and not part) or not up:
            continue
        used = any(
            value for view in views for look in view.looks for key, value in look.counters.items() if key in DATA
        )
        used = used or any(
            one.subject.get("device") for seen, one in evidence.findings("kernel.link") if seen.node in nodes
        )
        used = used or bool(
            [
                event
                for event, _, _ in evidence.job.said("ib_completion", "ib_async")
                if event.where.partition(":")[0] in {v.hca for v in views}
            ]
        )
        lost = lost_switches(evidence) if kind == "hca" else ()
        used = used or bool(lost) or any(_configured(view) for view in views)
        what = f"{name} is down or lost" if kind == "switch" else f"The switch of {name} is down or lost"
        subject: dict[str, str | int] = (
            {"switch": name}
            if kind == "switch"
            else {"hca": views[0].hca, "port": views[0].port}
            if len({(view.hca, view.port) for view in views}) == 1
            else {}
        )
        if len(lost) == 1:
            subject, what = {"switch": lost[0]}, f"{lost[0]} is down or lost"
        yield Hypothesis(
            SWITCH,
            subject,
            f"{what}: {len(views)} ports of {len(nodes)} nodes are down at once, {len(up)} others work",
            tuple(Reason(f"{view.called} is down", view.ref) for view in views[:MOST]),
            ("rail_down_in_part" if part else "rail_down" if used or kind == "switch" else "rail_down_perhaps_unused",),
            would_change=("one of these ports ACTIVE at a second look",),
            nodes=nodes,
        )


def _of_one_switch(
    groups: dict[tuple[str, str], list[PortView]], up: list[PortView]
) -> dict[tuple[str, str], list[PortView]]:
    """Adapters that are down on the very same nodes, each on no other, are one group: two rails may share a leaf, and
    two leaves do not fail at once."""
    works = {f"{view.hca}/{view.port}" for view in up}
    by_nodes: dict[frozenset[str], list[tuple[str, str]]] = {}
    for key, views in groups.items():
        if key[0] == "hca" and key[1] not in works:
            by_nodes.setdefault(frozenset(view.node for view in views), []).append(key)
    for keys in by_nodes.values():
        if len(keys) > 1:
            some = [view for key in keys for view in groups.pop(key)]
            groups["hca", " and ".join(name for _, name in sorted(keys))] = some
    return groups


def _configured(view: PortView) -> bool:
    """A subnet manager gave it an address, so it was up before. One that never was shows 0 or 65535 (mlx5)."""
    return view.facts is not None and view.facts.lid not in (None, 0, 0xFFFF)


RULE = Rule((LINK, SWITCH), judge)
