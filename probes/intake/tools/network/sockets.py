"""ss and netstat: TCP sockets with state, queues and both ends; of ss -i also how it sends: mss, backoff, retrans."""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.net_facts import Settings, Socket
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_SS = re.compile(
    r"^(?:(?:tcp|udp|u_str|nl)\s{1,8})?(ESTAB|LISTEN|SYN-SENT|SYN-RECV|TIME-WAIT|CLOSE-WAIT|FIN-WAIT-[12]|LAST-ACK|CLOSING)"
    r"\s{1,12}(\d{1,10})\s{1,12}(\d{1,10})\s{1,60}(\S{1,80}:\S{1,8})\s{1,60}(\S{1,80}:\S{1,8})\s{0,60}(.{0,200})$"
)
_NETSTAT = re.compile(
    r"^tcp6?\s{1,8}(\d{1,10})\s{1,12}(\d{1,10})\s{1,12}(\S{1,80}:\S{1,8})\s{1,24}(\S{1,80}:\S{1,8})\s{1,16}"
    r"([A-Z_0-9]{4,12})\s{0,16}(.{0,100})$"
)
_STATELESS = re.compile(  # the state was asked for, so there is no column of it: ss -tn state syn-sent
    r"^(\d{1,10})\s{1,12}(\d{1,10})\s{1,60}(\S{1,80}:\d{1,5})\s{1,60}(\S{1,80}:\d{1,5})\s{0,60}(.{0,200})$"
)
_ASKED = re.compile(r"(?<![a-z])state[_ =]{1,2}(syn-sent|established|listening|time-wait|close-wait)(?![a-z])", re.I)
_DETAIL = re.compile(r"(?<![\w])(mss|backoff|bytes_acked):(\d{1,15})(?!\d)")
_AGAIN = re.compile(r" retrans:\d{1,9}/(\d{1,9})")
_TIMER = re.compile(r"timer:\((?:on|persist),[\w.]{1,16},(\d{1,4})\)")
_STATES = {"ESTABLISHED": "ESTAB", "SYN_SENT": "SYN-SENT", "SYN_RECV": "SYN-RECV", "CLOSE_WAIT": "CLOSE-WAIT",
    "TIME_WAIT": "TIME-WAIT"}  # fmt: skip


def fits(head: str, name: str) -> bool:
    if _ASKED.search(name) and any(_STATELESS.match(line.rstrip()) for line in list(lines_of(head, 1000))[:20]):
        return True
    begins = re.search(r"^(?:Netid\s+)?State\s+Recv-Q\s+Send-Q|^Active Internet connections", head, re.M)
    rows = sum(bool(_SS.match(line.rstrip())) for line in list(lines_of(head, 1000))[:20])
    marked = (
        " cwnd:" in head or "users:((" in head or re.match(r"(?:ss|netstat)(?![a-z])", name)
    )  # a header that grep took away
    return bool(begins) or rows > 2 or (rows > 0 and bool(marked))


def read(text: str) -> Settings:
    found: list[Socket] = []
    known = False  # whether the line before was a socket that was understood
    for line in lines_of(text, 2000):
        known = known and line[:1] in "\t "
        if one := _SS.match(line.rstrip()[:400]):
            found.append(Socket(one[1], clean(one[4]), clean(one[5]), int(one[3]), clean(one[6].strip())[:200]))
            found[-1] = _detailed(found[-1], line[one.end(5) :])
            known = True
        elif known and " cwnd:" in line:
            found[-1] = _detailed(found[-1], line)
        elif one := _STATELESS.match(line.rstrip()[:400]):
            found.append(Socket("", clean(one[3]), clean(one[4]), int(one[2]), clean(one[5].strip())))
        elif one := _NETSTAT.match(line):
            state = _STATES.get(one[5], one[5])
            found.append(Socket(state, clean(one[3]), clean(one[4]), int(one[2]), clean(one[6].strip())))
    if not found and not fits(text[:65536], ""):
        raise refuse("sockets as ss prints them", text)
    return Settings(sockets=tuple(found[:20_000]))


def named(facts: Settings, path: str) -> Settings:
    """The state that the command asked for, where no column tells it."""
    asked = _ASKED.search(path.rpartition("/")[2])
    state = {"ESTABLISHED": "ESTAB", "LISTENING": "LISTEN"}.get(asked[1].upper(), asked[1].upper()) if asked else ""
    sockets = (one if one.state else replace(one, state=state) for one in facts.sockets)
    return replace(facts, sockets=tuple(one for one in sockets if one.state))


def _detailed(socket: Socket, line: str) -> Socket:
    """What ss -i tells of it, in the same line with -O, else in the next one."""
    if timer := _TIMER.search(line):
        socket = replace(socket, tries=int(timer[1]), probes_window="timer:(persist" in line)
    told = {key: int(value) for key, value in _DETAIL.findall(line)}
    if not told:
        return socket
    again = _AGAIN.search(line)
    sent = re.search(r" bytes_retrans:(\d{1,15})", line)
    times = int(again[1]) if again else int(sent[1]) // told["mss"] if sent and told.get("mss") else 0
    return replace(
        socket,
        probes_window="timer:(persist" in socket.process,
        mss=told.get("mss"),
        backoff=told.get("backoff", 0),
        retransmits=times,
        acked=told.get("bytes_acked"),
    )


TOOL = Tool("sockets", "host.settings", fits, read, quiet, host_in, named)
