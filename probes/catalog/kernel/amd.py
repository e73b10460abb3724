"""Kernel log lines of the AMD GPU driver: resets, ring time-outs, memory errors, a GPU that is lost.

Source   drivers/gpu/drm/amd/amdgpu (amdgpu_device.c, amdgpu_job.c, amdgpu_ras.c, gmc_v9_0.c) and amdkfd of the kernel
"""

from __future__ import annotations

import re

from probes.catalog.kernel.events import GpuProblem
from probes.catalog.kernel.gpu import bus_id
from probes.catalog.kernel.lines import Line
from probes.catalog.kernel.tally import Tally

_DEVICE = re.compile(r"amdgpu ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
_UNCORRECTABLE = re.compile(r"(\d{1,9}) uncorrectable hardware errors? detected", re.I)
_CORRECTABLE = re.compile(r"(\d{1,9}) correctable hardware errors? detected", re.I)
# (words in the line, what it is): the first that fits counts.
_WHAT = (
    (("GPU Recovery Failed", "GPU reset end with ret = -", "ASIC reset failed", "GPU reset failed"), "reset failed"),
    (("device lost from bus",), "lost"),
    (("GPU reset begin", "Uncorrectable hardware error(ERREVENT_ATHUB"), "reset"),
    (("poison", "Poison"), "poison"),
    (("Fatal error during GPU init", "Failed to initialize"), "init failed"),
    (("page fault (",), "page fault"),
    (
        (
            "qcm fence wait loop timeout",
            "Queue preemption failed",
            "unsuccessful queues preemption",
            "evict process queues",
            "queue preemption time out",
        ),
        "queue stuck",
    ),
)


class AmdLines:
    """Reads one line after another."""

    def __init__(self, tally: Tally):
        self.tally = tally
        self.last = ""  # the GPU that the driver last spoke of: [drm] lines name none

    def take(self, line: Line) -> bool:
        """True when the line was one of these."""
        text = line.text
        if "amdgpu" not in text:
            return False
        device = _DEVICE.search(text[:200])
        bus = bus_id(device[1]) if device else self.last
        self.last = bus
        what, count = _what(text)
        if not what:
            return False
        record = self.tally.count(GpuProblem, ("amd", bus, what), line, bus_id=bus, vendor="amd", what=what)
        record.count += count - 1
        return True


def _what(text: str) -> tuple[str, int]:
    if (found := _UNCORRECTABLE.search(text)) and int(found[1]) and "xgmi" in text[found.end() :].lower():
        return "link", int(found[1])
    if (found := _UNCORRECTABLE.search(text)) and int(found[1]):
        return "uncorrectable", int(found[1])
    if (found := _CORRECTABLE.search(text)) and int(found[1]):
        return "corrected", int(found[1])
    if "ring " in text and "timeout" in text and "*ERROR*" in text or ("amdgpu: ring " in text and " timeout" in text):
        return "ring timeout", 1
    return next((what for words, what in _WHAT if any(word in text for word in words)), ""), 1
