"""A Load of what one tool tells: everything else of it is not known."""

from __future__ import annotations

import zlib
from dataclasses import MISSING, fields
from typing import Any

from probes.catalog.host.load_facts import Load, Process


def load(**told: Any) -> Load:
    values: dict[str, Any] = {one.name: None for one in fields(Load) if one.default is MISSING}
    return Load(**(values | {"processes": (), "quotas": (), "source": "file"} | told))


def nameless(comm: str) -> int:
    """The number of what is known by its name only: below 0, and the same for the same name."""
    return -1 - zlib.crc32(comm.encode("utf-8", "replace")) % 1_000_000


def process(pid: int, comm: str, cpu: float | None, **told: Any) -> Process:
    values: dict[str, Any] = {"ppid": 0, "state": "", "run_delay_percent": None, "rank": False}
    return Process(pid=pid, comm=comm, cpu_percent=cpu, **(values | told))
