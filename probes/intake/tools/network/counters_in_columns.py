"""One counter of many ports, a column for each, as panels of a monitoring system are exported: the first row tells
whose each column is, the rows below the values over time. Which counter it is the first row or the file's name tells.

    Time,gpu-17 mlx5_0,gpu-17 mlx5_1            "Time","{device=""mlx5_0"", instance=""gpu-17:9100""}"
    2026-11-30 02:00:00,0,3                     1796000000000,12

Shape    Counters: the first and the last look at each port
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace

from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import lines_of
from probes.intake.names import is_host
from probes.intake.tools import Tool
from probes.intake.tools._text import mentions, refuse
from probes.intake.tools.network._counter_names import canonical, short
from probes.intake.tools.network._counter_sets import KEYS, Looks, Where, device, told
from probes.intake.tools.network.perfquery import quiet
from probes.intake.when import moment_in

_VALUE = re.compile(r"\d{1,20}(?:\.\d{1,6})?")
_LABEL = re.compile(r"(\w{1,40})[=:] ?\"{0,2}([^\",;}]{1,120})")
ADAPTERS = ("mlx", "bnxt_re", "roce", "ibp", "rdmap", "hfi1", "irdma")
_QUICK = (*ADAPTERS, "swp", "eth", "ens", "enp")
# Of a port of an adapter; heads of other columns use these words for other things.
_IN_NAMES = dict.fromkeys(("tx_bytes", "xmit_bytes", "transmit_bytes", "transmitted_bytes"), "port_xmit_bytes")
_INCREASE = re.compile(r"(?:^|[_.-])(?:increase|delta|diff)[_.-]?(?:(\d{1,4})([smhd]))?")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
UNNAMED = "counter"  # until the file's name tells which
MOST_ROWS, MOST_COLUMNS = 200_000, 4_096


def fits(head: str, name: str) -> bool:
    first = head.lstrip("\ufeff").partition("\n")[0]
    if not mentions(first[:20_000], _QUICK):
        return False
    columns = _columns(first)
    known = any(counter for _, counter in columns.values()) or bool(of_name(name))
    return known and len(columns) > 1 and len(_rows(head[:65_536])) > 1


def read(text: str) -> Counters:
    rows = _rows(text.lstrip("\ufeff")[:16_777_216])
    columns = _columns(text.lstrip("\ufeff").partition("\n")[0])
    looks = Looks()
    for place, (where, counter) in columns.items():
        values = [row for row in rows if place < len(row) and _VALUE.fullmatch(row[place])]
        if len(values) > 1:
            points = [(_time(row[0]), float(row[place])) for row in values]
            looks.series(where, counter or UNNAMED, points)
    sets = looks.sets()
    if not sets:
        raise refuse("columns of ports with a counter each", text)
    return Counters(sets)


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in lines_of(text, 65_536) if line.strip()][1:MOST_ROWS]
    mark = "\t" if lines and "\t" in lines[0] else ";" if lines and ";" in lines[0] else ","
    return [[cell.strip().strip('"') for cell in line.split(mark)] for line in lines]


def _columns(first: str) -> dict[int, tuple[Where, str]]:
    mark = "\t" if "\t" in first else ";" if ";" in first and first.count(";") > first.count(",") else ","
    try:
        cells = next(csv.reader([first[:1_000_000]], delimiter=mark), [])[:MOST_COLUMNS]
    except csv.Error:
        return {}
    found = {}
    for place, cell in enumerate(cells):
        where, counter = _cell(cell) if place else (Where(), "")
        if where.name:
            found[place] = where, counter
    return found


def _cell(cell: str) -> tuple[Where, str]:
    """Whose a column is, and which counter, where it tells one."""
    where, counter = Where(), ""
    for key, value in _LABEL.findall(cell[:600]):
        where = told(key.lower(), value, where) if key.lower() in KEYS else where
    for word in re.split(r"[\s/,;{}()|\"]{1,8}", cell[:600]):
        counter = counter or canonical(word.partition("{")[0])
        if (port := device(word)) and not where.name:
            where = replace(where, kind=port[0], name=port[1], port=port[2])
        elif "=" not in word and is_host(word) and any(c.isdigit() for c in word) and not (where.node or device(word)):
            where = replace(where, node=word) if not canonical(word) else where
    return where, counter


def _time(cell: str) -> float | None:
    if re.fullmatch(r"1[5-9]\d{8}(?:\d{3})?", cell):
        return float(cell) / (1000 if len(cell) > 10 else 1)
    return moment_in(cell)


def of_name(name: str) -> str:
    """The counter that a file is called by: link_downed.csv, port_xmit_wait-11-30.csv, prom_xmit_wait_rate.json."""
    for word in re.split(r"[.\s-]{1,8}", name.rpartition("/")[2][-120:]):
        parts = [part for part in word.split("_") if part][:12]
        spans = [(first, last) for first in range(len(parts)) for last in range(first + 1, len(parts) + 1)]
        for first, last in sorted(spans, key=lambda span: span[0] - span[1]):
            part = "_".join(parts[first:last])
            if counter := _IN_NAMES.get(part) or short(part):
                return counter
    return ""


def named(facts: Counters, path: str) -> Counters:
    counter = of_name(path)
    if not counter:
        return facts
    sets = [
        replace(one, counters={counter if key == UNNAMED else key: value for key, value in one.counters.items()})
        for one in facts.sets
    ]
    if not (told := _INCREASE.search(path.rpartition("/")[2])) or any(
        UNNAMED not in one.counters for one in facts.sets
    ):
        return Counters(tuple(sets))
    # How far it rose within the time before each look: the last says it all.
    seconds = float(told[1]) * _SECONDS[told[2]] if told[1] else None
    last = {(one.node, one.kind, one.name, one.port): one for one in sets}
    return Counters(tuple(look for one in last.values() for look in _from_nothing(one, seconds)))


def _from_nothing(one: CounterSet, seconds: float | None) -> tuple[CounterSet, CounterSet]:
    at = one.at - seconds if one.at is not None and seconds else None
    before = replace(one, counters=dict.fromkeys(one.counters, 0), at=at)
    return before, one if seconds else replace(one, at=None)


TOOL = Tool("counters in columns", "ib.counters", fits, read, quiet, named=named)
