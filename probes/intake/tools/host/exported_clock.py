"""How far each node's clock is off, as node_exporter tells it.

Source   node_exporter's timex (node_timex_offset_seconds: node minus source; sync_status 0: not in step) and ntp
         collectors (node_ntp_offset_seconds: source minus node);
         a panel saved as CSV, a column a node, whose file's name says that it is of offsets of clocks
Shape    facts of host.clock, of each node
Errors   ParseError when no series is in it
"""

from __future__ import annotations

import re

from probes.catalog.host_clock import Clock
from probes.intake.metrics import series_of
from probes.intake.samples import names_one_of, samples
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

OFFSETS = {"node_timex_offset_seconds": 1.0, "node_ntp_offset_seconds": -1.0}
SYNC = "node_timex_sync_status"


_PANEL = re.compile(r"(?i)(?:clock|ntp|timex|chrony|time).{0,20}(?:offset|drift|skew)")


def _fits(head: str, name: str) -> bool:
    panel = bool(_PANEL.search(name)) and name.lower().endswith(".csv") and bool(series_of(head))
    return names_one_of(head, (*OFFSETS, SYNC)) or panel


def by_node(text: str) -> dict[str, Clock]:
    offsets: dict[str, float] = {}
    kept: dict[str, bool] = {}
    for series in series_of(text):
        if not series.name and series.points and (pod := series.labels.get("pod")):
            offsets[re.sub(r":\d{1,5}$", "", pod)] = series.points[-1][1]
    for one in samples(text, (*OFFSETS, SYNC)):
        if one.name == SYNC:
            kept[one.node] = one.value != 0
        else:
            offsets[one.node] = one.value * OFFSETS[one.name]
    if not offsets and not kept:
        raise refuse("clocks of nodes", text)
    return {
        node: Clock(None, None, None, "node_exporter", kept.get(node), offsets.get(node))
        for node in dict.fromkeys([*offsets, *kept])
    }


def read(text: str) -> Clock:
    return next(iter(by_node(text).values()))


TOOL = Tool("clocks of nodes", "host.clock", _fits, read, by_node=by_node)
