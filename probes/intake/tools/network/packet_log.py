"""Packets that a filter wrote to the kernel log: LOG of iptables and nftables, as ufw and firewalld use it.

    nf_conntrack: table full, dropping packet
    [UFW BLOCK] IN=ens1f0 OUT= MAC=.. SRC=10.0.0.1 DST=10.0.0.2 LEN=60 PROTO=TCP SPT=5000 DPT=41877 SYN URGP=0

Source   iptables-extensions(8), LOG; the prefix is the writer's: ufw says BLOCK, firewalld REJECT or DROP
Shape    Settings.filters: one for each port that was shut; how many were met is left out, for old lines count too
Errors   ParseError where there is none
"""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import FilterRule, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_DROPPED = re.compile(
    r"([\w\[\]: -]{0,40}(?:BLOCK|DROP|REJECT|DENY|dropped|denied|rejected)[\w\]: _-]{0,40}?)"
    r"IN=(\S{0,20}) OUT=\S{0,20} .{0,160}?SRC=(\S{2,45}) DST=(\S{2,45}) .{0,160}?PROTO=TCP .{0,40}?DPT=(\d{1,5})\b",
    re.I,
)


# nf_conntrack_core.c: no new connection is let in, of whatever port
_FULL = re.compile(r"nf_conntrack: table full, dropping packet")


def tells(head: str) -> bool:
    return _FULL.search(head) is not None or " DPT=" in head and _DROPPED.search(head) is not None


def read(text: str) -> Settings:
    found: dict[tuple[str, int], FilterRule] = {}
    for line in lines_of(text, 1000):
        if " DPT=" in line and (one := _DROPPED.search(line)) and one[2] and int(one[5]) < 65_536:
            prefix = re.sub(r"^[\d.: ]{1,40}\] ", "", one[1]).strip(" :")
            says = f"{prefix} {one[3]} to {one[4]} port {one[5]}"
            port = int(one[5])
            if len(found) < 2000:
                found.setdefault((one[4], port), FilterRule("INPUT", clean(says)[:200], "DROP", ((port, port),), "tcp"))
    if full := _FULL.search(text):
        found["", 0] = FilterRule("INPUT", full[0], "DROP")
    if not found:
        raise refuse("packets that a filter logged", text)
    return Settings(filters=tuple(found.values()), filters_told=True)


def _fits(head: str, name: str) -> bool:
    """Such lines without the kernel's times; in a kernel log they are read beside it."""
    lines = [line for line in lines_of(head[:16_384], 1000) if line.strip()]
    bare = [line for line in lines if "kernel:" not in line and (_DROPPED.match(line) or _FULL.match(line))]
    return 2 * len(bare) >= len(lines) > 0


TOOL = Tool("packet log", "host.settings", _fits, read, quiet, host_in)
