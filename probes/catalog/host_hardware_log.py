"""Which memory errors has this node's memory controller counted since it was booted?

Source   /sys/devices/system/edac/mc/mc*: ce_count and ue_count of controllers, dimm_ce_count, dimm_ue_count and
         dimm_label of modules (kernel admin guide, RAS, EDAC)
Units    errors since boot
Shape    HardwareLog, as edac-util gives it
Errors   ParseError when a line is not what the collector writes; Absent where no EDAC driver is loaded
"""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog._collected import as_rows, whole, word
from probes.catalog.host.facts import HardwareError, HardwareLog, hardware_findings
from probes.core import ParseError, Probe, sections
from probes.runner import Absent, read

__all__ = ["PROBE", "HardwareLog", "findings", "parse"]

findings = hardware_findings
MOST = 1024


def _collect() -> Mapping[str, str]:
    import json
    import os

    root = "/sys/devices/system/edac/mc"

    def number(path: str) -> int:
        try:
            told = read(path, 64).strip()
        except OSError:
            return 0
        return int(told) if told.isdigit() else 0

    def label(folder: str) -> str:
        try:
            return read(folder + "/dimm_label", 256).strip()
        except OSError:
            return ""

    try:
        controllers = sorted(name for name in os.listdir(root) if name.startswith("mc") and name[2:].isdigit())
    except OSError:
        controllers = []
    if not controllers:
        raise Absent("no EDAC driver counts memory errors here: /sys/devices/system/edac/mc has no controller")
    rows = []
    for name in controllers[:64]:
        here = f"{root}/{name}"
        told = 0
        for part in sorted(os.listdir(here)):
            if not part.startswith(("dimm", "rank")):
                continue
            counts = [number(f"{here}/{part}/dimm_{kind}_count") for kind in ("ce", "ue")]
            told += sum(counts)
            if any(counts):
                where = f"{name} {label(f'{here}/{part}') or part}"
                rows.append(json.dumps({"where": where, "corrected": counts[0], "uncorrected": counts[1]}))
        counts = [number(f"{here}/{kind}_count") for kind in ("ce", "ue")]
        if any(counts) and not told:  # of no module in particular
            rows.append(json.dumps({"where": name, "corrected": counts[0], "uncorrected": counts[1]}))
    return {"edac": "\n".join(rows[:1024])}


def parse(text: str) -> HardwareLog:
    """One JSON object per memory module with errors; none where nothing was counted."""
    parts = sections(text)
    if "edac" not in parts:
        raise ParseError(f"expected the section edac, found {', '.join(parts)[:80]}")
    errors = []
    for row in as_rows(parts["edac"], "memory module")[:MOST]:
        where = word(row, "where", "memory module", 120)
        for key, kind in (("uncorrected", "counted"), ("corrected", "corrected")):
            count = whole(row, key, where)
            if count > 0:
                errors.append(HardwareError(kind, where, count, "", "memory errors since boot"))
    return HardwareLog("EDAC", tuple(errors))


PROBE = Probe(
    "host.hardware_log",
    "Which memory errors has the memory controller counted since boot?",
    parse,
    findings,
    collect=_collect,
    by_hand="grep -r . /sys/devices/system/edac/mc/mc*/dimm*/dimm_*e_count; edac-util -v",
    timeout_s=3.0,
    cost="not measured: there was no such hardware",
)
