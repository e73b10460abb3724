"""`ethtool -S IF`: `NIC statistics:` and `name: value` lines. The interface stands in the file's name or a prompt."""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, looks, refuse, whole
from probes.intake.tools.network.perfquery import quiet

_COMMAND = re.compile(r"ethtool (?:-S|--statistics) ([\w.@-]{1,40})")
_LINE = re.compile(r"^\s{1,12}([A-Za-z][\w\[\]() .-]{1,60}):\s{1,8}(\d{1,20})\s*$")
_INTERFACE = re.compile(r"(?:en[opsx]\w{1,20}|(?:eth|ib|bond|rdma|roce|gpu|rail)\w{0,12}\d)")


def fits(head: str, name: str) -> bool:
    return "NIC statistics:" in head


def read(text: str) -> Counters:
    """By interface; "" where the text does not name it (then it is the node's only one, or none can be told)."""
    sets: list[CounterSet] = []
    for at, body in looks(text):
        netdev, values = "", dict[str, int | None]()
        for line in (*lines_of(body, 400), "NIC statistics:"):
            command = _COMMAND.search(line)
            begins = bool(command) or line.strip() == "NIC statistics:"
            if begins and values:
                sets.append(CounterSet("netdev", netdev, None, values, at))
                netdev, values = netdev if not command else "", {}
            if command:
                netdev = clean(command[1])
            elif found := _LINE.match(line):
                values[clean(found[1])] = whole(found[2])
            elif not netdev and not values and len(line) < 80:  # a heading of the person who collected it
                netdev = next((word for word in re.split(r"[\s=:,()]+", line) if _INTERFACE.fullmatch(word)), "")
    if not sets:
        raise refuse("counters below a line 'NIC statistics:'", text)
    return Counters(tuple(sets[:10_000]))


def named(facts: Counters, path: str) -> Counters:
    """The interface by the file's name, where the text does not tell it."""
    words = re.split(r"[_. =-]", path.rpartition("/")[2])
    found = next((word for word in words if _INTERFACE.fullmatch(word)), "")
    return Counters(tuple(one if one.name else replace(one, name=found) for one in facts.sets))


TOOL = Tool("ethtool -S", "ib.counters", fits, read, quiet, host_in, named)
