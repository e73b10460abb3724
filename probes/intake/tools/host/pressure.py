"""/proc/pressure/{cpu,io,memory} and a cgroup's *.pressure: bare, or as `grep . /proc/pressure/*` prints them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from probes.catalog.host.load_facts import Load, Pressure
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, number, refuse
from probes.intake.tools.host._load import load

_LINE = re.compile(
    r"^(?:\S{0,200}?(cpu|io|memory)(?:\.pressure)?[: ]\s{0,2})?(some|full) avg10=([\d.]{1,8})"
    r" avg60=([\d.]{1,8}) avg300=",
    re.M,
)
_HEAD = re.compile(r"(?:^|\n)[^\n]{0,100}?\b(cpu|io|memory)\b[^\n]{0,40}\n(?=some avg10=)", re.I)


def fits(head: str, name: str) -> bool:
    return bool(_LINE.search(head)) and not head.startswith("==> ")


def read(text: str) -> Load:
    """Lines without a name stand in `cpu_pressure` until the file's name tells what they are of."""
    found: dict[str, dict[str, float | None]] = {}
    heads = [(one.end(), one[1].lower()) for one in _HEAD.finditer(text)]
    for line in _LINE.finditer(text):
        of = line[1] or next((name for end, name in reversed(heads) if end <= line.start() + 1), "")
        found.setdefault(of, {}).update({f"{line[2]}10": number(line[3]), f"{line[2]}60": number(line[4])})
    if not found:
        raise refuse("a line 'some avg10='", text)
    told: dict[str, Any] = {f"{of or 'cpu'}_pressure": _of(one) for of, one in found.items()}
    return load(**told, source="" if "" in found else "file")


def _of(told: dict[str, float | None]) -> Pressure:
    return Pressure(told.get("some10"), told.get("some60"), told.get("full10"), told.get("full60"))


def named(facts: Load, path: str) -> Load:
    """The resource by the file's name."""
    if facts.source:
        return facts
    of = next((name for name in ("memory", "mem", "io", "cpu") if name in path.rpartition("/")[2].lower()), "")
    of = {"mem": "memory", "": "cpu"}.get(of, of)
    bare = replace(facts, cpu_pressure=None, source="file")
    if of == "memory":
        return replace(bare, memory_pressure=facts.cpu_pressure)
    return replace(bare, io_pressure=facts.cpu_pressure) if of == "io" else replace(facts, source="file")


TOOL = Tool("pressure", "host.load", fits, read, host=host_in, named=named)
