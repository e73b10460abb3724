"""fabricmanager.log, and `systemctl status nvidia-fabricmanager`, as the probe gpu.fabric_manager reads them."""

from __future__ import annotations

from probes.catalog.gpu.links import FabricManager
from probes.catalog.gpu_fabric_manager import LINE, parse
from probes.intake.tools import Tool

_STATES = ("active", "inactive", "failed", "activating", "deactivating")


def _fits(head: str, name: str) -> bool:
    if "fabricmanager" in name and head.strip() in _STATES:
        return True
    return len(LINE.findall(head[:16384])) > 1 or ("nvidia-fabricmanager.service" in head[:400] and "Active: " in head)


def read(text: str) -> FabricManager:
    """Also the one word of systemctl is-active, when the command is the part's name."""
    word = text.strip()
    return FabricManager(word == "active", word) if word in _STATES else parse(text)


TOOL = Tool("fabric manager", "gpu.fabric_manager", _fits, read)
