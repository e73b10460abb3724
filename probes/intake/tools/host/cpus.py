"""lscpu, numactl -H and nproc: how many CPUs a node has. nproc is a number alone in its line."""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Settings
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse, whole
from probes.intake.tools.host.limits import quiet

_LSCPU = re.compile(r"^(CPU\(s\)|Core\(s\) per socket|Socket\(s\)|NUMA node\(s\)):\s{1,40}(\d{1,6})\s*$", re.M)
_NUMACTL = re.compile(r"^node \d{1,3} cpus:((?: \d{1,5}){0,4096})\s*$", re.M)

_ALONE = re.compile(r"^\s{0,8}(\d{1,4})\s{0,8}$", re.M)


def fits(head: str, name: str) -> bool:
    if re.search(r"^CPU\(s\):\s{1,40}\d", head, re.M) or re.search(r"^available: \d{1,3} nodes", head, re.M):
        return True
    return "nproc" in name.lower() and bool(_ALONE.search(head[:20_000]))


def read(text: str) -> Settings:
    told = {key: int(value) for key, value in _LSCPU.findall(text)}
    if told:
        cores = told.get("Core(s) per socket", 0) * told.get("Socket(s)", 0)
        return Settings(cpus=told.get("CPU(s)"), cores=cores or None, numa_nodes=told.get("NUMA node(s)"))
    nodes = _NUMACTL.findall(text)
    if nodes:
        return Settings(cpus=len({cpu for one in nodes for cpu in one.split()}), numa_nodes=len(nodes))
    alone = [value for one in _ALONE.findall(text[:262_144]) if (value := whole(one))]
    if len(set(alone)) == 1:  # among the output of other commands that were typed with it
        return Settings(cpus=alone[0])
    raise refuse("what lscpu, numactl -H or nproc print", text)


TOOL = Tool("cpus", "host.settings", fits, read, quiet, host_in)
