"""A file that no reader knows as it stands, cut by the node in front of every line: the parts that are a tool's output.

Rows of CSV and of JSON become such lines, and so do states of ports in an exposition (node_exporter's infiniband).

Shape    items_by_node(item, text) -> (node, Item), [] where no part is known; items_of_rows(item) -> the same of
         a table that somebody made, which tells of hosts
Errors   none
"""

from __future__ import annotations

import itertools
import re

from probes.intake import host_rows
from probes.intake.first_words import parts_by_first_word
from probes.intake.hosts import names_a_tool
from probes.intake.items import HEAD, Item
from probes.intake.kinds import Known, kind_of
from probes.intake.names import stem
from probes.intake.own_tables import objects
from probes.intake.samples import samples
from probes.intake.tools.network._counter_sets import HOST_KEYS

_ROWS = 20_000
_PREFIX = "node_infiniband_"
_MTU = "node_network_mtu_bytes"
_TELLS = ("state_id", "physical_state_id", "rate_bytes_per_second")
_STATES = {"1": "1: DOWN", "2": "2: INIT", "3": "3: ARMED", "4": "4: ACTIVE"}
_PHYSICAL = {"1": "1: Sleep", "2": "2: Polling", "3": "3: Disabled", "5": "5: LinkUp"}


def as_lines(text: str, name: str) -> str:
    """Rows with their node first; "" where there are none."""
    body = text.lstrip("\ufeff \t\r\n")
    if body[:1] in "[{":
        return _of_json(body) or text  # "[kd01] mlx5_0 ..." begins like a list
    if name.lower().endswith((".csv", ".tsv")):
        return re.sub(r"[,;\t]", " ", text)
    return text


def _of_json(body: str) -> str:
    lines = []
    for row in objects(body, _ROWS):
        if node := next((str(row[key]) for key in HOST_KEYS if row.get(key)), ""):
            told = (
                f"{key}={value}" for key, value in row.items() if key not in HOST_KEYS and isinstance(value, (str, int))
            )
            lines.append(f"{node} {' '.join(told)}"[:2000])
    return "\n".join(lines)


def _of_series(text: str) -> dict[str, str]:
    """Of each node the newest states of its ports, or the MTU of each interface as `ip link` writes it; of an
    exposition, an answer of the API or a panel's CSV alike."""
    head = text[:HEAD]
    if _PREFIX not in head and _MTU not in head:
        return {}
    names = [f"{_PREFIX}{what}" for what in _TELLS] if _PREFIX in head else [_MTU]
    lines: dict[str, dict[str, str]] = {}
    for one in itertools.islice(samples(text[:8_388_608], names), _ROWS):
        mine = lines.setdefault(one.node, {})
        what, device = one.name.removeprefix(_PREFIX), one.labels.get("device", "")
        if one.name == _MTU:
            mine[device] = f"{len(mine) + 1}: {device}: <> mtu {one.value:.0f}"
            continue
        key = f"{device} port {one.labels.get('port', '1')}"
        word = {"state_id": _STATES, "physical_state_id": _PHYSICAL}.get(what, {}).get(f"{one.value:.0f}", "")
        word = word or (f"{one.value * 8 / 1e9:.0f} Gb/sec" if what.startswith("rate") else "")
        mine[key] = f"{mine.get(key, key)} {word}"
    return {node: "\n".join(mine.values()) + "\n" for node, mine in lines.items() if node}


def items_of_rows(item: Item) -> list[tuple[str, Item]]:
    """What no row says the node of, the file's name may."""
    name = re.sub(r"\.(?:md|csv|tsv)$", "", stem(item.name), flags=re.I)
    own = "" if item.inside.parent.name and names_a_tool(name) else name
    found = []
    for node, label, text in host_rows.told(item.head.decode("utf-8", "replace").replace("\r\n", "\n")):
        inside = item.inside.parent / (node or own) / label
        one = Item(f"{item.ref}: {node or label}"[:1000], inside, text.encode(), mtime=item.mtime)
        one.seen_at = item.seen_at
        found.append((node, one))
    return found


def items_by_node(item: Item, text: str) -> list[tuple[str, Item]]:
    found = []
    parts = _of_series(text) or {part.nodes[0]: part.text for part in parts_by_first_word(as_lines(text, item.name))}
    for node, told in parts.items():
        inside = item.inside.parent / node / f"{stem(item.name)}.txt"
        mine = Item(f"{item.ref}: {node}"[:1000], inside, told.encode("utf-8", "replace"), mtime=item.mtime)
        known = kind_of(mine)
        if isinstance(known, Known) and known.tool is not None:
            found.append((node, mine))
    return found
