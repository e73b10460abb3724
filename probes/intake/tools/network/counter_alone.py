"""One number, of a counter that the command names: `cat /sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error`
and `cat /sys/class/net/eth4/carrier_changes`. The time that `date` told may stand above it.

Source   kernel: Documentation/ABI/stable/sysfs-class-infiniband, Documentation/ABI/testing/sysfs-class-net
Units    as in sysfs
Shape    facts of ib.counters
Errors   ParseError where it is no number
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import ParseError
from probes.intake.tools import Tool
from probes.intake.tools.network._counter_names import canonical
from probes.intake.tools.network.perfquery import quiet
from probes.intake.when import moment_in

_PORT = re.compile(r"infiniband_(\w{2,24}?)_ports_(\d{1,3})_(?:hw_)?counters_([a-z]\w{3,60}?)(?:\.\d{1,4})?$")
_NET = re.compile(
    r"class_net_(\w{2,24}?)_(?:statistics_)?(carrier_(?:changes|down_count|up_count)|[rt]x_\w{3,30})(?:\.\d{1,4})?$"
)
_TEXT = re.compile(r"\s{0,8}(?:([^\n]{8,60})\n)?\s{0,8}(\d{1,20})\s{0,8}")
NAMELESS = "value"


def _asked(name: str) -> tuple[str, str, int | None, str] | None:
    """(kind, device, port, counter) of a command."""
    if port := _PORT.search(name):
        counter = canonical(port[3])
        return ("hca", port[1], int(port[2]), counter) if counter else None
    if (net := _NET.search(name)) and (counter := canonical(net[2])):
        return "netdev", net[1], None, counter
    return None


def fits(head: str, name: str) -> bool:
    return len(head) < 120 and bool(_TEXT.fullmatch(head)) and _asked(name) is not None


def read(text: str) -> Counters:
    found = _TEXT.fullmatch(text[:200])
    if found is None:
        raise ParseError("one counter: no number")
    return Counters((CounterSet("netdev", "", None, {NAMELESS: int(found[2])}, moment_in(found[1] or "")),))


def named(facts: Counters, path: str) -> Counters:
    asked = _asked(path.rpartition("/")[2])
    if asked is None:
        return Counters(())
    kind, device, port, counter = asked
    one = facts.sets[0]
    values = {counter: one.counters.get(NAMELESS)}
    return Counters((replace(one, kind=kind, name=device, port=port, counters=values),))


TOOL = Tool("one counter", "ib.counters", fits, read, quiet, named=named)
