"""One node as a small picture, as far as readings know it: GPUs with their ranks, adapters, ends of their cables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from incidents.models import Incident, Reading
from incidents.queries.topology import TopologyPage
from probes.core import clean
from probes.diagnosis.gpus import GPU_PROBES
from probes.topology import STATES, PortState
from probes.topology.sources import is_up

STEP, WIDE = 47, 40  # pixels from box to box, and of a box
LETTERS = 7  # of a name that fit into a box
LEVELS = ("", "info", "warn", "bad")


@dataclass(frozen=True, slots=True)
class Box:
    """One thing of the picture. `level` is "" while nothing is wrong with it; `name` is short, `says` whole."""

    x: int
    middle: int
    name: str
    says: str
    level: str = ""
    below: str = ""
    chosen: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class CableRow:
    """One line of the cable's table: what, at the adapter, at the switch. `level` colours the first."""

    what: str
    here: str
    there: str
    level: str = ""
    glyph: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    node: str
    width: int
    gpus: list[Box]
    hcas: list[Box]
    leaves: list[Box]
    gpus_said: str  # why there are none
    hcas_said: str
    cable: list[CableRow]
    here: str
    there: str
    readings: list[tuple[str, int]]


def card(incident: Incident, page: TopologyPage, node: str, chosen: str = "") -> Card | None:
    """The card of a node of this incident, and of one of its ports: `chosen` as "mlx5_3:1", else the worst."""
    if node not in page.view.nodes:
        return None
    ports = sorted((port for port in page.view.ports if port.port.node == node), key=lambda one: one.port.rail)
    readings = {
        row.probe: row
        for row in Reading.objects.filter(run__incident=incident, node__name=node).best()
        if row.probe in (*GPU_PROBES, "rank.map", "ib.ports", "host.kernel_log")
    }
    order = list(STATES)
    one = next((port for port in ports if _key(port) == chosen), None)
    one = one or max(ports, key=lambda port: (port.state != "not known", order.index(port.state)), default=None)
    told = (readings[probe] for probe in GPU_PROBES if probe in readings and readings[probe].facts)
    state = next(told, readings.get(GPU_PROBES[0]))
    gpus = _gpus(state, readings.get("rank.map"))
    hcas = [_hca(i, port, port is one) for i, port in enumerate(ports)]
    latest = {name: row.pk for name, row in readings.items()}
    if node in page.seen.readings:
        latest["ib.ports"] = page.seen.readings[node]
    return Card(
        node=node,
        width=max(len(gpus), len(hcas), 4) * STEP - (STEP - WIDE),
        gpus=gpus,
        hcas=hcas,
        leaves=[_leaf(i, port) for i, port in enumerate(ports)],
        gpus_said="" if gpus else _why_no_gpus(state),
        hcas_said="" if hcas else "No InfiniBand or RoCE port of it is known.",
        cable=_cable(one, page.view.comparable and one.port.leaf not in page.view.unswept) if one else [],
        here=one.port.name if one else "",
        there=(one.port.other_end or (f"{one.end.name} port {one.end.port}" if one.end else "")) if one else "",
        readings=sorted(latest.items()),
    )


def _key(port: PortState) -> str:
    return f"{port.port.hca}:{port.port.port}"


