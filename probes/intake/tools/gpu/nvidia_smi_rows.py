"""Rows of nvidia-smi --query-gpu without their header: what a column is, is told by its units.

    0, NVIDIA H100 80GB HBM3, 99 %, 132.10 W, 1980 MHz, 0x0000000000000000

Source   nvidia-smi(1), --format=csv,noheader: values keep their units
Shape    facts of gpu.state: only what a unit tells; a bare number tells nothing but the index in the first column
Errors   ParseError when no row is in it
"""

from __future__ import annotations

import re

from probes.catalog.gpu.facts import GpuState
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

_KINDS = (  # what a value looks like -> names for the first, the second, ... column of its kind
    (re.compile(r"\d{1,3} %"), ("utilization.gpu",)),
    (re.compile(r"\d{1,4}\.\d{1,2} W"), ("power.draw", "power.limit")),
    (re.compile(r"\d{2,5} MHz"), ("clocks.sm",)),
    (re.compile(r"\d{1,7} MiB"), ("memory.used", "memory.total")),
    (re.compile(r"0x[0-9a-fA-F]{16}"), ("clocks_event_reasons.active",)),
    (re.compile(r"[0-9a-fA-F]{8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.0"), ("pci.bus_id",)),
    (re.compile(r"GPU-[0-9a-f-]{8,40}"), ("uuid",)),
    (re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro) [\w /+-]{1,60}"), ("name",)),
    (re.compile(r"P\d{1,2}"), ("pstate",)),
)
_FIRST = re.compile(r"\d{1,2}$|[0-9a-fA-F]{8}:[0-9a-fA-F]{2}:|GPU-[0-9a-f]{8}|(?:NVIDIA|Tesla) \S")
UNITS = 4  # kinds with a unit, the first of _KINDS


def _fits(head: str, name: str) -> bool:
    rows = [line for line in lines_of(head[:16_384], 1000) if line.strip()][:16]
    cells = [[cell.strip() for cell in row.split(",")] for row in rows]
    if not cells or len(cells[0]) < 3 or any(len(one) != len(cells[0]) for one in cells):
        return False
    units = sum(any(kind.fullmatch(cell) for kind, _ in _KINDS[:UNITS]) for cell in cells[0])
    return units >= 2 and all(_FIRST.match(one[0]) for one in cells)


def read(text: str) -> GpuState:
    """The last row of each GPU counts."""
    found = {}
    for number, line in enumerate(lines_of(text, 4096)):
        cells = [cell.strip() for cell in line.split(",")]
        if number > 20_000:
            break
        if len(cells) < 3 or not _FIRST.match(cells[0]):
            continue
        gpu = gpu_of(_named(cells))
        found[gpu.bus_id or gpu.uuid or (gpu.index if gpu.index is not None else f"row {number}")] = gpu
    if not found:
        raise ParseError("nvidia-smi: rows without a header, and none of a GPU")
    return GpuState(None, tuple(found.values())[:512])


def _named(cells: list[str]) -> dict[str, str]:
    told: dict[str, str] = {"index": cells[0]} if re.fullmatch(r"\d{1,2}", cells[0]) else {}
    for pattern, names in _KINDS:
        # Of a percentage, the first is the GPU's use; of two clocks nothing tells which is which.
        fit = [cell for cell in cells if pattern.fullmatch(cell)]
        if names == ("clocks.sm",) and len(fit) > 1:
            continue
        told |= dict(zip(names, fit, strict=False))
    return told


TOOL = Tool("nvidia-smi rows without a header", "gpu.state", _fits, read)
