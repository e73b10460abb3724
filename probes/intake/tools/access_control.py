"""`lspci -vvv`: PCI bridges whose access control (ACS) sends peer-to-peer traffic up to the root."""

from __future__ import annotations

import re

from probes.catalog._net_facts import Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.limits import quiet

_DEVICE = re.compile(r"^((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (.{1,200})$")


def fits(head: str, name: str) -> bool:
    return "ACSCtl:" in head and any(_DEVICE.match(line) for line in lines_of(head, 300))


def read(text: str) -> Settings:
    """Bridges with ReqRedir+ in ACSCtl (PCI Express Base Specification, 7.7.11.3); SrcValid alone redirects nothing."""
    device, found, seen = "", [], False
    for line in lines_of(text, 400):
        if head := _DEVICE.match(line):
            device = head[1] if "bridge" in head[2].lower() else ""
        elif "ACSCtl:" in line:
            seen = True
            if device and "ReqRedir+" in line:
                found.append(clean(device))
    if not seen:
        raise refuse("lines of ACSCtl as lspci -vvv prints them", text)
    return Settings(acs=tuple(found[:1000]))


TOOL = Tool("lspci ACS", "host.settings", fits, read, quiet, host_in)
