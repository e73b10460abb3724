"""Rows and columns of the rail matrix, from the links: nodes on the same leaves stand together, whatever their names.

A block is a set of nodes that share leaves (a scalable unit): its rows are those leaves, or the rails where no leaf is
known, its columns the nodes. With several blocks the columns are places within a block.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from probes.topology.states import PortState

WIDEST = 96  # columns of one block; more nodes go below


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its label, and the port of each column, None where there is none."""

    label: str
    cells: tuple[PortState | None, ...]


@dataclass(frozen=True, slots=True)
class Block:
    nodes: tuple[str, ...]
    rows: tuple[Row, ...]


def natural(name: str) -> tuple[object, ...]:
    """gpu-9 before gpu-10: as people count."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d{1,12})", name))


def blocks_of(nodes: Sequence[str], ports: Sequence[PortState]) -> list[Block]:
    """The blocks, in the order of their first nodes."""
    by_node: dict[str, list[PortState]] = {node: [] for node in nodes}
    for port in ports:
        by_node[port.port.node].append(port)
    shown = [node for node in sorted(nodes, key=natural) if by_node[node]]
    found = []
    for unit in _units(shown, by_node):
        for begin in range(0, len(unit), WIDEST):
            part = unit[begin : begin + WIDEST]
            found.append(_block(part, {node: by_node[node] for node in part}))
    return found


def _units(nodes: Sequence[str], by_node: dict[str, list[PortState]]) -> list[list[str]]:
    """Nodes that share leaves, directly or through others. Nodes of which no leaf is known stand together, last."""
    unit_of_leaf: dict[str, int] = {}
    units: dict[int, list[str]] = {}
    for number, node in enumerate(nodes):
        leaves = {port.port.leaf_guid for port in by_node[node] if port.port.leaf_guid}
        joined = sorted({unit_of_leaf[leaf] for leaf in leaves if leaf in unit_of_leaf})
        target = joined[0] if joined else number if leaves else -1
        for other in joined[1:]:  # this node ties them together
            units[target] += units.pop(other)
            unit_of_leaf = {leaf: target if unit == other else unit for leaf, unit in unit_of_leaf.items()}
        unit_of_leaf.update(dict.fromkeys(leaves, target))
        units.setdefault(target, []).append(node)
    alone = units.pop(-1, [])
    found = [sorted(unit, key=natural) for unit in sorted(units.values(), key=lambda unit: natural(min(unit)))]
    if alone and len(found) == 1:  # silent nodes that are not expected: beside the others
        return [sorted(found[0] + alone, key=natural)]
    return [*found, *([alone] if alone else [])]


def _block(nodes: Sequence[str], by_node: dict[str, list[PortState]]) -> Block:
    """One row per leaf; several where a node has more than one port on it. Without a leaf: per rail."""
    cells: dict[tuple[str, int], dict[str, PortState]] = {}
    labels: dict[tuple[str, int], str] = {}
    rails: dict[tuple[str, int], Counter[int]] = {}
    row_of_rail: dict[int, tuple[str, int]] = {}
    unplaced = []
    for node in nodes:
        taken: Counter[str] = Counter()
        for port in sorted(by_node[node], key=lambda one: (one.port.rail, one.port.port)):
            if not port.port.leaf_guid:
                unplaced.append(port)
                continue
            key = (port.port.leaf_guid, taken[port.port.leaf_guid])
            taken[port.port.leaf_guid] += 1
            cells.setdefault(key, {})[node] = port
            labels[key] = port.port.leaf + (f" · {key[1] + 1}" if key[1] else "")
            rails.setdefault(key, Counter())[port.port.rail] += 1
            row_of_rail.setdefault(port.port.rail, key)
    for port in unplaced:  # beside the others of its rail, if there is one row for it and place in it
        key = row_of_rail.get(port.port.rail, ("", port.port.rail))
        if port.port.node in cells.get(key, {}):
            key = ("", port.port.rail * 8 + port.port.port)
        cells.setdefault(key, {})[port.port.node] = port
        labels.setdefault(key, f"rail {port.port.rail}")
        rails.setdefault(key, Counter())[port.port.rail] += 1
    order = sorted(cells, key=lambda key: (rails[key].most_common(1)[0][0], natural(labels[key]), key[1]))
    rows = tuple(Row(labels[key], tuple(cells[key].get(node) for node in nodes)) for key in order)
    return Block(tuple(nodes), rows)
