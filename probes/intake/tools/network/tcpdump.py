"""tcpdump and tshark's text of TCP and ICMP: what is sent again and again in vain, what is refused, what is too large.

Source   tcpdump(8), OUTPUT FORMAT: `IP 10.0.0.1.5000 > 10.0.0.2.6000: Flags [S], seq 1, win 2, length 0`; numbers
         after the first packet of a connection are relative. [S] SYN, [S.] SYN and ACK, [R] RST, [.] ACK
Units    bytes
Shape    Settings: sockets as `ss` would tell them, tries to connect, packets that a router found too large
Errors   ParseError where no line is of that form
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from probes.catalog.network.net_facts import Ping, Reach, Settings, Socket
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_HEAD = re.compile(r"(?:^|\s)IP6? (\S{3,90}) > (\S{3,90}): (.{1,300})$")
_FLAGS = re.compile(r"Flags \[([A-Z.]{1,8})\]")
_SEQ = re.compile(r"\bseq (\d{1,20})(?::(\d{1,20}))?")
_ACK = re.compile(r"\back (\d{1,20})")
_LENGTH = re.compile(r"\blength (\d{1,6})\b")
_TOO_BIG = re.compile(
    r"ICMP6?,? (?:(\S{2,90}) unreachable - need to frag \(mtu (\d{2,6})\)|packet too big, mtu (\d{2,6}))"
)
_REFUSED = re.compile(
    r"ICMP6?,? (?:host )?(\S{2,90}) (?:(?:tcp|udp) port (\d{1,5}) )?unreachable(?: - admin prohibited)?"
)
MOST = 20_000  # connections
AGAIN = 2  # retransmissions of a SYN; a lost one is repeated once


@dataclass(slots=True)
class _Way:
    """One direction of a connection."""

    syns: int = 0
    answered: bool = False
    refused: str = ""
    sent: dict[tuple[int, int], int] = field(default_factory=dict)
    acked: int = 0  # of what the other side sent


def fits(head: str, name: str) -> bool:
    lines = list(lines_of(head[:16384], 400))
    found = sum(bool(_HEAD.search(line)) and ("Flags [" in line or "ICMP" in line) for line in lines)
    return found * 2 > len([line for line in lines if line.strip()])


def read(text: str) -> Settings:
    ways: dict[tuple[str, str], _Way] = {}
    pings: list[Ping] = []
    for line in lines_of(text, 600):
        head = _HEAD.search(line)
        if head is None:
            continue
        if "ICMP" in head[3]:
            if big := _TOO_BIG.search(head[3]):
                mtu = int(big[2] or big[3])
                pings.append(Ping(clean(big[1] or ""), max(1500, mtu + 1), 1, 0, mtu, True))
            elif no := _REFUSED.search(head[3]):
                _unreachable(ways, no[1], no[2] or "")
        elif flags := _FLAGS.search(head[3]):
            if (head[1], head[2]) not in ways and len(ways) >= MOST:
                continue
            _packet(ways, head[1], head[2], flags[1], head[3])
    if not ways and not pings:
        raise refuse("packets as tcpdump prints them", text)
    tries = [Reach(clean(_host(to)), _port(to), way.refused) for (_, to), way in ways.items() if way.refused]
    return Settings(sockets=tuple(_sockets(ways)), pings=tuple(pings[:1000]), reaches=tuple(tries[:1000]))


def _packet(ways: dict[tuple[str, str], _Way], source: str, target: str, flags: str, rest: str) -> None:
    mine = ways.setdefault((source, target), _Way())
    back = ways.setdefault((target, source), _Way())
    if flags == "S":
        mine.syns += 1
    elif flags == "S.":
        back.answered = True
    elif "R" in flags and back.syns and not back.answered:
        back.refused = "refused"
    if ack := _ACK.search(rest):
        mine.acked = max(mine.acked, int(ack[1])) if "S" not in flags else mine.acked
    seq, length = _SEQ.search(rest), _LENGTH.search(rest)
    if seq and seq[2] and length and int(length[1]) and len(mine.sent) < 4096:
        key = int(seq[1]), int(length[1])
        mine.sent[key] = mine.sent.get(key, 0) + 1


def _unreachable(ways: dict[tuple[str, str], _Way], host: str, port: str) -> None:
    """Told of a host: of those who tried to connect to it without an answer."""
    for (_, target), way in ways.items():
        if way.syns and not way.answered and _host(target) == host and port in ("", str(_port(target))):
            way.refused = "no route"


def _sockets(ways: dict[tuple[str, str], _Way]) -> list[Socket]:
    found = []
    for (source, target), way in ways.items():
        local, peer = f"{_host(source)}:{_port(source)}", f"{_host(target)}:{_port(target)}"
        back = ways.get((target, source))
        if way.syns > AGAIN and not way.answered and not way.refused:
            found.append(Socket("SYN-SENT", clean(local), clean(peer), retransmits=way.syns - 1))
        again = {key: count for key, count in way.sent.items() if count > AGAIN}
        acked = back.acked if back is not None else 0
        waiting = {key: count for key, count in again.items() if key[0] + key[1] > acked}
        if waiting:
            (first, length), count = max(waiting.items(), key=lambda item: item[1])
            end = max(start + size for start, size in way.sent)
            sent = Socket("ESTAB", clean(local), clean(peer), max(end - first, length + 1), mss=length)
            found.append(_tried(sent, count - 1, min(acked, first)))
    return found[:MOST]


def _tried(one: Socket, again: int, acked: int) -> Socket:
    return Socket(one.state, one.local, one.peer, one.send_queue, mss=one.mss, retransmits=again,
        backoff=again if again > AGAIN else 0, acked=acked)  # fmt: skip


def _host(end: str) -> str:
    return end.rpartition(".")[0]


def _port(end: str) -> int:
    port = end.rpartition(".")[2]
    return int(port) if port.isdecimal() and len(port) < 6 else 0


TOOL = Tool("tcpdump", "host.settings", fits, read, quiet, host_in)
