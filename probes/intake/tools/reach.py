"""Connections tried by hand: nc -z, ncat, curl and bash's /dev/tcp.

Source   nc(1) of OpenBSD and Debian, ncat(1), curl(1), bash(1); the words of errors are those of strerror(3)
"""

from __future__ import annotations

import re

from probes.catalog._net_facts import Reach, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.limits import quiet

_WHY = (
    r"(?P<why>No route to host|Network is unreachable|Host is unreachable|Connection refused"
    r"|(?:Connection |Operation )?[Tt]im\w{2,5}[ -]?out)"
)
_PEER, _PORT = r"(?P<peer>[\w.:-]{1,100}?)", r"(?P<port>\d{1,5})"
_ADDRESS = r"(?: [\[(][0-9a-fA-F:.]{2,45}[\])])?"  # of a name
_FAILED = tuple(
    re.compile(pattern + _WHY)
    for pattern in (
        rf"nc: connect to {_PEER}{_ADDRESS} port {_PORT} .{{0,20}}failed: ",
        rf"curl: \(\d{{1,2}}\) .{{0,20}}[cC]onnect to {_PEER} port {_PORT}.{{0,40}}?: ",
        rf"bash: (?:line \d{{1,4}}: )?/dev/tcp/{_PEER}/{_PORT}: ",
        rf"(?:\(UNKNOWN\) )?{_PEER}{_ADDRESS} {_PORT} \([\w?-]{{1,20}}\) : ",
    )
)
_OPENED = (
    re.compile(rf"Connection to {_PEER}{_ADDRESS} {_PORT} port .{{0,30}}succeeded"),
    re.compile(rf"(?:\(UNKNOWN\) )?{_PEER}{_ADDRESS} {_PORT} \([\w?-]{{1,20}}\) open$"),
    re.compile(rf"Ncat: Connected to {_PEER}:{_PORT}\."),
)


def fits(head: str, name: str) -> bool:
    if " NCCL " in head or "[rank" in head:
        return False
    return any(one.match(line) for line in lines_of(head[:16384], 300) for one in (*_FAILED, *_OPENED))


def read(text: str) -> Settings:
    found: list[Reach] = []
    for line in lines_of(text, 300):
        one = next((told for pattern in (*_FAILED, *_OPENED) if (told := pattern.match(line))), None)
        if one and int(one["port"]) < 65_536:
            found.append(Reach(clean(one["peer"]), int(one["port"]), _kind(one.groupdict().get("why") or "")))
    if not found:
        raise refuse("what nc prints of a connection", text)
    return Settings(reaches=tuple(found[:5000]))


def _kind(why: str) -> str:
    low = why.lower()
    if not low:
        return ""
    return "refused" if "refused" in low else "no route" if "route" in low or "unreachable" in low else "timed out"


TOOL = Tool("reach", "host.settings", fits, read, quiet, host_in)
