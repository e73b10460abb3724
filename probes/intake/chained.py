"""Outputs of several tools in one text with nothing between them: `date; chronyc tracking; chronyc sources`.

Each tool's first line is known; where the first line of another tool comes, its output begins. Two outputs of one and
the same tool are left together: those who read them tell them apart, or need both.

Shape    chained(text) -> the outputs in their order, outputs_of(item) -> the same as files; [] where it is one
Errors   none
"""

from __future__ import annotations

import re

from probes.intake.items import HEAD, Item
from probes.intake.names import stem
from probes.intake.tools._text import time_in

MOST_LINES = 20_000
BEFORE = 3  # lines before the first output that no tool wrote: a heading, an empty one. Judgement
_STARTS = {
    "chronyc tracking": r"Reference ID {1,8}: ",
    "chronyc sources": r"MS Name/IP address ",
    "ntpq": r"\s{0,8}remote\s{1,20}refid\s{1,12}st t when",
    "timedatectl": r"\s{0,20}Local time: ",
    "nvidia-smi -q": r"=+NVSMI LOG=+",
    "nvidia-smi csv": r"(?:index|timestamp|name|uuid|gpu_name|gpu_uuid|pci\.bus_id|gpu_bus_id), ?[a-z_]",
    "amd-smi": r"GPU {1,8}(?:POWER|XCP) ",
    "df": r"Filesystem {1,80}(?:Type {1,20})?(?:1K-blocks|1M-blocks|Size|Inodes|\d\w{0,4}-blocks) ",
    "free": r"\s{4,20}total {1,20}used {1,20}free ",
    "uptime": r"\s{0,2}\d\d:\d\d:\d\d up ",
    "ps": r"(?:USER|UID|F S UID|\s{0,8}PID|\s{0,8}LWP)\s{1,12}(?:PID|PPID|TTY|STAT|USER|LWP|TID|PSR|%CPU|PCPU)\b",
    "lsmod": r"Module {1,40}Size {1,12}Used by",
    "ibstat": r"CA '\w",
    "ibstatus": r"Infiniband device '",
    "ibv_devinfo": r"hca_id:\s",
    "rdma link": r"link [\w-]{1,40}/\d{1,3} state ",
    "lscpu": r"Architecture: {1,20}\w",
    "mpstat": r"Linux \d\S{1,80} \([\w.-]{1,80}\) ",
    "iptables": r"Chain [A-Z]\w{1,30} \(",
    "ss": r"(?:Netid {1,8})?State {1,20}Recv-Q {1,8}Send-Q ",
    "kubectl": r"NAME {2,80}(?:READY|STATUS|TYPE|ENDPOINTS|DATA) ",
    "docker ps": r"CONTAINER ID {1,20}",
}
_START = re.compile("|".join(f"(?P<t{n}>{pattern})" for n, pattern in enumerate(_STARTS.values())))


def chained(text: str) -> list[str]:
    """At least two outputs, of different tools."""
    lines = text.split("\n", MOST_LINES)
    if len(lines) > MOST_LINES:
        return []  # a log
    begins: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        kind = _kind(line[:200])
        if kind and (not begins or begins[-1][1] != kind):
            begins.append((number, kind))
        if not begins and number > BEFORE:
            return []
    if len({kind for _, kind in begins}) < 2 or {kind for _, kind in begins} == {"date", "ps"}:
        return []
    places = [0, *(number for number, _ in begins[1:]), len(lines)]
    return ["\n".join(lines[a:b]) + "\n" for a, b in zip(places, places[1:], strict=False)]


def outputs_of(item: Item) -> list[Item]:
    """Each as a file of its own, beside the whole; of a long file none."""
    if item.binary or b"\0" in item.head or len(item.head) == HEAD:
        return []
    found = []
    for place, part in enumerate(chained(item.head.decode("utf-8", "replace").replace("\r\n", "\n")), 1):
        inside = item.inside.parent / f"{stem(item.name)}.{place}"
        ref = f"{item.ref} ({place})"[:1000]
        found.append(Item(ref, inside, part.encode("utf-8", "replace"), mtime=item.mtime))
    return found


def _kind(line: str) -> str:
    if found := _START.match(line):
        return found.lastgroup or ""
    return "date" if line[:1].isalnum() and ":" in line and time_in(line) is not None else ""
