"""Headings that tell by keys whose the lines below them are: `rank=0 host=gpu-017 pid=41000`, `# node: gpu-017`.

Shape    keyed(line) -> the node, "" where the line is no such heading
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from probes.intake.names import is_address, is_host

_HOSTS = ("host", "hostname", "node", "nodename", "node_name", "server", "machine", "pod")
_OTHERS = ("rank", "global_rank", "local_rank", "node_rank", "pid", "gpu", "device", "process", "container", "local")
_PAIR = re.compile(r"([A-Za-z_]{2,12}) {0,2}[=:] {0,2}([\w.-]{1,80})(?:[\s,;|]{1,4}|$)")
LONGEST = 200


_ROW = re.compile(r"([-*\s]{0,8})[A-Za-z][A-Za-z_ ]{1,30}( = |: )\S[^\n]{0,200}")


def in_record(lines: Sequence[str], at: int) -> bool:
    """Whether the rows before and behind have a key too, written the same way: one row of what an alert tells."""
    around = [_ROW.fullmatch(line[:250]) for line in lines[max(0, at - 1) : at + 2]]
    return (
        len(around) == 3 and len({found.groups() if found else None for found in around}) == 1 and around[0] is not None
    )


def keyed(line: str) -> str:
    """Only where nothing else is in the line: rows of logs with keys tell more than whose they are, and what is
    indented belongs to what stands above it."""
    if len(line) > LONGEST or line[:1] in (" ", "\t") or ("=" not in line and ":" not in line):
        return ""
    rest = line.strip(" \t#=*+-<>[](){}|~_")
    node, at = "", 0
    while at < len(rest):
        found = _PAIR.match(rest, at)
        if found is None or found[1].lower() not in _HOSTS + _OTHERS:
            return ""
        if found[1].lower() in _HOSTS and not node:
            node = found[2]
        at = found.end()
    return node if node and (is_host(node) or is_address(node)) else ""
