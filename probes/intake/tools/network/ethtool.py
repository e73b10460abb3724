"""`ethtool IF` and `ethtool -a IF`: `Settings for eth0:`, speed and link; `Pause parameters for eth0:`."""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Links, NetLink
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.network.ip_link import quiet

_HEAD = re.compile(r"^(Settings|Pause parameters) for ([\w.@-]{1,40}):")
_LINE = re.compile(r"^\s{0,8}([A-Z][\w /-]{1,40}):\s{1,24}(\S.{0,100})$")
_MODE = re.compile(r"\b(\d{1,7})base")


def fits(head: str, name: str) -> bool:
    return bool(re.search(_HEAD.pattern, head, re.M))


def read(text: str) -> Links:
    found: dict[str, dict[str, object]] = {}
    here: dict[str, object] | None = None
    modes, pause = False, False
    for line in lines_of(text, 300):
        if head := _HEAD.match(line):
            here, pause, modes = found.setdefault(head[2], {}), head[1] != "Settings", False
            if pause:
                here["pause"] = False
        elif here is not None:
            told = _LINE.match(line)
            if told:
                modes = told[1] == "Supported link modes"
                _take(here, told[1], told[2].strip(), pause)
            if modes:
                speeds = [int(one) / 1000 for one in _MODE.findall(line)]
                here["speed_max_gbps"] = max([*speeds, here.get("speed_max_gbps") or 0.0])  # type: ignore[type-var]
    if not found:
        raise refuse("'Settings for IF:' or 'Pause parameters for IF:'", text)
    return Links(tuple(NetLink(clean(name), **told) for name, told in found.items()))  # type: ignore[arg-type]


def _take(here: dict[str, object], key: str, value: str, pause: bool) -> None:
    if pause:
        if key in ("RX", "TX") and value.lower() == "on":
            here["pause"] = True
    elif key == "Speed" and (speed := re.match(r"(\d{1,7})\s?Mb/s", value)):
        here["speed_gbps"] = int(speed[1]) / 1000
    elif key == "Link detected":
        here["up"] = value.lower().startswith("yes")


TOOL = Tool("ethtool", "net.links", fits, read, quiet, host_in)
