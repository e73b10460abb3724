"""ibqueryerrors(8): `Errors for "NAME"` and below it ports with `[Counter == value]`; with -r the cable's other end.

Rows of `port ALL` repeat and add up: left out.
"""

from __future__ import annotations

import re

from probes.catalog._net_facts import Counters, CounterSet
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._ports import COUNTERS
from probes.intake.tools._text import looks, refuse, whole
from probes.intake.tools.perfquery import quiet

_HEAD = re.compile(r'^Errors for (?:(0x[0-9a-fA-F]{1,16}) )?"([^"\n]{0,120})"')
_ROW = re.compile(r"^\s{1,8}GUID (0x[0-9a-fA-F]{1,16}) port (\d{1,4}|ALL):")
_VALUE = re.compile(r"\[([A-Z]\w{2,40}) == (\d{1,20})(?: \([^)\]\n]{0,30}\))?\]")
_PEER = re.compile(r"Link info:[^\n]{0,160}?==>[^\n]{0,60}?\s(\d{1,4})\[[\s\d]{0,4}\] \"([^\"\n]{0,120})\"")


def fits(head: str, name: str) -> bool:
    return bool(re.search(_HEAD.pattern, head, re.M)) or "## Summary:" in head and "nodes checked" in head


def read(text: str) -> Counters:
    """By node GUID and port. A fabric without errors has no rows."""
    sets: list[CounterSet] = []
    for at, body in looks(text):
        name = ""
        for line in lines_of(body, 4000):
            if head := _HEAD.match(line):
                name = clean(head[2]).strip()
            elif (row := _ROW.match(line)) and row[2] != "ALL":
                values: dict[str, int | None] = {
                    COUNTERS.get(key, key): whole(value) for key, value in _VALUE.findall(line[:4000])
                }
                sets.append(CounterSet("guid", row[1], int(row[2]), values, at, name))
            elif sets and (peer := _PEER.search(line)):
                last = sets[-1]
                if not last.peer:
                    sets[-1] = CounterSet(
                        last.kind,
                        last.name,
                        last.port,
                        last.counters,
                        at,
                        name,
                        f"{clean(peer[2]).strip()} port {peer[1]}",
                    )
    if not sets and "nodes checked" not in text:
        raise refuse("rows such as 'Errors for \"leaf-01\"'", text)
    return Counters(tuple(sets[:100_000]))


TOOL = Tool("ibqueryerrors", "ib.counters", fits, read, quiet)
