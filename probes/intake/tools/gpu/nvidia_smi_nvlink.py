"""nvidia-smi nvlink -s and -e: speed and error counters of every NVLink, as the probe gpu.nvlink reads it."""

from __future__ import annotations

from probes.catalog.gpu_nvlink import GPU, parse
from probes.intake.tools import Tool


def _fits(head: str, name: str) -> bool:
    return bool(GPU.match(head.lstrip())) and ("Link 0" in head or "link" in head.partition("\n")[2][:400].lower())


TOOL = Tool("nvidia-smi nvlink", "gpu.nvlink", _fits, parse)
