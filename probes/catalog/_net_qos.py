"""mlnx_qos, `dcb pfc show` and `dcb app`, lldptool's PFC: which priorities are without loss, and what is trusted.

Source   mlnx_qos of MLNX_OFED, dcb(8) of iproute2, lldptool(8); recorded outputs
Shape    flow_control(text) -> {interface, "" where none is named: {"pfc", "trust", "dcbx"}}
Errors   none: {} where the text tells nothing of it
"""

from __future__ import annotations

import re

from probes.core import clean, lines_of

COMMAND = re.compile(r"(?:mlnx_qos|dcb (?:pfc|app|buffer|ets)|lldptool)[^\n]{0,60}?(?:-i|dev) ?([\w.@-]{1,40})")
ENABLED = re.compile(r"^\s{1,16}enabled(?:[ \t]{1,8}([01])){8}\s*$")
_JSON = re.compile(r"\"prio[-_]pfc\"\s{0,4}:\s{0,4}\[([^\]]{1,200})\]")  # dcb -j
NAMED = re.compile(r"\b((?:en[opsx]|eth|rocep|roce|rdma|ens|bond)\w{0,20})\b")


def flow_control(text: str) -> dict[str, dict[str, object]]:
    """By interface. A line with the command that asked says of which one the rest is."""
    found: dict[str, dict[str, object]] = {}
    here: dict[str, object] | None = None
    dev = ""
    for line in lines_of(text, 400):
        if command := COMMAND.search(line):
            dev, here = clean(command[1]), None
        elif line.startswith("DCBX mode:"):
            here = found.setdefault(dev, {})
            here["dcbx"] = clean(line.partition(":")[2].strip())[:40]
        elif line.startswith("Priority trust state:"):
            here = found.setdefault(dev, here or {})
            here["trust"] = clean(line.partition(":")[2].strip())[:20]
        elif ENABLED.match(line):
            here = found.setdefault(dev, here or {})
            bits = line.split()[1:9]
            here["pfc"] = tuple(place for place, bit in enumerate(bits) if bit == "1")
        elif told := _JSON.search(line):
            bits = [bit.strip() for bit in told[1].split(",")][:8]
            found.setdefault(dev, {})["pfc"] = tuple(place for place, bit in enumerate(bits) if bit in ("true", '"on"'))
        elif "prio-pfc" in line:
            name = line.split()[0].rstrip(":")
            here = found.setdefault(clean(name) if NAMED.fullmatch(name) else dev, {})
            here["pfc"] = tuple(int(one) for one in re.findall(r"\b(\d):on\b", line.partition("prio-pfc")[2][:200]))
        elif not found and not dev and len(line) < 60 and (named := NAMED.search(line)):
            dev = named[1]
    return found
