"""fabricmanager.log, and `systemctl status nvidia-fabricmanager`.

Source   recorded logs of fabric manager 535 to 570 (leptonai/gpud, test data); its user guide DU-09883; systemctl(1)
Shape    facts gpu.fabric_manager
Errors   ParseError when neither is in the text
"""

from __future__ import annotations

import re

from probes.catalog._gpu_links import FabricEvent, FabricManager, fabric_findings
from probes.core import ParseError, clean, lines_of
from probes.intake.tools import Tool

_LINE = re.compile(r"\[([A-Z][a-z]{2} \d\d \d{4} \d\d:\d\d:\d\d)\] \[(\w{4,8})\] \[tid \d{1,9}\] ([^\n]{0,600})")
_ACTIVE = re.compile(r"^ {1,8}Active: (\w{4,14})((?: \([^)]{0,60}\))?)", re.M)
_SWITCH = re.compile(r"NVSwitch pci bus id ([0-9a-fA-F:.]{8,16})")
_FATAL = re.compile(
    r"NVSwitch fatal error|failed to (?:configure|initialize|start|detect|train|get)"
    r"|fabric manager (?:instance )?stopped"
    r"|link training failed|degraded|don't match with driver|request to query NVSwitch device information .{0,40}failed"
    r"|fatal error|abort",
    re.I,
)
_STATES = ("active", "inactive", "failed", "activating", "deactivating")
MOST = 200


def _fits(head: str, name: str) -> bool:
    if "fabricmanager" in name and head.strip() in _STATES:
        return True
    return len(_LINE.findall(head[:16384])) > 1 or ("nvidia-fabricmanager.service" in head[:400] and "Active: " in head)


def read(text: str) -> FabricManager:
    if text.strip() in _STATES:  # systemctl is-active, by the command that is its name
        return FabricManager(text.strip() == "active", text.strip())
    unit = _ACTIVE.search(text[:4096]) if "nvidia-fabricmanager" in text[:4096] else None
    events: dict[str, list[object]] = {}
    configured = None
    known = unit is not None
    for line in lines_of(text, 2048):
        found = _LINE.search(line)
        if not found:
            continue
        known = True
        words = clean(found[3])[:240]
        if "uccessfully configured all the available" in words or "configured all NVSwitches" in words:
            configured, events = True, {}  # a new start: what stood before is over
        if found[2] not in ("ERROR", "FATAL", "CRITICAL"):
            continue
        key = re.sub(r"\d+", "#", words)
        if key in events:
            events[key][2] = int(str(events[key][2])) + 1
        elif len(events) < MOST:
            switch = _SWITCH.search(words)
            fatal = found[2] != "ERROR" or bool(_FATAL.search(words.replace("non-fatal", "")))
            events[key] = [words, found[1], 1, fatal, switch[1].lower() if switch else ""]
    if not known:
        raise ParseError("expected fabricmanager.log or systemctl status nvidia-fabricmanager")
    told = tuple(FabricEvent(*one) for one in events.values())  # type: ignore[arg-type]
    active = None if unit is None else unit[1] == "active"
    return FabricManager(active, f"{unit[1]}{unit[2]}" if unit else "", told, configured)


TOOL = Tool("fabric manager", "gpu.fabric_manager", _fits, read, fabric_findings)
