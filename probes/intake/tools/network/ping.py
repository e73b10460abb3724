"""ping of iputils with a size and `-M do`, several runs in one file too; and tracepath: whether large packets arrive.

Also what loops print of who reaches whom: `cn01 > cn02 8972 DF: 100% packet loss`. The number is the payload.

Source: ping(8), tracepath(8). `8972(9000) bytes of data` is the payload and the packet with its headers.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.net_facts import Ping, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_BEGIN = re.compile(
    r"^PING (\S{1,100})(?: \(([0-9a-fA-F:.]{2,45})\))?.{0,60}? (\d{1,6})(?:\((\d{1,6})\))? (?:data )?bytes"
)
_LOCAL = re.compile(r"^ping: (?:local error|sendmsg).{0,40}(?i:message too long)(?:, mtu[=:] ?(\d{1,6}))?")
_ROUTER = re.compile(
    r"^From \S.{0,120}(?:Frag needed and DF set|Packet too big)[ (:]{0,3}(?:\(?mtu ?= ?(\d{1,6}))?", re.I
)
_ECHO = re.compile(r"^(\d{1,6}) bytes from (?:\S{1,100} \()?([\w.:-]{2,100}?)\)?: (?:icmp_)?seq=\d")  # payload + 8
_OF = re.compile(r"^--- (\S{1,100}) ping statistics ---")
_ASKED = re.compile(r"(?:^|[/ _])ping6?_[\w.-]{0,200}?-s_?(\d{1,6})(?=_|\.|$)")  # the command, as a file's name
_END = re.compile(r"^(\d{1,9}) packets transmitted, (\d{1,9})(?: packets)? received")
_PAIR = re.compile(
    r"^\s{0,8}([A-Za-z0-9][\w.-]{0,62}) {0,3}(?:->|=>|-->|>|\u2192|to) {0,3}([A-Za-z0-9][\w.-]{0,62})[ :,(]"
    r"[^\n%]{0,80}?\b(\d{2,5})\b[^\n%]{0,60}?[ :=](\d{1,3})(?:\.\d{1,4})?% (?:packet )?loss"
)
_WENT = re.compile(  # kx1->kx3 FAIL (message too long, mtu=1500); the size stands in the row or above
    r"^\s{0,8}([A-Za-z0-9][\w.-]{0,62}) {0,3}(?:->|=>|-->|\u2192|to) {0,3}([A-Za-z0-9][\w.-]{0,62})"
    r"[ :,(]{1,6}([^\n]{0,120}?)"
    r"\b(ok|pass(?:ed)?|good|fail(?:ed)?|lost|too (?:long|big)|(?:no|0) (?:reply|answer))(?![\w-])([^\n]{0,120})$",
    re.I,
)
_SIZE = re.compile(r"(?:(?<![\w-])-s ?|size[ =:]{1,3}|payload[ =:]{1,3})(\d{3,5})(?!\d)")
_TOLD_MTU = re.compile(r"\bp?mtu[ =:]{1,3}(\d{3,5})\b", re.I)
_RESUME = re.compile(r"^\s{1,12}Resume: pmtu (\d{1,6})")
_LESS = re.compile(r"^\s{0,4}\d{1,3}\??:\s{1,4}\S.{0,120}?\bpmtu (\d{1,6})")  # a hop that told it
_LOCALHOST = re.compile(r"^\s{0,4}1\?: \[LOCALHOST\]\s{1,60}pmtu (\d{1,6})")


def fits(head: str, name: str) -> bool:
    lines = list(lines_of(head[:16384], 300))
    pinged = any(_BEGIN.match(line) for line in lines) and any(
        _END.match(line) or _LOCAL.match(line) or _ROUTER.match(line) for line in lines
    )
    pinged = pinged or (bool(_ASKED.search(name)) and any(_ECHO.match(line) or _OF.match(line) for line in lines))
    own = (
        _SIZE.search(head[:16384]) and "ping" in f"{head[:16384]}{name}" and sum(map(bool, map(_WENT.match, lines))) > 1
    )
    return bool(pinged or own) or any(_LOCALHOST.match(line) or _PAIR.match(line) for line in lines)


def read(text: str) -> Settings:
    found: list[Ping] = []
    bare: dict[tuple[str, int], int] = {}  # replies without what ping prints before and after them
    peer, size, smaller, router, whole, less = "", 0, None, False, 0, 0
    traced = "[LOCALHOST]" in text
    above = int(asked[1]) if (asked := _SIZE.search(text[:16384])) else 0
    for line in lines_of(text, 300):
        if one := _BEGIN.match(line):
            peer, size = one[2] or one[1], int(one[4] or int(one[3]) + 28)
            smaller, router = None, False
        elif one := _ROUTER.match(line):
            smaller, router = int(one[1]) if one[1] else None, True
        elif one := _LOCAL.match(line):
            smaller = int(one[1]) if one[1] else smaller
        elif (one := _ECHO.match(line)) and not size:
            key = clean(one[2]), int(one[1]) + 20
            bare[key] = bare.get(key, 0) + 1
        elif one := _OF.match(line):
            peer = peer if size else one[1]
        elif (one := _END.match(line)) and (size or peer):
            size = size or next((known for at, known in bare if at == peer), 0)
            bare.clear()
            found.append(Ping(clean(peer), size, int(one[1]), int(one[2]), smaller, router))
            size, peer = 0, ""
        elif one := _PAIR.match(line):
            found.append(Ping(clean(one[2]), int(one[3]) + 28, 100, 100 - min(int(one[4]), 100), source=clean(one[1])))
        elif above and (one := _WENT.match(line)):
            own, told = _SIZE.search(line), _TOLD_MTU.search(one[5])
            came = int(one[4].lower() in ("ok", "pass", "passed", "good"))
            payload = int(own[1]) if own else above
            smaller = int(told[1]) if told and not came else None
            found.append(Ping(clean(one[2]), payload + 28, 10, 10 * came, smaller, source=clean(one[1])))
        elif one := _LOCALHOST.match(line):
            found += _traced(whole, less)
            whole = less = int(one[1])
        elif whole and (one := _LESS.match(line)):
            less = min(less, int(one[1]))
        elif (one := _RESUME.match(line)) and whole:
            less = int(one[1])
            found.append(Ping("", whole, 1, int(less >= whole), less if less < whole else None, less < whole))
            whole = less = 0
    found += _traced(whole, less)
    found += [Ping(at, known, count, count) for (at, known), count in bare.items()]
    if not found and not traced:
        raise refuse("what ping or tracepath prints", text)
    return Settings(pings=tuple(found[:5000]))


def _traced(whole: int, less: int) -> list[Ping]:
    """A run of tracepath that somebody stopped: only what a router told counts."""
    return [Ping("", whole, 1, 0, less, True)] if less < whole else []


def named(facts: Settings, path: str) -> Settings:
    """The size that the command asked for, where the output no longer tells it."""
    asked = _ASKED.search(path)
    known = (replace(one, size=one.size or (int(asked[1]) + 28 if asked else 0)) for one in facts.pings)
    return replace(facts, pings=tuple(one for one in known if one.size))


TOOL = Tool("ping", "host.settings", fits, read, quiet, host_in, named)
