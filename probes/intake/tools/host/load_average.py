"""/proc/loadavg and uptime(1): `130.01 120.30 99.10 131/2400 99`, `load average: 130.01, 120.30, 99.10`."""

from __future__ import annotations

import re

from probes.catalog.host.load_facts import Load
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse
from probes.intake.tools.host._load import load

_FILE = re.compile(
    r"^(?:/proc/loadavg:)?\s{0,4}(\d{1,6}\.\d\d) (\d{1,6}\.\d\d) (\d{1,6}\.\d\d) (\d{1,7})/(\d{1,8}) \d{1,10}\s*$", re.M
)
_UPTIME = re.compile(r"^ ?\d\d:\d\d:\d\d up [^\n]{1,80}?load averages?: ([\d.]{1,9}), ([\d.]{1,9}), ([\d.]{1,9})", re.M)


def fits(head: str, name: str) -> bool:
    return len(head) < 4096 and bool(_FILE.search(head) or _UPTIME.search(head))


def read(text: str) -> Load:
    if found := list(_FILE.finditer(text)):
        last = found[-1]
        runnable = min(int(one[4]) for one in found)
        return load(load1=number(last[1]), load5=number(last[2]), load15=number(last[3]), runnable=runnable)
    if found := list(_UPTIME.finditer(text)):
        one, five, fifteen = (number(part) for part in found[-1].groups())
        return load(load1=one, load5=five, load15=fifteen)
    raise refuse("a line of /proc/loadavg", text)


TOOL = Tool("load average", "host.load", fits, read, host=host_in)
