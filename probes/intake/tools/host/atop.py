"""atop, as `atop 10 2` or `atop -r FILE` prints it: load, all CPUs, and processes with what they used in the interval.

    ATOP - gpu-n4   2025/03/01  10:00:10   ...   10s elapsed
    CPU | sys     310% | user   6111% | irq       3% | idle     20% | wait      0% |
        PID   SYSCPU   USRCPU   ...  THR   S   CPUNR    CPU   CMD

Its first screen is an average since the boot: of several the last counts.
Source   atop(1)
Units    percent of one CPU
"""

from __future__ import annotations

import re

from probes.catalog.host.load_facts import CpuUse, Load, Process
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import number, refuse, whole
from probes.intake.tools.host._load import load, process

MOST = 4096
_SCREEN = re.compile(r"^ATOP - ([A-Za-z][\w.-]{0,80})\s{1,40}\d{4}/\d\d/\d\d", re.M)
_CPU = re.compile(r"^CPU \|([^\n]{10,300})$", re.M)
_PART = re.compile(r"\b(sys|user|irq|idle|wait|steal)\s{1,12}(\d{1,9})%")
_LOAD = re.compile(r"\bavg(1|5|15)\s{1,12}(\d{1,7}\.\d{1,2})")


def fits(head: str, name: str) -> bool:
    return bool(_SCREEN.search(head[:4000])) and "CPU |" in head


def read(text: str) -> Load:
    starts = [one.start() for one in _SCREEN.finditer(text[:4_194_304])]
    screen = text[starts[-1] :] if starts else ""
    told = _CPU.search(screen)
    part = {key: float(value) for key, value in _PART.findall(told[1])} if told else {}
    processes = list(_processes(screen))
    if not part and not processes:
        raise refuse("a screen of atop", text)
    cpus = round(sum(part.values()) / 100)
    loads = {key: number(value) for key, value in _LOAD.findall(screen)}
    return load(
        load1=loads.get("1"), load5=loads.get("5"), load15=loads.get("15"), cpus=cpus or None,
        cpu=_use(part, cpus) if cpus and "idle" in part else None, processes=tuple(processes),
    )  # fmt: skip


def _use(part: dict[str, float], cpus: int) -> CpuUse:
    def of(*names: str) -> float:
        return round(sum(part.get(name, 0.0) for name in names) / cpus, 2)

    return CpuUse(of("user"), of("sys", "irq"), of("wait"), of("steal"), of("idle"))


def _processes(screen: str) -> list[Process]:
    heads: list[str] = []
    found: list[Process] = []
    for line in lines_of(screen, 1000):
        words = line.split()
        if "PID" in words and "CMD" in words and "CPU" in words:
            heads = words[: words.index("CMD") + 1]
        elif heads and len(words) >= len(heads) and len(found) < MOST:
            row = dict(zip(heads, words, strict=False))
            pid, share = whole(row["PID"]), number(row["CPU"].rstrip("%"))
            if pid and share is not None:
                found.append(
                    process(
                        pid, clean(row["CMD"])[:64], share, state=row.get("S", "")[:1],
                        threads=whole(row.get("THR", "")), user=clean(row.get("RUID", row.get("EUID", "")))[:32],
                    )
                )  # fmt: skip
    return found


def host(text: str) -> str:
    found = _SCREEN.search(text[:4000])
    return found[1] if found else ""


TOOL = Tool("atop", "host.load", fits, read, host=host)
