"""Connections tried by hand: nc -z, also of busybox, ncat, curl, wget and bash's /dev/tcp; ports that nmap looked at.

Source   nc(1) of OpenBSD and Debian, ncat(1), curl(1), bash(1), nmap(1), its states of ports and -oG;
         the words of errors are those of strerror(3)
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.net_facts import Reach, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

# Also in the words of other languages, as glibc translates them.
_REFUSED = r"Connection refused|Connexion refusée|Verbindungsaufbau abgelehnt|Conexión rehusada|拒绝连接|接続を拒否"
_NO_ROUTE = (
    r"No route to host|Network is unreachable|Host is unreachable|Keine Route zum Zielrechner|Das Netzwerk ist nicht"
    r"|Aucun chemin d'accès|Le réseau n'est pas accessible|No existe ninguna ruta|没有到主机的路由|网络不可达"
)
_TIMED = (
    r"(?:Connection |Operation )?[Tt]im\w{2,5}[ -]?out|Die Wartezeit für die Verbindung"
    r"|Connexion terminée par expiration|Expiré|Expiró el tiempo|连接超时|接続がタイムアウト"
)
_WHY = rf"(?P<why>{_REFUSED}|{_NO_ROUTE}|{_TIMED})"
_PEER, _PORT = r"(?P<peer>[\w.:-]{1,100}?)", r"(?P<port>\d{1,5})"
_ADDRESS = r"(?: [\[(][0-9a-fA-F:.]{2,45}[\])])?"  # of a name
_FAILED = tuple(
    re.compile(pattern + _WHY)
    for pattern in (
        rf"nc: connect to {_PEER}{_ADDRESS} port {_PORT} .{{0,20}}failed: ",
        rf"nc: connect to {_PEER}{_ADDRESS} port {_PORT} \(\w{{2,6}}\) (?=timed out: )",  # -w, of OpenBSD
        rf"curl: \(\d{{1,2}}\) .{{0,20}}[cC]onnect to {_PEER} port {_PORT}.{{0,40}}?: ",
        rf"bash: (?:line \d{{1,4}}: )?/dev/tcp/{_PEER}/{_PORT}: ",
        rf"(?:\(UNKNOWN\) )?{_PEER}{_ADDRESS} {_PORT} \([\w?-]{{1,20}}\) : ",
        rf"nc: {_PEER} \([\w.:-]{{2,60}}:{_PORT}\): ",  # busybox
        rf"wget: can't connect to remote host \({_PEER}\)(?: port {_PORT})?: ",
    )
)
_OPENED = (
    re.compile(rf"Connection to {_PEER}{_ADDRESS} {_PORT} port .{{0,30}}succeeded"),
    re.compile(rf"(?:\(UNKNOWN\) )?{_PEER}{_ADDRESS} {_PORT} \([\w?-]{{1,20}}\) open$"),
    re.compile(rf"Ncat: Connected to {_PEER}:{_PORT}\."),
    re.compile(rf"{_PEER} \([\w.:-]{{2,60}}:{_PORT}\) open$"),  # busybox
)
_TELNET = re.compile(
    r"^Trying ([\w.:-]{2,60}?)\.\.\.\n(?:Connected to ([\w.-]{1,100})|telnet: [^\n]{0,80}?: "
    rf"{_WHY.replace('(?P<why>', '(')})",
    re.M,
)
_NMAP = re.compile(r"Nmap scan report for ([\w.-]{1,100})(?: \(([0-9a-fA-F:.]{2,45})\))?")
_STATE = re.compile(r"(\d{1,5})/(?:tcp|udp)\s{1,12}(open|closed|filtered)\b")
_GREPPABLE = re.compile(r"Host: (\S{2,60}) \(([\w.-]{0,100})\)\s{1,8}Ports: (.{1,2000})$")
_GREPPED = re.compile(r"(\d{1,5})/(open|closed|filtered)/tcp/")
# What a command prints that only tells whether it worked: `timeout 5 bash -c '</dev/tcp/H/P' && echo A || echo B`,
# `nc -z H P && echo A || echo B`, or `; echo $?`. Its name holds the command.
_ASKED = re.compile(
    r"(?:dev_tcp_(?P<peer>[\w.-]{1,100}?)_(?P<port>\d{2,5})"
    r"|(?:^|_)ncat?_(?:-{1,2}[\w-]{1,20}_(?:\d{1,3}_)?){0,6}(?P<peer2>[\w.-]{2,100}?)_(?P<port2>\d{2,5}))"
    r"(?P<rest>(?:_2?_?(?:dev_null)?(?:_2_1)?){0,2}_echo(?:_[\w-]{1,40}?)?(?:_echo_[\w-]{1,40})?)$"
)
_ECHOED = re.compile(r"_echo_([\w-]{1,40}?)_echo_([\w-]{1,40})$")
_ROW = re.compile(
    rf"\W{{0,6}}{_PEER}(?::|\s{{1,20}}|\s?\|\s?)(?=(?:port[ :]{{1,2}})?\d{{2,5}}\b)(?P<rest>[^\n]{{3,300}})$"
)
_OF_ROW = re.compile(  # m4 29500 open 50000 filtered
    r"(?:port[ :]{1,2})?(?<![\d.])(\d{2,5})(?:/tcp)?[ :=|]{1,6}"
    r"(open|ok|reachable|connected|succeeded|closed|refused|filtered|blocked|dropped|unreachable"
    r"|time(?:d[ -]?)?out|no answer|no route|fail\w{0,3})(?![\w-])", re.I,
)  # fmt: skip
_STATES = {"open": "", "closed": "refused", "filtered": "timed out"}  # nmap(1)


def fits(head: str, name: str) -> bool:
    if " NCCL " in head or "[rank" in head:
        return False
    if len(head) < 200 and _echoed(head, name) is not None:
        return True
    if _TELNET.search(head[:4096]):
        return True
    shapes = (*_FAILED, *_OPENED, _NMAP, _GREPPABLE)
    if sum(bool(_rows(line)) for line in lines_of(head[:16384], 300)) > 1 or _columns(head[:16384]):
        return True
    return any(one.match(line) for line in lines_of(head[:16384], 300) for one in shapes)


def read(text: str) -> Settings:
    found: list[Reach] = []
    peer = ""  # of nmap's report
    found += _columns(text)
    for host, open_to, why in _TELNET.findall(text[:65_536]):
        found.append(Reach(clean(open_to or host).rstrip("."), 0, _kind(why)))
    for line in lines_of(text, 2000):
        one = next((told for pattern in (*_FAILED, *_OPENED) if (told := pattern.match(line))), None)
        if one is None and (report := _nmap(line, peer)):
            peer = report[0] or peer
            found += report[1]
        elif one and (port := one["port"]) and int(port) < 65_536:
            found.append(Reach(clean(one["peer"]), int(one["port"]), _kind(one.groupdict().get("why") or "")))
        else:
            found += _rows(line)
    word = text.strip()
    if not found and re.fullmatch(r"[\w -]{1,60}", word):
        found.append(Reach("", 0, word))  # what it was asked, only the command tells: see named
    if not found:
        raise refuse("what nc prints of a connection", text)
    return Settings(reaches=tuple(found[:5000]))


def _columns(text: str) -> list[Reach]:
    """A table with a column for each port: | to | 29500 | 45000 |."""
    found: list[Reach] = []
    ports: list[int] = []
    for line in lines_of(text[:65_536], 300):
        cells = [cell for cell in re.split(r"[\s|,;]{1,40}", line.strip(" |")) if cell]
        if len(cells) > 1 and all(re.fullmatch(r"\d{2,5}(?:/tcp)?", cell) for cell in cells[1:]):
            ports = [int(cell.partition("/")[0]) for cell in cells[1:]]
        elif ports and len(cells) == len(ports) + 1:
            row = " ".join(f"{port} {cell}" for port, cell in zip(ports, cells[1:], strict=True))
            some = _rows(f"{cells[0]} {row}")
            found += some if len(some) == len(ports) else []
    return found if len(found) > len(ports) else []


def _rows(line: str) -> list[Reach]:
    """A row of somebody's own table: a host, then ports with what came of each."""
    row = _ROW.match(line[:400])
    told = _OF_ROW.findall(row["rest"]) if row and _OF_ROW.match(row["rest"]) else []
    good = ("open", "ok", "reachable", "connected", "succeeded")
    kinds = {"refused": "refused", "closed": "refused", "no route": "no route", "unreachable": "no route"}
    peer = clean(row["peer"]) if row else ""
    return [
        Reach(peer, int(port), "" if how.lower() in good else kinds.get(how.lower(), "timed out"))
        for port, how in told if int(port) < 65_536
    ]  # fmt: skip


