"""nfsiostat: how long requests to a file server take.

Each report has a block a mount, with a line of numbers below the heading of reads and of writes:

    read:     ops/s    kB/s    kB/op    retrans    avg RTT (ms)    avg exe (ms)    avg queue (ms)    errors
              0.200   3.200   16.000   0 (0.0%)           1.167           1.333             0.033  0 (0.0%)

Source   nfsiostat(8) of nfs-utils 1.3 to 2.6; older ones have no queue and no errors.
         The first report is since the mount
Units    s
Shape    facts host.nfs_times: the last report of each mount
Errors   ParseError when no row stands below such a heading
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

LONG_S = 10.0  # judgement: a loaded server answers within tens of milliseconds; a client sends again after 60 s
_MOUNT = re.compile(r"(\S{1,200}) mounted on (/\S{0,200}):\s{0,4}")
_HEAD = re.compile(
    r"(read|write):\s{1,40}ops?/s\s{1,40}[kK]B/s\s{1,40}[kK]B/op\s{1,40}retrans\s{1,40}"
    r"avg RTT \(ms\)\s{1,40}avg exe \(ms\)"
)
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?(?:\s{1,4}\(\d{1,12}(?:\.\d{1,6})?%\))?")


@dataclass(frozen=True, slots=True)
class Times:
    """(mount, server, whether of writing, s from asking until it was done)."""

    mounts: tuple[tuple[str, str, bool, float], ...]


def _fits(head: str, name: str) -> bool:
    return any(_HEAD.match(line.strip()) for line in lines_of(head[:16384], 400))


def read(text: str) -> Times:
    found: dict[tuple[str, bool], tuple[str, str, bool, float]] = {}
    server = mount = ""
    writes: bool | None = None
    for raw in lines_of(text[:8_388_608], 600):
        line = raw.strip()
        if at := _MOUNT.match(line):
            server, mount, writes = clean(at[1]), clean(at[2]), None
        elif head := _HEAD.match(line):
            writes = head[1] == "write"
        elif writes is not None and line:
            cells = _NUMBER.findall(line)
            if len(cells) >= 6 and len(found) < 1000:
                found[mount, writes] = (mount, server, writes, float(cells[5].split()[0]) / 1000)
            writes = None
    if not found:
        raise refuse("nfsiostat", text)
    return Times(tuple(found.values()))


def _findings(facts: Times) -> Iterable[Finding]:
    for mount, server, writes, seconds in facts.mounts:
        if seconds >= LONG_S:
            what = "write to" if writes else "read from"
            says = f"a {what} {mount or 'a mount'} ({server}) takes {seconds:.0f} s on average"
            yield Finding("host.disk_silent", "bad", says, {"mount": mount})


TOOL = Tool("nfsiostat", "host.nfs_times", _fits, read, _findings, host_in)
