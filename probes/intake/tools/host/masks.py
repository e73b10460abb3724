"""Which CPUs threads may use: `taskset -pc PID`, and lines of Cpus_allowed_list in files of /proc or grep's output."""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.host.load_facts import ranges_of
from probes.catalog.network.net_facts import Mask, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_TASKSET = re.compile(r"^pid (\d{1,10})'s current affinity (list|mask): ([0-9a-fA-F,-]{1,2000})\s*$")
_GREP = re.compile(r"^/?(?:proc/)?(?:\d{1,10}/task/)?(\d{1,10})/status:Cpus_allowed_list:\s{1,8}([\d,-]{1,2000})")
_LED = re.compile(r"^(\d{2,10})[ :\t]{1,4}Cpus_allowed_list:\s{1,8}([\d,-]{1,2000})")  # sed "s/^/$p /"
_BARE = re.compile(r"^Cpus_allowed_list:\s{1,8}([\d,-]{1,2000})$")
_PATH = re.compile(r"proc[_/](\d{1,10})(?:[_/]task[_/](\d{1,10}))?[_/]status")


def fits(head: str, name: str) -> bool:
    return "'s current affinity " in head or any(
        _GREP.match(line) or _LED.match(line) or (_BARE.match(line) and _PATH.search(name))
        for line in list(lines_of(head, 400))[:40]
    )


def read(text: str) -> Settings:
    found: list[Mask] = []
    for line in lines_of(text, 4000):
        if one := _TASKSET.match(line.strip()):
            found.append(
                Mask(int(one[1]), one[3] if one[2] == "list" else ranges(int(one[3].replace(",", "")[:1024], 16)))
            )
        elif one := _BARE.match(line.strip()):
            found.append(Mask(0, one[1]))
        elif one := _GREP.match(line.strip()) or _LED.match(line.strip()):
            found.append(Mask(int(one[1]), one[2]))
    if not found:
        raise refuse('lines such as "pid 12\'s current affinity list: 0-3"', text)
    return Settings(masks=tuple(found[:20_000]))


def ranges(mask: int) -> str:
    """A mask of bits as ranges: 0xf is 0-3."""
    return clean(ranges_of(place for place in range(min(mask.bit_length(), 4096)) if mask >> place & 1))


# for p in $(pgrep -f train.py); do taskset -pc $p; done
OF_TRAINING = re.compile(r"(?:pgrep|pidof)_[\w.+-]{0,60}?(?:python|train|torch|rank|deepspeed)")


def named(facts: Settings, path: str) -> Settings:
    """Whose a line of `grep Cpus_allowed_list /proc/12/status` is, by the command or path. Without, it is left out."""
    told = [int(one[2] or one[1]) for one in _PATH.finditer(path)]
    found, place = [], 0
    for mask in facts.masks:
        if not mask.pid:
            mask = replace(mask, pid=told[place] if place < len(told) else 0)
            place += 1
        if mask.pid:
            found.append(mask if mask.comm else replace(mask, comm="python" if OF_TRAINING.search(path) else ""))
    return replace(facts, masks=tuple(found))


TOOL = Tool("masks", "host.settings", fits, read, quiet, host_in, named)
