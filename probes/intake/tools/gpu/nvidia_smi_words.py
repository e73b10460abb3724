"""What nvidia-smi says instead of an answer, and nvidia-smi -L.

Source   nvidia-smi(1): return values and their messages; NVML's texts (nvmlErrorString)
Shape    facts of gpu.state. The list of -L has no bus ids: the index and the UUID name a GPU
Errors   none beyond those of gpu.state
"""

from __future__ import annotations

import re

from probes.catalog.gpu.facts import Gpu, GpuState
from probes.catalog.gpu.smi import smi
from probes.core import ParseError, clean, lines_of
from probes.intake.tools import Tool

_LISTED = re.compile(r"GPU (\d{1,3}): (\S[^()]{0,80}?) {0,4}\(UUID: {0,2}(GPU-[0-9a-fA-F-]{8,40})\)")
_WORDS = (
    "Unable to determine the device handle for",
    "Failed to initialize NVML",
    "NVIDIA-SMI has failed",
    "NVIDIA-SMI couldn't",
    "No devices were found",
    "Failed to properly shut down NVML",
    "No running processes found",
)
_DRIVER = _WORDS[1:5]
_SHORT = 4096


def _fits(head: str, name: str) -> bool:
    lines = [line.strip() for line in head[:_SHORT].splitlines() if line.strip()]
    if not lines or "NVSMI LOG" in head or "Link 0" in head or "Nvlink" in head:
        return False
    if _LISTED.match(lines[0]):
        return True
    # A log may quote these words; the tool's own output is nothing else.
    return len(head) < _SHORT and lines[0].startswith(_WORDS[:5]) and len(lines) <= 20


def read(text: str) -> GpuState:
    """Listed GPUs, those that cannot be reached, and what is wrong with the driver."""
    gpus: list[Gpu] = []
    problem = ""
    for line in lines_of(text, 400):
        line = line.strip()
        if found := _LISTED.match(line):
            gpus.append(Gpu("", int(found[1]), name=clean(found[2]), uuid=found[3]))
        elif line.startswith(_WORDS[0]):
            try:
                gpus += smi(line)[2]
            except ParseError:  # no bus id in it
                gpus.append(Gpu("", answered=False, silence=clean(line)[:200], outcome="failed"))
        elif line.startswith(_DRIVER):
            problem = problem or clean(line)[:200]
    if not gpus and not problem:
        raise ParseError(f"nvidia-smi: expected a list of GPUs or an error of it, found {clean(text.strip())[:60]!r}")
    listed = sum(gpu.answered for gpu in gpus)
    return GpuState(None, tuple(gpus), listed or None, problem=problem)


TOOL = Tool("nvidia-smi -L", "gpu.state", _fits, read)
