"""sinfo -R and scontrol show node (also -o): nodes that Slurm took out, and why.

Source   sinfo(1): the default of -R is "%20E %12U %19H %6N" (older: "%20E %9u %19H %N"), which cuts the reason;
         scontrol(1); reasons of slurmctld (node_mgr.c: "Node unexpectedly rebooted")
Shape    facts cluster.events; times are of the controller's zone, as printed
Errors   ParseError when no row of it is understood
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from probes.catalog._cluster_facts import Cluster, Gathered
from probes.core import Finding, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

MOST_NODES = 64
_HEAD = re.compile(r"^REASON\s{1,60}USER\S{0,20}\s{1,30}TIMESTAMP\s{1,30}NODELIST", re.M)
ROW = re.compile(r"(\S.{0,200}?)\s{1,60}(\S{1,40})\s{1,30}(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\s{1,30}(\S{1,400})")
_NODE = re.compile(r"^\s{0,8}NodeName=(\S{1,120})", re.M)
_REASON = re.compile(r"\bReason=(.{1,200}?) \[\S{1,40}@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]")
_STATE = re.compile(r"\bState=(\S{1,80})")
_BOOT = re.compile(r"Node unexpectedly re")
_LIST = re.compile(r"([\w.-]{1,80}?)\[([\d,-]{1,200})\]|([\w.-]{1,80})")


def _fits(head: str, name: str) -> bool:
    return bool(_HEAD.search(head[:8192])) or bool(_NODE.search(head[:8192]) and _STATE.search(head[:16384]))


def nodes_in(text: str) -> list[str]:
    """`gn[01-03,07],login1` as names, MOST_NODES at most."""
    found: list[str] = []
    for prefix, numbers, alone in _LIST.findall(text):
        if alone:
            found.append(alone)
            continue
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            if first.isdigit() and (last or first).isdigit():
                for number in range(int(first), min(int(last or first), int(first) + MOST_NODES) + 1):
                    found.append(f"{prefix}{number:0{len(first)}d}")
    return found[:MOST_NODES]


def read(text: str) -> Cluster:
    found = Gathered()
    text = text[:4_194_304]
    if _HEAD.search(text):
        for line in lines_of(text, 1000):
            if (row := ROW.fullmatch(line.strip())) is not None:
                for node in nodes_in(row[4]):
                    _reason(found, node, row[1], row[3])
    for block in re.split(r"(?m)^\s{0,8}(?=NodeName=)", text):
        if (named := _NODE.match(block)) is not None:
            found.rows += 1
            state, reason = _STATE.search(block), _REASON.search(block)
            if state is not None and ("NOT_RESPONDING" in state[1] or state[1].endswith("*")):
                found.unready.setdefault(named[1])
            if reason is not None:
                _reason(found, named[1], reason[1], reason[2])
    if not found.rows:
        raise refuse("sinfo -R or scontrol show node", text)
    return found.told()


def _reason(found: Gathered, node: str, reason: str, stamp: str) -> None:
    found.rows += 1
    if _BOOT.match(reason.strip()):
        found.event("node", node, "Rebooted", f"{reason.strip()} [{stamp}]", node, None, stamp=stamp)
    elif reason.startswith("Not responding"):
        found.unready.setdefault(node)


def _quiet(facts: Cluster) -> Iterable[Finding]:
    return ()


TOOL = Tool("Slurm's nodes", "cluster.events", _fits, read, _quiet, log=True)
