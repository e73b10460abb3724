"""mpstat and vmstat: what all CPUs do together. Of several intervals the average, or the last."""

from __future__ import annotations

import re

from probes.catalog._load_facts import CpuUse, Load
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._load import load
from probes.intake.tools._text import number, refuse, whole
from probes.intake.tools.pidstat import _SYSTEM, host

_MPSTAT = re.compile(r"\bCPU\s{1,8}%usr\s{1,8}%nice\s{1,8}%sys\s{1,8}%iowait")
_VMSTAT = re.compile(r"^\s{0,4}r\s{1,6}b\s{1,8}swpd\s{1,8}free\s", re.M)


def fits(head: str, name: str) -> bool:
    return bool(_MPSTAT.search(head) or _VMSTAT.search(head))


def read(text: str) -> Load:
    system = _SYSTEM.search(text[:2000])
    cpus = int(system[2]) if system else None
    if _VMSTAT.search(text[:65536]):
        return _vmstat(text)
    heads: list[str] = []
    use = None
    averaged = False
    for line in lines_of(text, 600):
        words = line.split()
        if "CPU" in words:
            heads = words[words.index("CPU") :] if "%usr" in words else []
        elif heads and "all" in words and not averaged:
            row = dict(zip(heads, words[words.index("all") :], strict=False))
            part = {key: number(value) or 0.0 for key, value in row.items() if key != "CPU"}
            averaged = words[0].startswith("Average")
            if "%idle" in part:
                system_ = part.get("%sys", 0.0) + part.get("%irq", 0.0) + part.get("%soft", 0.0)
                use = CpuUse(
                    round(part.get("%usr", 0.0) + part.get("%nice", 0.0), 2), round(system_, 2),
                    part.get("%iowait", 0.0), part.get("%steal", 0.0), part["%idle"],
                )  # fmt: skip
    if use is None:
        raise refuse("a row 'all' as mpstat prints it", text)
    return load(cpu=use, cpus=cpus)


def _vmstat(text: str) -> Load:
    """Its first row is an average since the boot: left out where there are more."""
    heads: list[str] = []
    rows: list[dict[str, str]] = []
    for line in lines_of(text, 600):
        words = line.split()
        if words[:2] == ["r", "b"]:
            heads = words
        elif heads and len(words) >= len(heads) and words[0].isdecimal():
            rows.append(dict(zip(heads, words, strict=False)))
    if not rows:
        raise refuse("rows of vmstat", text)
    part = {key: number(value) for key, value in rows[-1].items()}
    use = None
    if part.get("id") is not None:
        use = CpuUse(
            part.get("us") or 0.0,
            part.get("sy") or 0.0,
            part.get("wa") or 0.0,
            part.get("st") or 0.0,
            part["id"] or 0.0,
        )
    waiting = [value for row in rows[1:] or rows if (value := whole(row["r"])) is not None]
    blocked = [value for row in rows[1:] or rows if (value := whole(row["b"])) is not None]
    return load(cpu=use, runnable=min(waiting, default=None), blocked=min(blocked, default=None))


TOOL = Tool("mpstat", "host.load", fits, read, host=host)
