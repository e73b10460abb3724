"""mlnx_qos, `dcb pfc show` and `dcb app`, lldptool's PFC: which priorities are without loss, and what is trusted."""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog._net_facts import Links, NetLink
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.ip_link import quiet

_COMMAND = re.compile(r"(?:mlnx_qos|dcb (?:pfc|app|buffer|ets)|lldptool)[^\n]{0,60}?(?:-i|dev) ?([\w.@-]{1,40})")
_ENABLED = re.compile(r"^\s{1,16}enabled(?:[ \t]{1,8}([01])){8}\s*$")
_NAMED = re.compile(r"\b((?:en[opsx]|eth|rocep|roce|rdma|ens|bond)\w{0,20})\b")


def fits(head: str, name: str) -> bool:
    known = "PFC configuration:" in head or "Priority trust state:" in head or "prio-pfc" in head
    return known or any(_ENABLED.match(line) for line in lines_of(head[:8192], 200))


def read(text: str) -> Links:
    found: dict[str, dict[str, object]] = {}
    here: dict[str, object] | None = None
    dev = ""
    for line in lines_of(text, 400):
        if command := _COMMAND.search(line):
            dev, here = clean(command[1]), None
        elif line.startswith("DCBX mode:"):
            here = found.setdefault(dev, {})
            here["dcbx"] = clean(line.partition(":")[2].strip())[:40]
        elif line.startswith("Priority trust state:"):
            here = found.setdefault(dev, here or {})
            here["trust"] = clean(line.partition(":")[2].strip())[:20]
        elif _ENABLED.match(line):
            here = found.setdefault(dev, here or {})
            bits = line.split()[1:9]
            here["pfc"] = tuple(place for place, bit in enumerate(bits) if bit == "1")
        elif "prio-pfc" in line:
            name = line.split()[0].rstrip(":")
            here = found.setdefault(clean(name) if _NAMED.fullmatch(name) else dev, {})
            here["pfc"] = tuple(int(one) for one in re.findall(r"\b(\d):on\b", line.partition("prio-pfc")[2][:200]))
        elif not found and not dev and len(line) < 60 and (named := _NAMED.search(line)):
            dev = named[1]
    if not found:
        raise refuse("'PFC configuration:' as mlnx_qos prints it, or prio-pfc as dcb does", text)
    return Links(tuple(NetLink(name, **told) for name, told in found.items()))  # type: ignore[arg-type]


def named(facts: Links, path: str) -> Links:
    """The interface by the file's name, where the text does not tell it."""
    found = _NAMED.search(path.rpartition("/")[2].replace("_", " ").replace("-", " ").replace(".", " "))
    if found is None:
        return facts
    return Links(tuple(one if one.name else replace(one, name=found[1]) for one in facts.links))


TOOL = Tool("mlnx_qos", "net.links", fits, read, quiet, host_in, named)
