"""Which port of which switch an interface is cabled to, as the switch tells it by LLDP: lldpctl and lldpcli of lldpd.

    lldp.ens2f0np0.chassis.name=leaf-7a            lldpctl -f keyvalue
    Interface:    ens2f0np0, via: LLDP, ...        lldpctl, lldpcli show neighbors [summary]
        SysName:      leaf-7a
        PortID:       ifname Ethernet1/1
    {"lldp": {"interface": [{"ens2f0np0": {"chassis": {"leaf-7a": {..}}, "port": {"id": {..}}}}]}}      -f json

Shape    Counters: a set without counters for each interface, with the other end of its cable as its peer
Source   lldpctl(8), lldpcli(8) of lldpd 1.0
Errors   ParseError where no interface has a neighbour with a name
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from probes.catalog.network.net_facts import Counters, CounterSet
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.network.perfquery import quiet

MOST = 4096
_KEY = re.compile(r"lldp\.([\w.@-]{1,40}?)\.(chassis\.name|port\.(?:ifname|local|descr))=(\S[^\n]{0,119})$")
_FACE = re.compile(r"\s{0,8}Interface: {1,12}([\w.@-]{1,40})(?:, via: |\s{0,8}$)")
_FIELD = re.compile(r"\s{0,12}(SysName|PortID|PortDescr): {1,20}(?:(?:ifname|local|mac) )?(\S.{0,119}?)\s{0,8}$")
_PORT = re.compile(r"(?:swp|[Ee]th(?:ernet)?|[xe]t-|IB)?[-/]?(\d{1,3})(?:[/s:]\d{1,3}){0,2}$")


def fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] == "{":
        return '"lldp"' in head[:400] and '"interface"' in head[:2000]
    lines = [line for line in lines_of(head[:16_384], 200) if line.strip()][:200]
    if any(_KEY.match(line) for line in lines):
        return True
    return any(_FACE.match(line) for line in lines) and any("SysName:" in line for line in lines)


def read(text: str) -> Counters:
    told: dict[str, dict[str, str]] = {}
    for face, key, value in _of_json(text) if text.lstrip()[:1] == "{" else _of_lines(text):
        if face in told or len(told) < MOST:
            told.setdefault(face, {}).setdefault(key, clean(value))
    sets = [
        CounterSet("netdev", face, None, {}, None, peer=f"{switch} port {_number(one)}")
        for face, one in told.items()
        if (switch := one.get("name"))
    ]
    if not sets:
        raise refuse("interfaces and their neighbours as LLDP tells them", text)
    return Counters(tuple(sets))


def _of_lines(text: str) -> Iterator[tuple[str, str, str]]:
    face = ""
    for line in lines_of(text, 200):
        if found := _KEY.match(line):
            yield found[1], found[2].rpartition(".")[2] if found[2] != "chassis.name" else "name", found[3]
        elif found := _FACE.match(line):
            face = found[1]
        elif face and (found := _FIELD.match(line)):
            yield face, {"SysName": "name", "PortID": "ifname", "PortDescr": "descr"}[found[1]], found[2]


def _of_json(text: str) -> Iterator[tuple[str, str, str]]:
    try:
        faces: Any = json.loads(text)["lldp"]["interface"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise refuse("lldpctl -f json", text) from None
    for one in faces if isinstance(faces, list) else [faces]:
        for face, said in one.items() if isinstance(one, dict) else ():
            chassis, port = (said.get(key) if isinstance(said, dict) else None for key in ("chassis", "port"))
            if isinstance(chassis, dict) and chassis:
                yield str(face), "name", str(next(iter(chassis)))
            if isinstance(port, dict) and isinstance(port.get("id"), dict):
                yield str(face), "ifname", str(port["id"].get("value", ""))


def _number(one: dict[str, str]) -> int:
    found = _PORT.match(one.get("ifname") or one.get("local") or one.get("descr") or "")
    return int(found[1]) if found else 0


TOOL = Tool("lldp", "ib.counters", fits, read, quiet, host_in)
