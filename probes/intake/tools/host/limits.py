"""Locked memory: `ulimit -a` of a shell, /proc/PID/limits of a process, `prlimit`. The limit of the rank counts."""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Limit, Settings
from probes.core import Finding
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

_SHELL = re.compile(r"^max locked memory\s{1,40}\((kbytes|bytes)[^)\n]{0,12}\)\s{1,24}(\d{1,20}|unlimited)", re.M)
_PROC = re.compile(r"^Max locked memory\s{1,40}(\d{1,20}|unlimited)\s{1,40}(?:\d{1,20}|unlimited)\s{1,40}bytes", re.M)
_PRLIMIT = re.compile(r"^MEMLOCK\s{1,8}max locked-in-memory address space\s{1,16}(\d{1,20}|unlimited)\s", re.M)
_BARE = re.compile(r"\s{0,8}(\d{1,15}|unlimited)\s{0,8}")
_PID = re.compile(r"/proc/(\d{1,10})/limits|\bpid[ =:]{1,3}(\d{1,10})\b|(?:--pid|-p)[ =](\d{1,10})")


def fits(head: str, name: str) -> bool:
    """A log of a job that printed its limits first stays a log."""
    if " NCCL " in head or "[rank" in head or "Traceback (" in head:
        return False
    if _BARE.fullmatch(head):
        return bool(re.search(r"ulimit|memlock|locked", name, re.I))
    return bool(_SHELL.search(head) or _PROC.search(head) or _PRLIMIT.search(head))


def read(text: str) -> Settings:
    if bare := _BARE.fullmatch(text):  # `ulimit -l` alone, in KiB: bash(1)
        return Settings(limits=(Limit(0, None if bare[1] == "unlimited" else int(bare[1]) * 1024),))
    found = []
    for pattern in (_SHELL, _PROC, _PRLIMIT):
        for one in pattern.finditer(text[:4_194_304]):
            size = one[one.lastindex or 1]
            unit = 1024 if pattern is _SHELL and one[1] == "kbytes" else 1
            before = list(_PID.finditer(text[max(0, one.start() - 1500) : one.start()]))
            pid = next((int(part) for part in before[-1].groups() if part), 0) if before else 0
            pid = pid or (0 if pattern is _SHELL else -1)  # -1: a process, which one is not told
            found.append(Limit(pid, None if size == "unlimited" else int(size) * unit))
    if not found:
        raise refuse("a line 'max locked memory' or 'Max locked memory'", text)
    return Settings(limits=tuple(found[:4096]))


def quiet(facts: Settings) -> tuple[Finding, ...]:
    """Settings say something only beside those of other nodes, or beside what ranks wrote."""
    return ()


TOOL = Tool("limits", "host.settings", fits, read, quiet, host_in)
