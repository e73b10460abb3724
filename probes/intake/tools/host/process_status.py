"""/proc/PID/status of one process or of many, one after the other, or lines that grep cut out of them.

    Name:   python3                         each begins with its name
    /proc/70240/status:Threads: 411         grep -H

Source   proc_pid_status(5)
Shape    facts of host.load: number of threads and allowed CPUs of each process
Errors   ParseError where no process tells either
"""

from __future__ import annotations

import re

from probes.catalog.host.load_facts import Load, Process
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host._load import load, process

MOST = 4096
_LINE = re.compile(
    r"(?:/?proc/(\d{1,10})/(?:task/\d{1,10}/)?status[:-])?\s{0,4}"
    r"(Name|State|Tgid|Pid|PPid|Threads|Cpus_allowed_list):\s{0,8}(\S[^\n]{0,600}?)\s{0,8}$"
)
_MASK = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,256}")


def fits(head: str, name: str) -> bool:
    return ("Threads:" in head or "Cpus_allowed_list:" in head) and bool(_blocks(head[:65_536]))


def read(text: str) -> Load:
    found = tuple(_blocks(text).values())
    if not found:
        raise refuse("lines of /proc/PID/status", text)
    return load(processes=found)


def _blocks(text: str) -> dict[int, Process]:
    blocks: list[dict[str, str]] = []
    of: dict[str, dict[str, str]] = {}
    for line in lines_of(text, 1000):
        if (found := _LINE.match(line)) is None:
            continue
        pid, key, value = found[1] or "", found[2], found[3]
        if pid:
            if pid not in of and len(of) < MOST:
                of[pid] = {"Pid": pid}
                blocks.append(of[pid])
            of.get(pid, {})[key] = value
        elif len(blocks) < MOST and (not blocks or key in blocks[-1]):  # a key again: the next process begins
            blocks.append({key: value})
        else:
            blocks[-1].setdefault(key, value)
    told = [one for one in map(_process, blocks) if one is not None]
    return {one.pid: one for one in told}


def _process(block: dict[str, str]) -> Process | None:
    pid, threads, mask = block.get("Pid", ""), block.get("Threads", ""), block.get("Cpus_allowed_list", "")
    many = int(threads) if threads.isdecimal() and len(threads) < 8 else None
    mask = mask if _MASK.fullmatch(mask) else ""
    if not (pid.isdecimal() and len(pid) < 11) or (many is None and not mask):
        return None
    state, above = block.get("State", "")[:1], block.get("PPid", "")
    return process(
        int(pid), clean(block.get("Name", ""))[:64], None, state=state if state.isalpha() else "",
        ppid=int(above) if above.isdecimal() and len(above) < 11 else 0, threads=many, mask=mask,
    )  # fmt: skip


TOOL = Tool("process status", "host.load", fits, read, host=host_in)
