"""memory.events and memory.oom_control of a control group: how often the kernel killed in it.

Source   Documentation/admin-guide/cgroup-v2.rst (memory.events: oom_kill counts processes of this group that were
         killed by any kind of OOM killer), cgroup-v1/memory.rst
Shape    facts host.cgroup_memory
Errors   ParseError when no counter is in it
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

_KILLS = re.compile(r"^(?:\S{0,300}memory\.(?:events|oom_control)(?:\.local)?:)?oom_kill (\d{1,12})$", re.M)
_EVENTS = re.compile(r"^(?:\S{0,300}:)?(?:max|under_oom) \d{1,12}$", re.M)


@dataclass(frozen=True, slots=True)
class CgroupMemory:
    """Processes that the kernel killed in this group since it was made."""

    kills: int


def _fits(head: str, name: str) -> bool:
    return bool(_KILLS.search(head[:8192]) and _EVENTS.search(head[:8192]))


def read(text: str) -> CgroupMemory:
    found = _KILLS.findall(text[:262_144])
    if not found:
        raise refuse("memory.events", text)
    return CgroupMemory(max(map(int, found)))


def _findings(facts: CgroupMemory) -> Iterable[Finding]:
    if facts.kills:
        what = "1 process" if facts.kills == 1 else f"{facts.kills} processes"
        yield Finding("host.oom_counted", "bad", f"the kernel killed {what} in its control group for memory")


TOOL = Tool("memory of a control group", "host.cgroup_memory", _fits, read, _findings)
