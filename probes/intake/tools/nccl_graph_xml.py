"""A file of NCCL_GRAPH_FILE or NCCL_GRAPH_DUMP_FILE: the rings and trees that NCCL is told to build, or has built.

Source   NCCL graph/search.cc: ncclTopoGetXmlFromGraphs; attributes were called speed* to 2.19 and bw* before and since
Units    GB/s
Shape    facts nccl.graphs
Errors   ParseError where no <graph> is in it
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.core import Finding, clean
from probes.intake.tools import Tool
from probes.intake.tools._text import number, refuse

_GRAPH = re.compile(r"<graph ([^<>]{1,600})>")
_NAMED = re.compile(r"(\w{1,20})=\"([^\"<>]{0,40})\"")
_NET = re.compile(r"<net dev=\"(\d{1,4})\"")
PATTERNS = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "NVLS"}  # graph.h: NCCL_TOPO_PATTERN_*
MOST = 64


@dataclass(frozen=True, slots=True)
class Graph:
    """`intra`, `inter`: the kind of path within a node and to the network: NVL, PIX, SYS."""

    pattern: str
    channels: int
    intra: str
    inter: str
    gbytes: float | None
    adapters: int


@dataclass(frozen=True, slots=True)
class Graphs:
    graphs: tuple[Graph, ...]


def read(text: str) -> Graphs:
    heads = list(_GRAPH.finditer(text[:4_194_304]))[:MOST]
    ends = [*(one.start() for one in heads[1:]), len(text)][: len(heads)]
    found = []
    for head, end in zip(heads, ends, strict=True):
        told = dict(_NAMED.findall(head[1]))
        body = text[head.end() : min(end, head.end() + 262_144)]
        channels = int(told["nchannels"]) if re.fullmatch(r"\d{1,4}", told.get("nchannels", "")) else 0
        pattern = PATTERNS.get(int(told["pattern"]) if told.get("pattern", "").isdecimal() else 0, "graph")
        speed = number(told.get("speedintra") or told.get("bwintra") or "")
        kinds = clean(told.get("typeintra", "")), clean(told.get("typeinter", ""))
        found.append(Graph(pattern, channels, *kinds, speed, len(set(_NET.findall(body)))))
    if not found:
        raise refuse("graphs as NCCL writes them", text)
    return Graphs(tuple(found))


def quiet(facts: Graphs) -> tuple[Finding, ...]:
    """A graph is right or wrong only for a machine."""
    return ()


TOOL = Tool("NCCL graph", "nccl.graphs", lambda head, name: "<graphs " in head[:4096], read, quiet)
