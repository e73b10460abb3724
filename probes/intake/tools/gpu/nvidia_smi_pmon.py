"""nvidia-smi pmon: use of each GPU by each process.

Source   nvidia-smi(1), pmon: `# gpu pid type sm mem ...`; a GPU without a process has "-"
Shape    facts gpu.dmon: the use of a GPU is the sum over its processes, the median of its looks
Errors   ParseError when no row is in it
"""

from __future__ import annotations

import re
from statistics import median

from probes.catalog.host.facts import Dmon, Sampled
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

_HEAD = re.compile(r"# {0,4}(?:Date {1,9}Time {1,9})?gpu {1,12}pid {1,12}type {1,12}")
MOST = 100_000


def read(text: str) -> Dmon:
    names: list[str] = []
    looks: dict[int, dict[int, dict[str, float]]] = {}  # GPU -> number of the look -> process -> use
    at: dict[tuple[int, str], int] = {}
    for number, line in enumerate(lines_of(text, 600)):
        words = line.replace("#", " ").split()
        if {"gpu", "pid", "type"} <= set(words[:5]):
            names = words[: words.index("command")] if "command" in words else words
        elif names and len(words) >= len(names) and not line.startswith("#") and number < MOST:
            told = dict(zip(names, words, strict=False))
            if not (told["gpu"].isdecimal() and len(told["gpu"]) < 4):
                continue
            gpu, pid, use = int(told["gpu"]), told["pid"], told.get("sm", "-")
            look = at[gpu, pid] = at.get((gpu, pid), -1) + 1  # a process stands once in each look
            share = float(use) if re.fullmatch(r"\d{1,3}", use) else 0.0
            looks.setdefault(gpu, {}).setdefault(look, {})[pid] = share
    if not looks:
        raise ParseError("nvidia-smi pmon: a header without a row")
    found = []
    for gpu, some in sorted(looks.items())[:256]:
        use_of = [min(100.0, sum(one.values())) for one in some.values()]
        found.append(Sampled(gpu, len(use_of), None, None, median(use_of), None))
    return Dmon(tuple(found))


TOOL = Tool("nvidia-smi pmon", "gpu.dmon", lambda h, n: bool(_HEAD.match(h.lstrip())), read, lambda facts: ())
