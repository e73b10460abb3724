"""mmfs.log: the log of IBM Storage Scale (GPFS), read as lines of the kernel's, which tell the same.

Source   mmfs.log.latest: `2026-06-01_10:00:05.123+0000: [E] text`
Shape    facts of host.kernel_log
Errors   ParseError when it has no line of this form
"""

from __future__ import annotations

import re

from probes.catalog.host_kernel_log import parse
from probes.catalog.kernel.events import KernelLog
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

_LINE = re.compile(r"^(\d{4}-\d\d-\d\d)_(\d\d:\d\d:\d\d)\.\d{1,6}([+-]\d{4}): (\[[A-Z]\] [^\n]{1,1000})$", re.M)


def _fits(head: str, name: str) -> bool:
    return len(_LINE.findall(head[:16384])) > 1


def read(text: str) -> KernelLog:
    lines = [f"{day}T{time}{zone} - kernel: mmfs: {said}" for day, time, zone, said in _LINE.findall(text[-8_388_608:])]
    if not lines:
        raise refuse("mmfs.log", text)
    return parse("\n".join(lines))


TOOL = Tool("mmfs.log", "host.kernel_log", _fits, read)
