"""Which CPUs threads may use: `taskset -pc PID`, and lines of Cpus_allowed_list in files of /proc or grep's output."""

from __future__ import annotations

import re

from probes.catalog._net_facts import Mask, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.limits import quiet

_TASKSET = re.compile(r"^pid (\d{1,10})'s current affinity (list|mask): ([0-9a-fA-F,-]{1,2000})\s*$")
_GREP = re.compile(r"^/?(?:proc/)?(?:\d{1,10}/task/)?(\d{1,10})/status:Cpus_allowed_list:\s{1,8}([\d,-]{1,2000})")
_COMM = re.compile(r"^\s{0,4}(?:#|pid)?\s{0,2}(\d{1,10})[ :]{1,4}\(?([\w/.:-]{2,40})\)?")


def fits(head: str, name: str) -> bool:
    return "'s current affinity " in head or any(_GREP.match(line) for line in list(lines_of(head, 400))[:40])


def read(text: str) -> Settings:
    found: list[Mask] = []
    for line in lines_of(text, 4000):
        if one := _TASKSET.match(line.strip()):
            found.append(
                Mask(int(one[1]), one[3] if one[2] == "list" else ranges(int(one[3].replace(",", "")[:1024], 16)))
            )
        elif one := _GREP.match(line.strip()):
            found.append(Mask(int(one[1]), one[2]))
    if not found:
        raise refuse('lines such as "pid 12\'s current affinity list: 0-3"', text)
    return Settings(masks=tuple(found[:20_000]))


def ranges(mask: int) -> str:
    """A mask of bits as ranges: 0xf is 0-3."""
    cpus = [place for place in range(min(mask.bit_length(), 4096)) if mask >> place & 1]
    parts: list[list[int]] = []
    for cpu in cpus:
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return clean(",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts))


TOOL = Tool("masks", "host.settings", fits, read, quiet, host_in)
