"""/proc/net/dev, one look or several in one text, with a header or cut out by grep: bytes that interfaces carried.

Source   proc_net_dev(5): eight columns of what was received, of which the first is bytes, then eight of what was sent
"""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse, time_in

_ROW = re.compile(r"^\s{0,12}([\w.@-]{1,40}):\s{0,20}(\d{1,20}(?:\s{1,20}\d{1,20}){15})\s{0,8}$")
MOST = 4096


def fits(head: str, name: str) -> bool:
    return any(_ROW.match(line) for line in lines_of(head[:16384], 400))


def read(text: str) -> Counters:
    found: list[CounterSet] = []
    at: float | None = None
    for line in lines_of(text, 400):
        if row := _ROW.match(line):
            numbers = [int(one) for one in row[2].split()]
            counters = {"rx_bytes": numbers[0], "tx_bytes": numbers[8], "rx_dropped": numbers[3]}
            found.append(CounterSet("netdev", clean(row[1]), None, counters, at))
        elif (told := time_in(line)) is not None:
            at = told
    if not found:
        raise refuse("rows of /proc/net/dev", text)
    return Counters(tuple(found[:MOST]))


def quiet(facts: Counters) -> tuple[Finding, ...]:
    """Only the growth between two looks tells, beside what the job uses."""
    return ()


TOOL = Tool("net dev", "ib.counters", fits, read, quiet, host_in)
