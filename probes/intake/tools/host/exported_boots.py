"""When each node booted, as node_exporter or /proc/stat tells it.

Source   node_exporter (node_boot_time_seconds), proc(5): btime; both in seconds since the epoch
Shape    facts of host.boots, of each node
Errors   ParseError when no series is in it
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from probes.catalog.host.facts import Boots
from probes.intake.samples import names_one_of, samples
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

NAMES = ("node_boot_time_seconds", "node_boot_time")
_BTIME = re.compile(r"^btime (1\d{9})$", re.M)


def _fits(head: str, name: str) -> bool:
    return names_one_of(head, NAMES) or bool(_BTIME.search(head[:16384]))


def by_node(text: str) -> dict[str, Boots]:
    found = {one.node: _boots(one.value) for one in samples(text, NAMES)}
    if not found and (since := _BTIME.search(text[:262_144])):
        found = {"": _boots(float(since[1]))}
    if not found:
        raise refuse("the time of a boot", text)
    return found


def _boots(at: float) -> Boots:
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") if 0 < at < 1e11 else ""
    return Boots(at, True, None, None, False, stamp)


def read(text: str) -> Boots:
    return next(iter(by_node(text).values()))


TOOL = Tool("boot times", "host.boots", _fits, read, lambda facts: (), by_node=by_node)
