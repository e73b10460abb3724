"""Alerts on ports of adapters, as mail and chats bring them: Alertmanager (also its JSON), Grafana, Zabbix, Nagios;
and verdicts of health checks on them.

    [FIRING:1] InfinibandPortDown gpu-33 (mlx5_2 critical)          - device = mlx5_2   - instance = gpu-33:9100
    Problem started at 02:41:22 on 2026.11.30 / Problem name: Interface ib3(mlx5_3): Link down / Host: gpu-12
    ** PROBLEM Service Alert: gpu-12/IB mlx5_3 is CRITICAL **       Info: port mlx5_3/1 is down
    ERROR: nhc: Health check failed:  check_hw_ib:  No IB port mlx5_2:1 is ACTIVE (LinkUp 400 Gb/sec).
    7 LinkUp ports are found, but expected 8 port(s) with rate >= 400 Gb/sec; ... changed to Polling: mlx5_3     gpud
    IBPortDown   True   InfinibandPortDown   port mlx5_5/1 state Down        conditions of a node of Kubernetes

Units    none
Shape    FabricEvents: what was told of which port; a resolved alert is the link that came back
Errors   ParseError where no alert is of a port of an adapter
Source   Alertmanager: default.tmpl, API v2; Zabbix manual, default problem and recovery messages; Nagios sample-config;
         LBNL's NHC lbnl_hw.nhc; gpud components/infiniband
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from probes.catalog.network.fabric_events import End, FabricEvent, FabricEvents
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.network._counter_sets import HOST_KEYS, KEYS, Where, device, seen_in, told
from probes.intake.tools.network.fabric_events import quiet

_BEGINS = re.compile(
    r"\[(?P<alert>FIRING|RESOLVED|Alerting|OK|Triggered|Recovered|No Data)\b"
    r"|\b(?P<zabbix>Problem started|Problem (?:has been )?resolved|Resolved) (?:at|in) "
    r"|(?:IB|Infini[Bb]and)PortDown\s{1,40}(?P<condition>True|False|Unknown)\b|check_hw_ib|LinkUp ports are found"
    r"|\*{2} ?(?P<nagios>PROBLEM|RECOVERY) \w{4,8} Alert|\balertname\b",
    re.I,
)
_ABOUT = re.compile(r"^(?:NodeName=|Name:\s{1,24})([a-zA-Z][\w.-]{1,62})")  # scontrol show node, kubectl describe node
_CHECKED = re.compile(r"No IB port[^\n]{0,60} is ACTIVE|LinkUp ports are found, but expected", re.I)
_BRACKETED = re.compile(r"^\d{8} [\d:]{8} \[([a-zA-Z][\w.-]{1,62})\]")  # NHC's log
_OVER = re.compile(r"False|resolved|\bOK\b|recover", re.I)
_WHAT = (
    ("flaps", re.compile(r"flap|link_?downed", re.I)),
    ("errors", re.compile(r"\bBER\b|symbol[ _]?err|bit[ _]?error", re.I)),
    ("congested", re.compile(r"congest|xmit[ _]?wait", re.I)),
    ("slow", re.compile(r"(?:link|port)[^\n]{0,40}(?:speed|width|rate)[^\n]{0,40}(?:low|degrad|reduc|below)", re.I)),
    ("down", re.compile(r"(?:link|port|interface|infiniband|\bIB\b|carrier|state)[^\n]{0,60}?"
                        r"(?:[dD]own(?![a-z])|DOWN\b|inactive|not active)", re.I)),
)  # fmt: skip
_FIELD = re.compile(r"[\W_]{0,4}(\w{2,24})\s{0,3}[:=]\s{0,3}[\"'`]?([\w.:/@-]{1,120})[\"'`]?,?\s{0,4}")
_STAMP = re.compile(r"(20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d)|(\d\d:\d\d:\d\d) on (20\d\d)\.(\d\d)\.(\d\d)")
_RDMA = re.compile(r"(?:ib|hsn)\d{1,2}")  # interfaces that only such adapters have
MOST = 20_000


def fits(head: str, name: str) -> bool:
    if not _BEGINS.search(head) or " NCCL " in head:
        return False
    return bool(_events(head))


def read(text: str) -> FabricEvents:
    events = _events(text[:4_194_304])
    if not events:
        raise refuse("an alert on a port of an adapter", text)
    return FabricEvents("alerts", tuple(events))


def _events(text: str) -> list[FabricEvent]:
    found: list[FabricEvent] = []
    last: dict[End, str] = {}
    for over, lines in _alerts(text):
        event = _event(over, lines)
        if event is None and over and found and lines and _BEGINS.search(lines[0]):
            event = FabricEvent("up", found[-1].ends, _stamp("\n".join(lines)), clean(lines[0].strip())[:300])
        if event is None or last.get(event.ends[0]) == event.what:
            continue  # an alert is repeated while it lasts, and its title tells what its labels tell
        last[event.ends[0]] = event.what
        found.append(event)
    return found[:MOST]


def _alerts(text: str) -> Iterator[tuple[bool, list[str]]]:
    """(whether it is over, its lines) of each."""
    if text.lstrip()[:1] in "[{" and '"labels"' in text:
        yield from _of_json(text)
        return
    over, lines, about = False, list[str](), ""
    for line in lines_of(text, 1000):
        about = found[1] if (found := _ABOUT.match(line) or _BRACKETED.match(line)) else about
        if (begins := _BEGINS.search(line)) is not None:
            yield over, lines
            lines = [f"host={about}"] if about else []
            if begins.lastgroup:
                over = bool(_OVER.search(begins[begins.lastgroup]))
        if len(lines) < 60:
            lines.append(line)
    yield over, lines


def _of_json(text: str) -> Iterator[tuple[bool, list[str]]]:
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        return
    rows = said.get("alerts", said.get("data", [said])) if isinstance(said, dict) else said
    rows = rows.get("alerts", []) if isinstance(rows, dict) else rows
    for row in rows[:MOST] if isinstance(rows, list) else ():
        labels = row.get("labels") if isinstance(row, dict) else None
        if not isinstance(labels, dict):
            continue
        notes = row.get("annotations")
        fields = [f"{key}={value}" for key, value in list(labels.items())[:60]]
        fields += [str(value)[:400] for value in (notes.values() if isinstance(notes, dict) else ())][:8]
        yield False, [str(row.get("startsAt", "")), *fields]
        if row.get("status") == "resolved":
            yield True, [str(row.get("endsAt", "")), *fields]


def _event(over: bool, lines: list[str]) -> FabricEvent | None:
    text = "\n".join(lines)
    checked = bool(_CHECKED.search(text))
    what = "down" if checked else next((what for what, pattern in _WHAT if pattern.search(text)), "")
    if not what or (over and what != "down"):
        return None
    node, hca, port = "", "", None
    for line in lines:
        field = _FIELD.fullmatch(line)
        key = field[1].lower() if field else ""
        where = told(key, field[2], Where()) if field and key in KEYS else seen_in(line, Where(), frozenset())
        if checked and (logged := _BRACKETED.match(line)) is not None:
            node = logged[1]
        node = node if node and key not in HOST_KEYS else where.node or node
        kind = (device(where.name) or ("",))[0] if where.name else ""
        if kind == "hca" or (_RDMA.fullmatch(where.name) and not hca):
            hca, port = where.name, where.port
        port = where.port if where.port is not None and hca and not where.name else port
    if not hca and not (checked and node):
        return None
    title = next((line for line in lines if any(pattern.search(line) for _, pattern in _WHAT)), lines[0])
    end = End(node=clean(node)[:80], hca=clean(hca)[:64], port=(port or 1) if hca else None)
    return FabricEvent("up" if over else what, (end,), _stamp(text), clean(title.strip())[:300])


def _stamp(text: str) -> str:
    at = _STAMP.search(text)
    return "" if at is None else at[1].replace("T", " ") if at[1] else f"{at[3]}-{at[4]}-{at[5]} {at[2]}"


TOOL = Tool("fabric alerts", "ib.events", fits, read, quiet, host_in)
