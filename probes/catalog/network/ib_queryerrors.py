"""ibqueryerrors(8): `Errors for "NAME"` and below it ports with `[Counter == value]`; with -r the cable's other end.

Rows of `port ALL` repeat and add up: left out. A fabric without errors has no rows.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.ib_names import COUNTERS
from probes.catalog.network.net_facts import CounterSet
from probes.core import clean, lines_of

_HEAD = re.compile(r'^Errors for (?:(0x[0-9a-fA-F]{1,16}) )?"([^"\n]{0,120})"')
_ROW = re.compile(r"^\s{1,8}GUID (0x[0-9a-fA-F]{1,16}) port (\d{1,4}|ALL):")
_VALUE = re.compile(r"\[([A-Z]\w{2,40}) == (\d{1,20})(?: \([^)\]\n]{0,30}\))?\]")
_PEER = re.compile(r"Link info:[^\n]{0,160}?==>[^\n]{0,60}?\s(\d{1,4})\[[\s\d]{0,4}\] \"([^\"\n]{0,120})\"")
_ERRORS = re.compile(_HEAD.pattern, re.M)
SUMMARY = "nodes checked"  # newer releases end with it, also where they found nothing


def is_output(text: str) -> bool:
    return bool(_ERRORS.search(text)) or "## Summary:" in text and SUMMARY in text


def counted(text: str, at: float | None) -> list[CounterSet]:
    """One look: by node GUID and port, only those that counted something."""
    sets: list[CounterSet] = []
    name = ""
    for line in lines_of(text, 4000):
        if head := _HEAD.match(line):
            name = clean(head[2]).strip()
        elif (row := _ROW.match(line)) and row[2] != "ALL":
            values: dict[str, int | None] = {COUNTERS.get(key, key): int(value) for key, value in _VALUE.findall(line)}
            sets.append(CounterSet("guid", row[1], int(row[2]), values, at, name))
        elif sets and not sets[-1].peer and (peer := _PEER.search(line)):
            sets[-1] = replace(sets[-1], peer=f"{clean(peer[2]).strip()} port {peer[1]}")
    return sets
