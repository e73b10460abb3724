"""gpustat, as text and as JSON.

    gpu-017             Wed May 14 20:31:08 2025  535.161.08
    [0] NVIDIA A100-SXM4-80GB | 61'C,  99 %,  412 / 400 W | 72311 / 81920 MB | alice(72300M)

Source   wookayin/gpustat, core.py: its JSON has the names of nvidia-smi --query-gpu
Shape    facts of gpu.state
Errors   ParseError when no GPU is in it
"""

from __future__ import annotations

import json
import re
from typing import Any

from probes.catalog.gpu.facts import GpuState
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

MOST = 512
_ROW = re.compile(r"\s{0,4}\[(\d{1,3})\] ([^|\n]{2,80}?) {0,20}\|([^|\n]{3,80})\|([^|\n]{3,60})(?:\||$)")
_HEAD = re.compile(r"\s{0,4}([A-Za-z][\w.-]{0,62}) {1,60}[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_HEADS = re.compile(rf"^{_HEAD.pattern}", re.M)
_TEMPERATURE = re.compile(r"(\d{1,3}) ?(?:°|'|)C")
_USE = re.compile(r"(\d{1,3}) ?%")
_POWER = re.compile(r"(\d{1,4})(?: ?/ {0,3}(\d{1,4}))? ?W")
_MEMORY = re.compile(r"(\d{1,7}) ?/ {0,6}(\d{1,7}) ?M")


def _fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] == "{":
        return '"gpus"' in head and '"utilization.gpu"' in head
    rows = [line for line in lines_of(head[:8192], 400) if _ROW.match(line)]
    return bool(rows) and all(_USE.search(row) and _MEMORY.search(row) for row in rows)


def read(text: str) -> GpuState:
    body = text.lstrip("\ufeff \r\n\t")
    rows = _of_json(body) if body[:1] == "{" else _of_text(body)
    if not rows:
        raise ParseError("gpustat: no GPU in it")
    return GpuState(None, tuple(gpu_of(row) for row in rows[:MOST]), len(rows))


def _of_json(body: str) -> list[dict[str, str]]:
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise ParseError("gpustat: JSON that cannot be read") from None
    gpus = said.get("gpus") if isinstance(said, dict) else None
    found = []
    for one in gpus[:MOST] if isinstance(gpus, list) else ():
        if isinstance(one, dict):
            found.append({str(key): str(value) for key, value in one.items() if isinstance(value, str | int | float)})
    return found


def _of_text(body: str) -> list[dict[str, str]]:
    found = []
    for line in lines_of(body, 600):
        row = _ROW.match(line)
        if row is None:
            continue
        told = {"index": row[1], "name": row[2].strip()}
        heat, use, power = _TEMPERATURE.search(row[3]), _USE.search(row[3]), _POWER.search(row[3])
        memory = _MEMORY.search(row[4])
        told |= {"temperature.gpu": heat[1]} if heat else {}
        told |= {"utilization.gpu": use[1]} if use else {}
        told |= {"power.draw": power[1], "power.limit": power[2] or ""} if power else {}
        told |= {"memory.used": memory[1], "memory.total": memory[2]} if memory else {}
        found.append(told)
    return found


def _host(text: str) -> str:
    if text.lstrip()[:1] == "{":
        found = re.search(r'"hostname": ?"([A-Za-z][\w.-]{0,62})"', text[:4096])
    else:
        found = _HEAD.match(text.lstrip())
    return found[1] if found else ""


def by_node(text: str) -> dict[str, GpuState]:
    """Of each node whose line stands above its GPUs: a loop over nodes prints one below the other."""
    heads = [] if text.lstrip()[:1] == "{" else list(_HEADS.finditer(text[:4_194_304]))
    if len({found[1] for found in heads}) < 2:
        return {_host(text): read(text)}
    ends = [found.start() for found in heads[1:]] + [len(text)]
    return {found[1]: read(text[found.start() : end]) for found, end in zip(heads, ends, strict=True)}


TOOL = Tool("gpustat", "gpu.state", _fits, read, host=_host, by_node=by_node)
