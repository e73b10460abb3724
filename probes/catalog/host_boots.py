"""Since when does this node run?

Source   /proc/stat (btime) and /proc/uptime, proc(5)
Units    seconds since the epoch, by the node's clock; seconds
Shape    Boots, as uptime and last give it
Errors   ParseError when a file is not what the kernel prints
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from probes.catalog.host.facts import Boots
from probes.core import Finding, ParseError, Probe, sections
from probes.runner import read

__all__ = ["PROBE", "Boots", "findings", "parse"]

_BOOTED, _UP = re.compile(r"^btime (\d{1,11})$", re.M), re.compile(r"(\d{1,10}(?:\.\d{1,3})?) ")


def _collect() -> Mapping[str, str]:
    lines = [line for line in read("/proc/stat", 1048576).split("\n") if line.startswith("btime ")]
    return {"/proc/stat": "\n".join(lines), "/proc/uptime": read("/proc/uptime")}


def parse(text: str) -> Boots:
    """Both files, of the first its line btime only."""
    parts = sections(text)
    booted = _BOOTED.search(parts.get("/proc/stat", ""))
    up = _UP.match(parts.get("/proc/uptime", ""))
    if booted is None or up is None:
        raise ParseError(f"expected btime in /proc/stat and seconds in /proc/uptime, found {text[:60]!r}")
    at = float(booted[1])
    return Boots(at, True, float(up[1]), stamp=datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"))


def findings(boots: Boots) -> Iterator[Finding]:
    """None: whether a boot was in the middle of a job only the job tells."""
    yield from ()


PROBE = Probe(
    "host.boots",
    "Since when does this node run?",
    parse,
    findings,
    collect=_collect,
    by_hand="uptime -s; last -x reboot shutdown",
    timeout_s=2.0,
    cost="1 ms",
)