def _box(i: int, name: str, **more: Any) -> Box:
    return Box(i * STEP, i * STEP + WIDE // 2, name if len(name) <= LETTERS else "…" + name[1 - LETTERS :], **more)


def _hca(i: int, port: PortState, chosen: bool) -> Box:
    level = STATES[port.state].level
    name = port.port.hca or f"rail {port.port.rail}"
    return _box(
        i,
        name,
        says=f"{port.port.cable}: {port.word}, {port.says}",
        level="" if level == "ok" else level,
        below="" if level == "ok" else STATES[port.state].glyph,
        chosen=chosen,
        key=_key(port),
    )


def _leaf(i: int, port: PortState) -> Box:
    if not port.port.leaf:
        return _box(i, "?", says="switch not known: nobody asked the fabric, or it was not seen there")
    return _box(i, port.port.leaf, says=port.port.other_end, below=str(port.port.leaf_port or ""))


def _gpus(state: Reading | None, ranks: Reading | None) -> list[Box]:
    """GPUs in the order of their bus ids. A rank is put to the GPU that runs its process, else to none."""
    if state is None or not state.facts:
        return []
    rank_of: dict[int, int] = {}
    for rank in (ranks.facts or {}).get("ranks", []) if ranks is not None else []:
        for pid in (rank["pid"], *rank["ns_pids"]):
            rank_of.setdefault(pid, rank["rank"])
    found = []
    gpus = sorted(state.facts.get("gpus", []), key=lambda gpu: str(gpu["bus_id"]))
    for i, gpu in enumerate(gpus):
        level, says = _worst(state.findings, gpu)
        mine = sorted({rank_of[pid] for pid in gpu.get("pids", []) if pid in rank_of})
        index = gpu["index"] if gpu["index"] is not None else i
        found.append(
            _box(
                i,
                f"GPU {index}",
                says=says or f"GPU {index} at {clean(str(gpu['bus_id']))[:20]}",
                level=level,
                below=" ".join(f"r{rank}" for rank in mine[:2]),
            )
        )
    return found


def _worst(findings: Sequence[dict[str, Any]], gpu: dict[str, Any]) -> tuple[str, str]:
    """The worst finding about this GPU, from warn on."""
    mine = [
        one
        for one in findings
        if one["severity"] in ("warn", "bad")
        and (one["subject"].get("bus_id") == gpu["bus_id"] or one["subject"].get("gpu") == gpu["index"])
    ]
    worst = max(mine, key=lambda one: LEVELS.index(one["severity"]), default=None)
    return (worst["severity"], worst["says"][:200]) if worst else ("", "")


def _why_no_gpus(state: Reading | None) -> str:
    if state is None:
        return "GPUs: not asked."
    return f"GPUs: {'none' if state.outcome == 'absent' else 'not known'}, {state.why[:120] or state.outcome}."


def _cable(one: PortState, asked: bool) -> list[CableRow]:
    """Both ends, as far as anybody knows them. `asked`: whether the fabric was asked, and could have the cable."""
    state = STATES[one.state]
    seen, end = one.seen, one.end
    counters = seen.counters if seen else {}
    expected = f"{one.port.rate_gbps:g} Gb/s expected" if one.port.rate_gbps else ""
    up = seen is not None and is_up(seen)
    rate = f"{seen.rate_gbps:g} Gb/s" if seen and up and seen.rate_gbps is not None else "—"
    link = f"{end.link.gbps:g} Gb/s, {end.link.lanes}x {end.link.speed}" if end and end.link.gbps is not None else "—"
    here = f"{clean(seen.state or '?')} / {clean(seen.phys_state or '?')}" if seen else "not known"
    there = "linked" if end else "no link there" if asked and one.port.leaf else "not known"
    level = "unk" if state.level == "unknown" else state.level
    return [
        CableRow(one.word, one.says, "", level, state.glyph),
        CableRow("state", here, there),
        CableRow("rate", rate + (f" ({expected})" if expected else ""), link),
        CableRow("link downed", _count(counters, "link_downed"), "not asked"),
        CableRow("symbol errors", _count(counters, "symbol_error"), "not asked"),
        CableRow("receive errors", _count(counters, "port_rcv_errors"), "not asked"),
        CableRow("node GUID", one.port.guid or "not known", one.port.leaf_guid or (end.guid if end else "not known")),
        CableRow("PCI address", clean(seen.pci)[:20] if seen and seen.pci else "not known", "—"),
    ]


def _count(counters: Any, name: str) -> str:
    """Since they were cleared: only their change means something, and one look shows none."""
    value = counters.get(name)
    return str(value) if value is not None else "not known"
