"""A Load of what one tool tells: everything else of it is not known."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from probes.catalog._load_facts import Load, Process


def load(**told: Any) -> Load:
    values: dict[str, Any] = {one.name: None for one in fields(Load)}
    return Load(**(values | {"processes": (), "quotas": (), "source": "file", "cpus_full": "", "cpus_free": ""} | told))


def process(pid: int, comm: str, cpu: float | None, **told: Any) -> Process:
    values: dict[str, Any] = {"ppid": 0, "state": "", "run_delay_percent": None, "rank": False}
    return Process(pid=pid, comm=comm, cpu_percent=cpu, **(values | told))
