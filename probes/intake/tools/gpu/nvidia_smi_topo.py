"""nvidia-smi topo -m: how GPUs and NICs of a node are connected, as the probe gpu.topo reads it."""

from __future__ import annotations

from probes.catalog.gpu_topo import header, parse
from probes.core import clean, lines_of
from probes.intake.tools import Tool


def _fits(head: str, name: str) -> bool:
    first = next((line for line in lines_of(head[:4096]) if line.strip()), "")
    return bool(header(first)) and "\nGPU0" in clean(head[:65536])


TOOL = Tool("nvidia-smi topo -m", "gpu.topo", _fits, parse)
