"""nvidia-smi dmon: power, temperature, use and clocks of GPUs, a row per GPU and second.

Source   nvidia-smi(1), dmon; columns are named by its own header, which differs by -s
Shape    facts gpu.dmon: the median of each GPU's rows
Errors   ParseError when no row is in it
"""

from __future__ import annotations

import re
from statistics import median

from probes.catalog.host.facts import Dmon, Sampled
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

_HEAD = re.compile(r"# {0,4}(?:Date {1,9})?(?:Time {1,9})?gpu {1,9}(?!pid)(?:pwr|gtemp|sm|rxpci|mclk)\b")
MOST = 100_000


def read(text: str) -> Dmon:
    names: list[str] = []
    rows: dict[int, list[dict[str, float]]] = {}
    for at, line in enumerate(lines_of(text, 1000)):
        words = line.replace("#", " ").split()
        if "gpu" in words[:3]:
            names = words
        elif names and len(words) == len(names) and not line.startswith("#") and at < MOST:
            told = {name: float(word) for name, word in zip(names, words, strict=True) if _number(word)}
            if "gpu" in told:
                rows.setdefault(int(told["gpu"]), []).append(told)
    if not rows:
        raise ParseError("nvidia-smi dmon: a header without a row")
    return Dmon(tuple(_sampled(gpu, some) for gpu, some in sorted(rows.items())[:256]))


def _number(word: str) -> bool:
    return bool(re.fullmatch(r"\d{1,9}(?:\.\d{1,3})?", word))


def _sampled(gpu: int, rows: list[dict[str, float]]) -> Sampled:
    def middle(*names: str) -> float | None:
        found = [row[name] for row in rows for name in names if name in row]
        return median(found) if found else None

    return Sampled(gpu, len(rows), middle("pwr"), middle("gtemp", "temp"), middle("sm"), middle("pclk"))


TOOL = Tool("nvidia-smi dmon", "gpu.dmon", lambda h, n: bool(_HEAD.match(h.lstrip())), read, lambda facts: ())
