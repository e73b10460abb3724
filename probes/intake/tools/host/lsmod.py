"""lsmod and /proc/modules: the kernel modules that are loaded, such as nvidia_peermem."""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Settings
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_LSMOD = re.compile(r"^([A-Za-z0-9_]{2,60})[ \t]{1,40}\d{1,12}[ \t]{1,8}-?\d{1,6}(?:[ \t][\w,]{0,400})?[ \t]*$", re.M)
_PROC = re.compile(
    r"^([A-Za-z0-9_]{2,60}) \d{1,12} \d{1,6} \S{1,400} (?:Live|Loading|Unloading) 0x[0-9a-f]{1,16}", re.M
)


def fits(head: str, name: str) -> bool:
    return bool(re.search(r"^Module\s{1,40}Size\s{1,8}Used by", head, re.M)) or len(_PROC.findall(head[:4096])) > 1


def read(text: str) -> Settings:
    names = _PROC.findall(text) or _LSMOD.findall(text)
    if not names:
        raise refuse("modules as lsmod prints them", text)
    return Settings(modules=tuple(dict.fromkeys(names))[:4096])


TOOL = Tool("lsmod", "host.settings", fits, read, quiet, host_in)
