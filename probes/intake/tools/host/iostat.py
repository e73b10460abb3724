"""iostat -x, also with -z, -y, -t, -k or -m: disks at which requests wait and none is done.

Source   iostat(1) of sysstat 10 to 12: `aqu-sz` was `avgqu-sz`; %util is the time in which requests were out
Shape    facts host.disk_rates: the last report of each device
Errors   ParseError when no row stands below a header of -x
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import number, refuse

BUSY, WAITING, DONE = 99.0, 1.0, 1.0  # judgement: percent of the time; requests that wait; requests done in a second
_HEAD = re.compile(r"^[^\W\d]\w{3,20}:?\s{1,40}(?:\S{1,12}\s{1,20}){4,30}%util\s{0,8}$", re.M)


@dataclass(frozen=True, slots=True)
class DiskRate:
    device: str
    done: float  # requests a second, reads and writes
    waiting: float
    util: float


@dataclass(frozen=True, slots=True)
class DiskRates:
    disks: tuple[DiskRate, ...]


def _fits(head: str, name: str) -> bool:
    return bool(_HEAD.search(head[:16384]))


def read(text: str) -> DiskRates:
    found: dict[str, DiskRate] = {}
    columns: list[str] = []
    for line in lines_of(text[:8_388_608], 600):
        words = line.replace(",", ".").split()
        if _HEAD.match(line.strip()):
            columns = words
        elif columns and len(words) == len(columns):
            row = {key: number(word) for key, word in zip(columns[1:], words[1:], strict=True)}
            queue = row.get("aqu-sz", row.get("avgqu-sz"))
            done, util = (row.get("r/s") or 0.0) + (row.get("w/s") or 0.0), row.get("%util")
            if queue is not None and util is not None and len(found) < 10_000:
                found[clean(words[0])[:60]] = DiskRate(clean(words[0])[:60], done, queue, util)
    if not found:
        raise refuse("iostat -x", text)
    return DiskRates(tuple(found.values()))


def _findings(rates: DiskRates) -> Iterable[Finding]:
    for disk in rates.disks:
        if disk.util >= BUSY and disk.waiting >= WAITING and disk.done < DONE:
            says = f"at disk {disk.device} {disk.waiting:.0f} requests wait and none is done"
            yield Finding("host.disk_silent", "bad", says, {"device": disk.device})


TOOL = Tool("iostat", "host.disk_rates", _fits, read, _findings)
