"""mlxlink and mstlink of NVIDIA's firmware tools, as text or with --json: state, speed, bit error rates of one port.

Errors stand in status.code; values are texts such as "N/A", lanes come as {"values": [...]}.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse
from probes.intake.tools.network.perfquery import quiet

_LINE = re.compile(r"^([A-Z][A-Za-z0-9 \[\]()./-]{2,50}?)\s{0,30}: ?(\S.{0,120})$")
_DEVICE = re.compile(r"mlxlink [^\n]{0,40}-d {0,2}(\S{3,60})")
# Rates are kept as parts in 10^18, so that every counter is a whole number.
WANTED = {
    "effective physical ber": "effective_ber_e18", "raw physical ber": "raw_ber_e18", "symbol ber": "symbol_ber_e18",
    "effective physical errors": "effective_errors", "symbol errors": "symbol_errors",
    "link down counter": "link_down_events_phy", "link error recovery counter": "link_error_recovery_phy",
    "status opcode": "status_opcode", "temperature [c]": "module_celsius",
}  # fmt: skip
# Its counters are those of PPCNT, cleared by -pc, each by itself: no looks at those that perfquery and sysfs show.
# What another tool would not call so.
CUT_OUT = frozenset(WANTED) - {"temperature [c]", "link down counter"} | {"raw physical errors per lane"}


def fits(head: str, name: str) -> bool:
    if head[:1] == "{":
        return '"result"' in head and ('"Operational Info"' in head or '"Physical Counters and BER Info"' in head)
    tables = ("Troubleshooting Info", "Physical Counters and BER Info", "Module Info", "Supported Info")
    if any(table in head for table in tables) and re.search(r"^(?:Physical state|Symbol BER) {1,60}: ", head, re.M):
        return True
    return _rows_of_it(head)


def _rows_of_it(head: str) -> bool:
    """Rows that somebody cut out of its tables: two at least, and as many as other lines."""
    lines = [line for line in lines_of(head[:16_384], 400) if line.strip()]
    keys = [found[1].lower() for line in lines if (found := _LINE.match(line.strip()))]
    return sum(key in CUT_OUT for key in keys) * 2 >= max(4, len(lines))


def read(text: str) -> Counters:
    if text.lstrip()[:1] == "{":
        pairs, device = _of_json(text)
    else:
        pairs = [(found[1], found[2]) for line in lines_of(text, 400) if (found := _LINE.match(line.strip()))]
        command = _DEVICE.search(text[:4000])
        device = command[1] if command else ""
    values: dict[str, int | None] = {}
    for key, value in pairs:
        name = WANTED.get(key.strip().lower())
        words = value.split("[")[0].split()
        size = number(words[0]) if name and words else None
        if name and size is not None:
            values[name] = round(size * 10**18) if name.endswith("_e18") else int(size)
    if not values and not pairs:
        raise refuse("the tables of mlxlink", text)
    return Counters((CounterSet("hca", device, 1, values, None),))


def _of_json(text: str) -> tuple[list[tuple[str, str]], str]:
    try:
        whole = json.loads(text)
        output = whole["result"]["output"]
        pairs: list[tuple[str, str]] = []
        for table in output.values():
            for key, value in table.items() if isinstance(table, dict) else ():
                pairs.append((str(key), str(_value(value))))
        device = str(whole.get("device") or whole["result"].get("device") or "")
        return pairs[:2000], device
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise refuse("result.output of mlxlink --json", text) from None


def _value(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("values"), list):
        return value["values"][0] if value["values"] else ""
    return value


def named(facts: Counters, path: str) -> Counters:
    """The adapter by the file's name, where the text does not tell it."""
    found = re.search(r"mlx\d_\d{1,3}", path.rpartition("/")[2])
    if found is None:
        return facts
    return Counters(tuple(one if one.name else replace(one, name=found[0]) for one in facts.sets))


TOOL = Tool("mlxlink", "ib.counters", fits, read, quiet, host_in, named)
