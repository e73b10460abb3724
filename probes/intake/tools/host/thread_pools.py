"""How many threads a process of torch may start: torch.__config__.parallel_info(), and threadpoolctl's list.

    at::get_num_threads() : 96
    std::thread::hardware_concurrency() : 192

    {"user_api": "openmp", "internal_api": "openmp", "num_threads": 96, ...}      python -m threadpoolctl -i torch

What is in force counts as what was asked for: without OMP_NUM_THREADS it is a thread per CPU.
Source   ATen/ParallelCommon.cpp (get_parallel_info); threadpoolctl 3
"""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Settings
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_ATEN = re.compile(r"at::get_num_threads\(\) ?: ?(\d{1,5})\b")
_CPUS = re.compile(r"hardware_concurrency\(\) ?: ?(\d{1,5})\b")
_POOL = re.compile(r'"user_api":\s{0,4}"(openmp|blas)"[^{}]{0,800}?"num_threads":\s{0,4}(\d{1,5})\b')
_NAMES = {"openmp": "OMP_NUM_THREADS", "blas": "MKL_NUM_THREADS"}


def fits(head: str, name: str) -> bool:
    return bool(_ATEN.search(head)) or ('"user_api"' in head and '"num_threads"' in head)


def read(text: str) -> Settings:
    """Of several processes the most that one may start."""
    text = text[:1_048_576]
    most: dict[str, int] = {}
    for found in _ATEN.findall(text):
        most["OMP_NUM_THREADS"] = max(most.get("OMP_NUM_THREADS", 0), int(found))
    for api, many in _POOL.findall(text):
        most[_NAMES[api]] = max(most.get(_NAMES[api], 0), int(many))
    cpus = _CPUS.search(text)
    if not most:
        raise refuse("what torch.__config__.parallel_info() or threadpoolctl print", text)
    return Settings(cpus=int(cpus[1]) if cpus else None, env={key: str(value) for key, value in most.items()})


TOOL = Tool("thread pools", "host.settings", fits, read, quiet, host_in, log=True)
