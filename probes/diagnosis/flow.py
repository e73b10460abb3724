"""How RoCE is set up at each node and at its switch, in one table: what should be equal and is not says so in its cell.

Shape    flow_of(evidence) -> rows, those with an unequal cell first; () where all that was told is equal and no switch
         told anything. Which port of which switch a node hangs on nothing tells: a row names all that were told
Units    bytes of an MTU; priorities 0 to 7
Errors   none: what was not told is "not told"
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from probes.catalog.network.net_facts import NetLink
from probes.core import clean
from probes.diagnosis.core import Evidence

SWITCH = "switch"  # the name of the one link that a switch's own configuration is read as
MOST, NAMED = 24, 4  # rows, nodes that are named in each
NOT_TOLD = "not told"
SETTINGS = ("pfc", "mtu", "ecn", "trust")
COLUMNS = ("priorities without loss", "at its switch", "MTU", "ECN", "trust")


@dataclass(frozen=True, slots=True)
class Cell:
    """`odd`: what it is unlike, in words; "" where it is like the others."""

    says: str
    odd: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """Nodes whose interface of that name has the same in every column. `reading`: of the first."""

    interface: str
    nodes: tuple[str, ...]
    cells: tuple[Cell, ...]  # as COLUMNS
    reading: str

    @property
    def where(self) -> str:
        return ", ".join(self.nodes) if len(self.nodes) <= NAMED else f"{len(self.nodes)} nodes"

    @property
    def odd(self) -> bool:
        return any(cell.odd for cell in self.cells)


def flow_of(evidence: Evidence) -> tuple[Row, ...]:
    mine = {key: one for key, one in evidence.ports.links.items() if key[0] and _is_roce(*one)}
    switches = {node: link for (node, name), (link, _) in evidence.ports.links.items() if name == SWITCH}
    found: dict[tuple[str, tuple[Cell, ...]], list[tuple[str, str]]] = {}
    all_of: dict[str, dict[str, Counter[Any]]] = {}  # interface -> setting -> how many nodes have each value
    for (_, name), (link, _) in mine.items():
        counts = all_of.setdefault(name, {setting: Counter() for setting in SETTINGS})
        for setting, told in counts.items():
            told[getattr(link, setting)] += 1
    for (node, name), (link, ref) in mine.items():
        found.setdefault((name, _cells(link, all_of[name], switches)), []).append((node, ref))
    rows = [
        Row(name, tuple(sorted(node for node, _ in nodes)), cells, min(nodes)[1])
        for (name, cells), nodes in found.items()
    ]
    if not switches and not any(row.odd for row in rows):
        return ()
    return tuple(sorted(rows, key=lambda row: (not row.odd, row.interface, row.nodes))[:MOST])


def _is_roce(link: NetLink, ref: str) -> bool:
    told = link.pfc is not None or link.trust or link.ecn is not None
    return link.name != SWITCH and bool(told or (link.hca and link.kind == "ether"))


def _cells(link: NetLink, counts: dict[str, Counter[Any]], switches: dict[str, NetLink]) -> tuple[Cell, ...]:
    pfc, *others = (
        Cell(_shown(getattr(link, setting)), _unlike(getattr(link, setting), counts[setting])) for setting in SETTINGS
    )
    return (pfc, _at_switch(link, switches), *others)


def _at_switch(link: NetLink, switches: dict[str, NetLink]) -> Cell:
    """What the switches that were told have. Where they differ, the node may hang on any of them."""
    told = {name: switch.pfc for name, switch in switches.items() if switch.pfc is not None}
    if not told:
        return Cell(NOT_TOLD)
    kinds = sorted(set(told.values()))
    names = ", ".join(sorted(filter(None, told))) if len(told) <= NAMED else f"{len(told)} switches"
    says = " or ".join(map(_shown, kinds)) + (f" ({names})" if names else "")
    if link.pfc is None:
        return Cell(says)
    if link.pfc not in kinds:
        return Cell(says, "unlike the node")
    return Cell(says, "unlike the node if that is its switch" if len(kinds) > 1 else "")


def _unlike(mine: object, counts: Counter[Any]) -> str:
    """That more of the other nodes agree on another value than on this one. `counts` are of all nodes."""
    told = {value: count for value, count in counts.items() if value not in (None, "", mine)}
    if mine in (None, "") or not told or max(told.values()) <= counts[mine] - 1:
        return ""
    alone = sum(told.values()) == 1 and counts[mine] == 1
    return "unlike the other node" if alone else f"unlike {max(told.values())} other nodes"


def _shown(value: Any) -> str:
    if value is None or value == "":
        return NOT_TOLD
    if isinstance(value, bool):
        return "on" if value else "off"
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


def as_json(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """For telling and the page."""
    return [
        {
            "interface": clean(row.interface)[:40],
            "where": clean(row.where)[:400],
            "cells": [
                {"column": name, "says": clean(cell.says)[:200], "odd": cell.odd}
                for name, cell in zip(COLUMNS, row.cells, strict=True)
            ],
            "reading": clean(row.reading)[:400],
        }
        for row in rows
    ]
