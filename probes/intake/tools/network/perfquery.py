"""perfquery(8), classic and -x, one port or many: `# Port extended counters: Lid 9 port 3` and `Name:.....value`.

What somebody wrote before that, `# n1 mlx5_0 Port extended counters: Lid 101 port 1`, says whose port it is.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.ib_names import COUNTERS
from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import Finding, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, looks, refuse, whole
from probes.intake.tools.network._counter_sets import Where, is_switch, rate_in, seen_in

_HEAD = re.compile(
    r"^# ?(?:(?P<whose>[^\n:]{1,80}?):? )?"
    r"(?:Port (?:extended )?counters|PortRcvErrorDetails counters|PortXmitDiscardDetails counters): "
    r"Lid (?P<lid>\d{1,6}) (?:\([^)\n]{0,80}\) )?port (?P<port>\d{1,4})"
)
_LINE = re.compile(r"^([A-Z][A-Za-z0-9]{2,40}):\.{1,48}(\S{1,30})\s*$")


SELECTORS = ("PortSelect", "CounterSelect", "CounterSelect2")


def fits(head: str, name: str) -> bool:
    return any(_HEAD.match(line) for line in lines_of(head[:8192], 200))


def read(text: str) -> Counters:
    """By LID and port. A block for all ports of a switch (255) is left out: it adds up, and saturates sooner."""
    sets: list[CounterSet] = []
    for at, body in looks(text):
        head: re.Match[str] | None = None
        rate: float | None = None
        values: dict[str, int | None] = {}
        for line in (*lines_of(body, 200), "# Port counters: Lid 0 port 0"):
            if found := _HEAD.match(line):
                if head and values and head["port"] != "255":
                    sets.append(replace(_set(head, values, at), rate_gbps=rate))
                head, values = found, {}
            elif line[:1] == "#":  # what somebody wrote of all that follow
                rate = rate_in(line) or rate
            elif head and (found := _LINE.match(line)) and found[1] not in SELECTORS:
                values[COUNTERS.get(found[1], found[1])] = whole(found[2])
    if not sets:
        raise refuse("counters of a port as perfquery prints them", text)
    return Counters(tuple(sets[:100_000]))


def _set(head: re.Match[str], values: dict[str, int | None], at: float | None) -> CounterSet:
    """By LID, but where an adapter or a switch is named by that."""
    port, whose = int(head["port"]), head["whose"] or ""
    where = seen_in(whose, Where(), frozenset()) if whose else Where()
    if where.kind == "hca" and where.name:
        return CounterSet("hca", where.name, port, values, at, node=where.node or where.label)
    name = where.switch or (where.label if where.label and is_switch(where.label) else "")
    if name:
        return CounterSet("switch", name, port, values, at)
    return CounterSet("lid", head["lid"], port, values, at)


def quiet(facts: Counters) -> tuple[Finding, ...]:
    """Counters since they were cleared say nothing by themselves: rules compare two looks."""
    return ()


TOOL = Tool("perfquery", "ib.counters", fits, read, quiet, host_in)
