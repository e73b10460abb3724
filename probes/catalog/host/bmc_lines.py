"""Lines of the event log of a machine's own controller (BMC), as `ipmitool sel list` and `sel elist` print them.

Source   ipmitool(1), sel; the sensors' event names of the IPMI specification 2.0, table 42-3
"""

from __future__ import annotations

import re

from probes.catalog.host.facts import HardwareError

_SEL = re.compile(
    r" {0,6}[0-9a-f]{1,5} \| (\d\d/\d\d/\d{2,4}|Pre-Init[\w -]{0,20}) {0,2}\| (\d\d:\d\d:\d\d[^|]{0,8}) ?\|"
    r" ([^|]{1,60}) \| ([^|]{1,80})(?:\| ([^|]{1,40}))?"
)
_SERIOUS = ("uncorrectable", "ierr", "machine check", "fatal", "bus uncorrectable", "catastrophic", "mcerr")
_POWER = ("power supply", "psu", "power unit", "ac lost", "power limit")
_HEAT = ("upper critical", "upper non-recoverable", "thermal trip", "over temperature", "fan")


def sel_line(line: str) -> HardwareError | None:
    """`1a | 03/04/2025 | 10:22:33 | Memory #0x53 | Uncorrectable ECC | Asserted`"""
    found = _SEL.match(line)
    if not found:
        return None
    sensor, what = found[3].strip(), found[4].strip()
    words = f"{sensor} {what}".lower()
    kind = "other"
    if (found[5] or "").strip().lower().startswith("deassert"):
        kind = "other"
    elif any(word in words for word in _SERIOUS):
        kind = "uncorrected"
    elif "correctable" in words or "ecc" in words.split():
        kind = "corrected"
    elif any(word in words for word in _POWER) and any(
        w in words for w in ("fail", "lost", "deassert", "limit", "redundancy")
    ):
        kind = "power"
    elif any(word in words for word in _HEAT) and any(
        w in words for w in ("critical", "trip", "fail", "over", "recoverable")
    ):
        kind = "heat"
    return HardwareError(kind, sensor[:60], 1, f"{found[1]} {found[2]}".strip(), what[:120])
