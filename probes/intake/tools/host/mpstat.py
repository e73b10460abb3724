"""mpstat, sar -u and vmstat: what all CPUs do together, and each where that is told. Of several intervals the average,
or the last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from probes.catalog.host.load_facts import CpuUse, Load
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import mentions, number, refuse, whole
from probes.intake.tools.host._load import load
from probes.intake.tools.host.pidstat import _SYSTEM, AVERAGE, host
from probes.intake.tools.host.process_table import by_cpu

_MPSTAT = re.compile(r"\bCPU\s{1,8}%us(?:r|er)\s{1,8}%nice\s{1,8}%sys(?:tem)?\s{1,8}%iowait")
_BARE = re.compile(  # a row of mpstat whose heading a tail took away
    r"^(?:[^\W\d][^\W\d]{1,14}\.?\s?:|\d\d:\d\d:\d\d(?: [AP]M)?)\s{1,8}"
    r"(?:all|\d{1,4})(?:\s{1,12}\d{1,3}[.,]\d\d){10}\s{0,8}$",
    re.M,
)
_BARE_HEADS = "CPU %usr %nice %sys %iowait %irq %soft %steal %guest %gnice %idle"
_VMSTAT = re.compile(r"^\s{0,4}r\s{1,20}b\s{1,20}swpd\s{1,20}free\s", re.M)
_NODENAME = re.compile(r'"nodename"\s{0,4}:\s{0,4}"([\w.-]{1,80})"')
_JSON = re.compile(r'^\s{0,8}\{\s{0,8}"sysstat"\s{0,4}:')
_SUMMARY = re.compile(
    r"\bCPUs? (\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,64})[^\n%]{0,20}%idle {1,4}(\d{1,3}(?:\.\d{1,3})?)"
)


def fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] == "{":
        return bool(_JSON.match(head)) and '"cpu-load"' in head
    if _BARE.match(head.lstrip()):
        return True
    if not mentions(head, ("%us", "%idle", "swpd")):
        return False
    return bool(_MPSTAT.search(head) or _VMSTAT.search(head) or (len(head) < 4096 and _SUMMARY.search(head)))


def read(text: str) -> Load:
    if text.lstrip()[:1] == "{":
        return _json(text)
    system = _SYSTEM.search(text[:2000])
    cpus = int(system[2]) if system else None
    if _VMSTAT.search(text[:65536]):
        return _vmstat(text)
    heads = _BARE_HEADS.split() if _BARE.match(text.lstrip()) else []
    rows: dict[str, dict[str, float]] = {}
    averaged: set[str] = set()
    for line in lines_of(text, 600):
        words = AVERAGE.sub("Average:", line).replace(",", ".").split()
        if "CPU" in words:
            heads = words[words.index("CPU") :]
        elif len(heads) > 1 and len(words) >= len(heads) and _is_cpu(cpu := words[-len(heads)]):
            if cpu in averaged:
                continue
            if words[0].startswith("Average"):
                averaged.add(cpu)
            rows[cpu] = {
                key: number(value) or 0.0 for key, value in zip(heads[1:], words[-len(heads) + 1 :], strict=True)
            }
    rows = {cpu: row for cpu, row in rows.items() if "%idle" in row}
    told = _SUMMARY.findall(text[:4096]) if not rows else []
    if not rows and not told:
        raise refuse("rows as mpstat or sar -u print them", text)
    idle = {int(cpu): row["%idle"] for cpu, row in rows.items() if cpu.isdecimal()}
    for spans, left in told:
        idle |= dict.fromkeys(_cpus(spans), float(left))
    if told and cpus is None:
        cpus = max(idle, default=-1) + 1 or None
    return load(cpu=_use(rows["all"], "%") if "all" in rows else None, cpus=cpus, **by_cpu(idle))


def _is_cpu(word: str) -> bool:
    return word == "all" or (word.isdecimal() and len(word) < 5)


def _cpus(spans: str) -> Iterator[int]:
    for span in spans.split(","):
        first, _, last = span.partition("-")
        yield from range(int(first), min(int(last or first), 8191) + 1)


def _use(row: Mapping[str, float], mark: str) -> CpuUse:
    def of(*names: str) -> float:
        return round(sum(row.get(mark + name, 0.0) for name in names), 2)

    return CpuUse(
        of("usr", "user", "nice"), of("sys", "system", "irq", "soft"), of("iowait"), of("steal"), row[f"{mark}idle"]
    )


def _json(text: str) -> Load:
    """mpstat -o JSON: the last of its intervals."""
    try:
        one = json.loads(text)["sysstat"]["hosts"][0]
        loads = {str(row["cpu"]): row for row in one["statistics"][-1]["cpu-load"]}
        rows = {
            cpu: {key: float(value) for key, value in row.items() if isinstance(value, int | float)}
            for cpu, row in loads.items()
        }
        idle = {int(cpu): row["idle"] for cpu, row in rows.items() if cpu.isdecimal()}
        use = _use(rows["all"], "") if "all" in rows else None
        cpus = one.get("number-of-cpus")
        return load(cpu=use, cpus=cpus if isinstance(cpus, int) else None, **by_cpu(idle))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise refuse("what mpstat -o JSON prints", text) from error


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


def named_host(text: str) -> str:
    if text.lstrip()[:1] == "{":
        found = _NODENAME.search(text[:2000])
        return found[1] if found else ""
    return host(text)


TOOL = Tool("mpstat", "host.load", fits, read, host=named_host)
