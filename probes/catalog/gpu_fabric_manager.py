"""Does the fabric manager of a machine with NVSwitches run, and what does its log say?

Source   PCI class 0x0680 of vendor 0x10de (NVSwitch; pci.ids); `systemctl status nvidia-fabricmanager` (systemctl(1));
         the last 64 KiB of /var/log/fabricmanager.log: recorded logs of fabric manager 535 to 570 (leptonai/gpud, test
         data), its user guide DU-09883. Neither touches the driver. Never run on such a machine
Units    none; times as the log prints them (local time)
Shape    FabricManager
Errors   ParseError when neither is in the text
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from probes.catalog.gpu.links import FabricEvent, FabricManager, fabric_findings
from probes.core import ParseError, Probe, clean, lines_of
from probes.runner import Absent, isolate, read, sh, which

__all__ = ["LINE", "PROBE", "FabricManager", "findings", "parse"]

findings = fabric_findings


def _collect() -> Mapping[str, str]:
    import contextlib
    import os

    root, unit, path = "/sys/bus/pci/devices", "nvidia-fabricmanager", "/var/log/fabricmanager.log"

    def switches() -> int:
        found = 0
        for slot in os.listdir(root) if os.path.isdir(root) else []:
            try:
                vendor, kind = (read(f"{root}/{slot}/{name}", 64).strip() for name in ("vendor", "class"))
            except OSError:
                continue
            found += vendor == "0x10de" and kind.startswith("0x0680")
        return found

    def state() -> str:
        status, out, _ = sh(["systemctl", "status", unit, "--no-pager", "--lines=0"])
        return out if status != 4 else ""  # 4: there is no such unit

    count, parts = switches(), {}
    if which("systemctl"):
        (answer,) = isolate([("status", state)], 2.0)  # it asks D-Bus, which may hang
        if answer["outcome"] == "ok" and answer["text"].strip():
            parts[f"systemctl status {unit}"] = answer["text"]
    if not count and not parts:
        raise Absent("no NVSwitch on the PCI bus, and no fabric manager is installed")
    with contextlib.suppress(OSError), open(path, "rb") as handle:
        handle.seek(max(0, os.fstat(handle.fileno()).st_size - 65536))
        parts[path] = handle.read(65536).decode("utf-8", "surrogateescape")
    if not parts:
        parts["golden15/none"] = f"{count} NVSwitches, and no fabric manager is installed"
    return parts


LINE = re.compile(r"\[([A-Z][a-z]{2} [ \d]\d \d{4} \d\d:\d\d:\d\d)\] \[(\w{4,8})\] (?:\[tid \d{1,9}\] )?([^\n]{0,600})")
_ACTIVE = re.compile(r"^ {1,8}Active: (\w{4,14})((?: \([^)]{0,60}\))?)", re.M)
_SWITCH = re.compile(r"NVSwitch pci (?:bus id )?([0-9a-fA-F:.]{8,16})")
_FATAL = re.compile(
    r"NVSwitch fatal error|failed to (?:configure|initialize|start|detect|train|get)"
    r"|fabric manager (?:instance )?stopped"
    r"|link training failed|degraded|don't match with driver|request to query NVSwitch device information .{0,40}failed"
    r"|fatal error|abort",
    re.I,
)
_NONE = re.compile(r"==> golden15/none <==\n(\d{1,4}) NVSwitches")
MOST = 200


def parse(text: str) -> FabricManager:
    """The service's state and the log's errors since its last start; either may be missing."""
    if (none := _NONE.search(text[:4096])) is not None:
        return FabricManager(False, f"not installed, NVSwitches: {none[1]}")
    unit = _ACTIVE.search(text[:4096]) if "nvidia-fabricmanager" in text[:4096] else None
    events: dict[str, list[object]] = {}
    configured = None
    known = unit is not None
    for line in lines_of(text, 2048):
        found = LINE.search(line)
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


PROBE = Probe(
    "gpu.fabric_manager",
    "Does the fabric manager of a machine with NVSwitches run, and what does its log say?",
    parse,
    findings,
    collect=_collect,
    by_hand="systemctl status nvidia-fabricmanager; tail -n 100 /var/log/fabricmanager.log",
    timeout_s=5.0,
    touches="disk",
    cost="not measured: there was no such hardware",
)
