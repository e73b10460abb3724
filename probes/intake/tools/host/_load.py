"""A Load of what one tool tells: everything else of it is not known."""

from __future__ import annotations

import zlib
from dataclasses import fields
from typing import Any

from probes.catalog.host.load_facts import Load, Process


def load(**told: Any) -> Load:
    values: dict[str, Any] = {one.name: None for one in fields(Load)}
    return Load(
        **(
            values
            | {"processes": (), "quotas": (), "heat": (), "source": "file", "cpus_full": "", "cpus_free": ""}
            | told
        )
    )


def nameless(comm: str) -> int:
    """The number of what is known by its name only: below 0, and the same for the same name."""
    return -1 - zlib.crc32(comm.encode("utf-8", "replace")) % 1_000_000


def process(pid: int, comm: str, cpu: float | None, **told: Any) -> Process:
    values: dict[str, Any] = {"ppid": 0, "state": "", "run_delay_percent": None, "rank": False}
    return Process(pid=pid, comm=comm, cpu_percent=cpu, **(values | told))
