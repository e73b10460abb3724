"""Which memory errors has this node's memory controller counted since it was booted?

Source   /sys/devices/system/edac/mc/mc*: ce_count and ue_count of controllers, dimm_ce_count, dimm_ue_count and
         dimm_label of modules (kernel admin guide, RAS, EDAC); twice, a second apart
Units    errors since boot, and within that second
Shape    HardwareLog, as edac-util gives it
Errors   ParseError when a line is not what the collector writes; Absent where no EDAC driver is loaded
"""

from __future__ import annotations

from collections.abc import Mapping

from probes.catalog._collected import as_rows, whole, whole_or_none, word
from probes.catalog.host.facts import HardwareError, HardwareLog, hardware_findings
from probes.core import ParseError, Probe, sections
from probes.runner import Absent, read

__all__ = ["PROBE", "HardwareLog", "findings", "parse"]

findings = hardware_findings
MOST = 1024
STORM = 2  # within a second: more than 100 a minute, gpu-and-host.md, row 49


def _collect() -> Mapping[str, str]:
    import json
    import os
    import time

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

    def counts() -> dict[str, list[int]]:
        """Folder -> corrected and uncorrected errors of a module; of a controller, where they are of no module."""
        found: dict[str, list[int]] = {}
        for name in controllers[:64]:
            known = 0
            for part in sorted(os.listdir(f"{root}/{name}")):
                if part.startswith(("dimm", "rank")):
                    here = f"{name}/{part}"
                    found[here] = [number(f"{root}/{here}/dimm_{kind}_count") for kind in ("ce", "ue")]
                    known += sum(found[here])
            if not known:
                found[name] = [number(f"{root}/{name}/{kind}_count") for kind in ("ce", "ue")]
        return found

    first = counts()
    time.sleep(1.0)
    rows = []
    for here, (corrected, uncorrected) in counts().items():
        before = first.get(here, [corrected, uncorrected])
        name, _, part = here.partition("/")
        row: dict[str, str | int] = {"where": f"{name} {label(f'{root}/{here}') or part}".strip()}
        row.update(corrected=corrected, uncorrected=uncorrected)
        row.update(corrected_more=max(0, corrected - before[0]), uncorrected_more=max(0, uncorrected - before[1]))
        if corrected or uncorrected:
            rows.append(json.dumps(row))
    return {"edac": "\n".join(rows[:1024])}


def parse(text: str) -> HardwareLog:
    """One JSON object per memory module with errors; none where nothing was counted."""
    parts = sections(text)
    if "edac" not in parts:
        raise ParseError(f"expected the section edac, found {', '.join(parts)[:80]}")
    errors = []
    for row in as_rows(parts["edac"], "memory module")[:MOST]:
        where = word(row, "where", "memory module", 120)
        for key, kind, now in (("uncorrected", "counted", "uncorrected"), ("corrected", "corrected", "rising")):
            count, more = whole(row, key, where), whole_or_none(row, f"{key}_more", where) or 0
            if more >= (STORM if now == "rising" else 1):
                errors.append(HardwareError(now, where, more, "", "memory errors within a second just now"))
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
