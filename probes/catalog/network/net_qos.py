"""mlnx_qos, dcb and lldptool's PFC: which priorities are without loss, what is trusted, which buffers they have.

Source   mlnx_qos of MLNX_OFED, lldptool(8); dcb-pfc(8), -app, -apptrust, -buffer, -dcbx and -ets of iproute2, text and
         JSON (-j); recorded outputs, and the forms of its source
Units    bytes of buffers (dcb prints 10Kb for 10240, tc(8)), percent of bandwidth
Shape    flow_control(text) -> {interface, "" where none is named: {"pfc", "trust", "dcbx", "buffer_of", "buffer_bytes",
         "class_of", "class_share"}}, each only where it was told
Errors   none: {} where the text tells nothing of it
"""

from __future__ import annotations

import re

from probes.core import clean, lines_of

COMMAND = re.compile(
    r"(?:mlnx_qos|dcb (?:-\w{1,4} ){0,3}(?:pfc|app|apptrust|buffer|dcbx|ets)\b|lldptool)"
    r"[^\n]{0,60}?(?:-i|dev) ?([\w.@-]{1,40})"
)
ENABLED = re.compile(r"^\s{1,16}enabled(?:[ \t]{1,8}([01])){8}\s*$")
_BUFFER = re.compile(r"^\s{1,16}buffer(?:[ \t]{1,8}[0-7]){8}\s*$")
_SIZES = re.compile(r"^Receive buffer size \(bytes\): ((?:\d{1,9},?){1,8})")
_JSON = re.compile(r"\"prio[-_]pfc\"\s{0,4}:\s{0,4}\[([^\]]{1,200})\]")  # dcb -j
NAMED = re.compile(r"\b((?:en[opsx]|eth|rocep|roce|rdma|ens|bond)\w{0,20})\b")
# Arrays of dcb, `prio-buffer 0:0 1:0 ...`, as JSON `"prio_buffer":[0,0,...]`.
_ARRAYS = {"prio-buffer": "buffer_of", "buffer-size": "buffer_bytes", "prio-tc": "class_of", "tc-bw": "class_share"}
_ARRAY = re.compile(r"(?:^|\s)(prio-buffer|buffer-size|prio-tc|tc-bw)((?: \d:[\d.]{1,12}(?:[KMG]?i?b)?){1,8})(?!\S)")
_ARRAY_JSON = re.compile(r"\"(prio_buffer|buffer_size|prio_tc|tc_bw)\"\s{0,4}:\s{0,4}\[([\d,\s]{1,200})\]")
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
_ORDER = re.compile(r"^order:((?: (?:ethtype|stream-port|dgram-port|port|dscp|pcp)){0,6})\s*$")
_ORDER_JSON = re.compile(r"\"order\"\s{0,4}:\s{0,4}\[([^\]\n]{0,100})\]")
_DSCP = re.compile(r"(?:^|\s)dscp-prio \S{1,5}:[0-7](?!\S)|\"dscp_prio\"\s{0,4}:\s{0,4}\[\s{0,4}\[")
_DCBX = re.compile(r"^(?:(?:host|lld-managed|cee|ieee|static)(?: |$)){1,5}\s*$")
_DCBX_JSON = re.compile(r"^\s{0,4}\{(?:\"(?:host|lld_managed|cee|ieee|static)\"\s{0,2}:\s{0,2}true,?\s{0,2}){1,5}\}")
OF_DCB = re.compile(
    r"(?:^|\s)(?:dscp-prio \S{1,5}:[0-7]|(?:prio-buffer|prio-tc|tc-bw|buffer-size) 0:\d)"
    r"|\"(?:prio_buffer|prio_tc)\"",
    re.M,
)


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
        elif _BUFFER.match(line):
            found.setdefault(dev, {})["buffer_of"] = tuple(map(int, line.split()[1:]))
        elif sizes := _SIZES.match(line):
            found.setdefault(dev, {})["buffer_bytes"] = tuple(int(one) for one in sizes[1].split(",") if one)
        elif told := _JSON.search(line):
            bits = [bit.strip() for bit in told[1].split(",")][:8]
            found.setdefault(dev, {})["pfc"] = tuple(place for place, bit in enumerate(bits) if bit in ("true", '"on"'))
        elif "prio-pfc" in line:
            name = line.split()[0].rstrip(":")
            here = found.setdefault(clean(name) if NAMED.fullmatch(name) else dev, {})
            here["pfc"] = tuple(int(one) for one in re.findall(r"\b(\d):on\b", line.partition("prio-pfc")[2][:200]))
        elif of_dcb := _of_dcb(line):
            mine = found.setdefault(dev, {})
            if "order" in of_dcb:  # what is trusted first; entries of the table alone say less
                mine["trust"] = of_dcb.pop("order")
            mine.update({key: value for key, value in of_dcb.items() if key != "trust" or not mine.get("trust")})
        elif not found and not dev and len(line) < 60 and (named := NAMED.search(line)):
            dev = named[1]
    return found


def _of_dcb(line: str) -> dict[str, object]:
    """What a line of dcb other than that of PFC tells."""
    found: dict[str, object] = {}
    for key, values in _ARRAY.findall(line):
        found[_ARRAYS[key]] = tuple(_bytes(one.partition(":")[2]) for one in values.split())
    for key, values in _ARRAY_JSON.findall(line):
        found[_ARRAYS[key.replace("_", "-")]] = tuple(int(one) for one in values.split(",") if one.strip())
    if _DSCP.search(line):
        found["trust"] = "dscp"
    if order := _ORDER.match(line) or _ORDER_JSON.search(line):
        found["order"] = next(iter(re.findall(r"dscp|pcp", order[1])), "port")
    if _DCBX.match(line) or _DCBX_JSON.match(line):  # in mlnx_qos's words
        found["dcbx"] = "OS controlled" if "host" in line else "Firmware controlled"
    return found


def _bytes(text: str) -> int:
    value, unit = re.match(r"([\d.]+)([KMG]?)", text).groups()  # type: ignore[union-attr]
    return round(float(value) * _UNITS.get(unit, 1)) if value.count(".") < 2 else 0