def named(facts: Settings, path: str) -> Settings:
    """The port that telnet was asked for: only its command tells it. So it is with a command that echoes a word."""
    name = path.rpartition("/")[2]
    if len(facts.reaches) == 1 and not facts.reaches[0].peer:
        told = _echoed(facts.reaches[0].why, name)
        return replace(facts, reaches=() if told is None else (told,))
    asked = re.search(r"telnet_([\w.-]{1,100}?)_(\d{2,5})(?:_|$|\.)", path)
    if asked is None or int(asked[2]) > 65_535:
        return facts
    tries = (replace(one, peer=asked[1], port=int(asked[2])) if one.port == 0 else one for one in facts.reaches)
    return replace(facts, reaches=tuple(tries))


def _echoed(text: str, name: str) -> Reach | None:
    """Whether the port answered, by the word for it or the exit status: 124 is that of timeout(1)."""
    asked, word = _ASKED.search(name), re.sub(r"[^\w-]+", "_", text.strip())
    if asked is None or not word:
        return None
    peer, port = asked["peer"] or asked["peer2"], int(asked["port"] or asked["port2"])
    words = _ECHOED.search(asked["rest"])
    if words is not None and word in words.groups():
        return Reach(peer, port, "" if word == words[1] else "timed out")
    if words is None and re.fullmatch(r"\d{1,3}", word):
        return Reach(peer, port, "" if word == "0" else "timed out" if word == "124" else "refused")
    return None


def _nmap(line: str, peer: str) -> tuple[str, list[Reach]] | None:
    """(the host that a report begins with, ports that a line tells)."""
    if host := _NMAP.match(line):
        return clean(host[1]), []
    if row := _GREPPABLE.match(line):
        ports = _GREPPED.findall(row[3])
        return "", [
            Reach(clean(row[2] or row[1]), int(port), _STATES[how]) for port, how in ports if int(port) < 65_536
        ]
    if (state := _STATE.match(line)) and peer and int(state[1]) < 65_536:
        return "", [Reach(peer, int(state[1]), _STATES[state[2]])]
    return None


def _kind(why: str) -> str:
    low = why.lower()
    if not low:
        return ""
    if re.search(_REFUSED, why, re.I):
        return "refused"
    return "no route" if re.search(_NO_ROUTE, why, re.I) else "timed out"


TOOL = Tool("reach", "host.settings", fits, read, quiet, host_in, named)
