"""What NCCL is told of its machine, or has found there: its topology files and its graph files, both XML of its own.

Source   NCCL graph/search.cc: ncclTopoGetXmlFromGraphs; attributes were called speed* to 2.19 and bw* before and since.
         graph/xml.cc and topo.cc: cpu, pci, gpu, nvlink, nic and net of a system, and which file is written when
Units    GB/s
Shape    Graphs, System
Errors   ValueError where no <graph> and no <system> is in it
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from probes.core import clean

_GRAPH = re.compile(r"<graph ([^<>]{1,600})>")
_ELEMENT = re.compile(r"<(cpu|gpu|nvlink|xgmi|net)\b([^<>]{0,600})>")
_NAMED = re.compile(r"(\w{1,20})=\"([^\"<>]{0,80})\"")
_NET = re.compile(r"<net dev=\"(\d{1,4})\"")
PATTERNS = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "NVLS"}  # graph.h: NCCL_TOPO_PATTERN_*
MOST, MOST_BYTES = 64, 4_194_304


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


@dataclass(frozen=True, slots=True)
class System:
    """`seen`: NCCL has filled in what it found (a GPU's rank); a file that is only given holds less. `links`: NVLinks
    or xGMI links of all GPUs. `direct`: adapters that NCCL takes for able of GPUDirect."""

    gpus: int
    links: int
    numa_nodes: int
    adapters: tuple[str, ...]
    direct: tuple[str, ...]
    seen: bool


def is_graphs(head: str) -> bool:
    return "<graphs " in head[:4096]


def is_system(head: str) -> bool:
    return bool(re.search(r"<system version=\"\d", head[:4096]))


def graphs(text: str) -> Graphs:
    heads = list(_GRAPH.finditer(text[:MOST_BYTES]))[:MOST]
    ends = [*(one.start() for one in heads[1:]), len(text)][: len(heads)]
    found = []
    for head, end in zip(heads, ends, strict=True):
        told = dict(_NAMED.findall(head[1]))
        body = text[head.end() : min(end, head.end() + 262_144)]
        channels = int(told["nchannels"]) if re.fullmatch(r"\d{1,4}", told.get("nchannels", "")) else 0
        pattern = PATTERNS.get(int(told["pattern"]) if told.get("pattern", "").isdecimal() else 0, "graph")
        speed = re.fullmatch(r"\d{1,9}(?:\.\d{1,9})?", told.get("speedintra") or told.get("bwintra") or "")
        kinds = clean(told.get("typeintra", "")), clean(told.get("typeinter", ""))
        gbytes = float(speed[0]) if speed else None
        found.append(Graph(pattern, channels, *kinds, gbytes, len(set(_NET.findall(body)))))
    if not found:
        raise ValueError("no <graph> in it")
    return Graphs(tuple(found))


def system(text: str) -> System:
    if not is_system(text):
        raise ValueError("no <system> in it")
    gpus = links = 0
    nodes, adapters, direct, seen = set(), [], [], False
    for kind, attributes in _ELEMENT.findall(text[:MOST_BYTES]):
        told = dict(_NAMED.findall(attributes))
        if kind == "gpu":
            gpus, seen = gpus + 1, seen or "rank" in told
        elif kind == "cpu":
            nodes.add((told.get("host_hash", ""), told.get("numaid", "")))
        elif kind == "net":
            name = clean(told.get("name", ""))
            adapters.append(name)
            direct += [name] * (told.get("gdr") == "1")
        elif told.get("count", "").isdecimal():
            links += int(told["count"])
    return System(gpus, links, len(nodes), tuple(adapters[:MOST]), tuple(direct[:MOST]), seen)
