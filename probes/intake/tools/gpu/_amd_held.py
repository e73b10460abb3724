"""What holds an AMD GPU's clocks down, from any form of amd-smi.

Source   AMD SMI documentation, "GPU violations": PVIOL, TVIOL and the others are the share of the time of the last
         sample; the flags of gpu_metrics v1.3 (MI200); amdsmi.h on indep_throttle_status
Shape    held_back(values of one GPU by the tool's own names) -> our names, as clocks event reasons
Units    percent
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MOST_OF_THE_TIME = 20.0  # percent, judgement: a GPU at its limits touches them now and then
_NUMBER = re.compile(r"(\d{1,3}(?:\.\d{1,6})?) ?%?$")
# The tool's name, in whatever section or table -> reason.
_SHARES = (
    (re.compile(r"(?:.*\.)?(?:PVIOL|PPT_VIOLATION_ACTIVITY|PER_PPT_PWR|PPT_PERCENT)"), "sw_power_cap"),
    (
        re.compile(
            r"(?:.*\.)?(?:(?:|PHOT_|VR_|HBM_)TVIOL"
            r"|(?:PROCHOT|SOCKET_THERMAL|VR_THERMAL|HBM_THERMAL)_VIOLATION_ACTIVITY"
            r"|PER_(?:PROCHOT|SOCKET|VR|HBM)_THRM)"
        ),
        "hw_thermal_slowdown",
    ),
)
_STATES = (
    (re.compile(r"(?:.*\.)?(?:PPT_VIOLATION_STATUS|ACTIVE_PPT_PWR)"), "sw_power_cap"),
    (
        re.compile(
            r"(?:.*\.)?(?:(?:PROCHOT|SOCKET_THERMAL|VR_THERMAL|HBM_THERMAL)_VIOLATION_STATUS"
            r"|ACTIVE_(?:PROCHOT|SOCKET|VR|HBM)_THRM)"
        ),
        "hw_thermal_slowdown",
    ),
)
_FLAGS = re.compile(r"(?:.*\.)?(?:INDEP_)?THROTTLE_STATUS", re.I)
_HOT = re.compile(r"PROCHOT|TEMP_|THERMAL", re.I)
_POWER = re.compile(r"PPT|TDC|EDC|POWER", re.I)


def held_back(row: Mapping[str, str]) -> dict[str, str]:
    """Only of a GPU of which the tool tells it. Where a share is told it counts, else whether it is so now."""
    shares: dict[str, float] = {}
    states: dict[str, bool] = {}
    for key, value in row.items():
        name, said = key.upper(), value.strip()
        if reason := _first(_SHARES, name):
            if found := _NUMBER.match(said):
                shares[reason] = max(shares.get(reason, 0.0), float(found[1]))
        elif reason := _first(_STATES, name):
            if said and said != "N/A":
                states[reason] = states.get(reason, False) or said.upper() in ("ACTIVE", "TRUE", "1")
        elif _FLAGS.fullmatch(name) and said.upper() not in ("N/A", "UNTHROTTLED", "0", ""):
            states["hw_thermal_slowdown"] = bool(_HOT.search(said)) or states.get("hw_thermal_slowdown", False)
            states["sw_power_cap"] = bool(_POWER.search(said)) or states.get("sw_power_cap", False)
    told = states | {reason: share >= MOST_OF_THE_TIME for reason, share in shares.items()}
    return {f"clocks_event_reasons.{name}": "Active" if so else "Not Active" for name, so in told.items()}


def _first(table: tuple[tuple[re.Pattern[str], str], ...], name: str) -> str:
    return next((reason for pattern, reason in table if pattern.fullmatch(name)), "")
