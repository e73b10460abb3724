"""fabricmanager.log, and `systemctl status nvidia-fabricmanager`, as the probe gpu.fabric_manager reads them."""

from __future__ import annotations

from probes.catalog.gpu_fabric_manager import LINE, parse
from probes.intake.tools import Tool


def _fits(head: str, name: str) -> bool:
    return len(LINE.findall(head[:16384])) > 1 or ("nvidia-fabricmanager.service" in head[:400] and "Active: " in head)


TOOL = Tool("fabric manager", "gpu.fabric_manager", _fits, parse)
