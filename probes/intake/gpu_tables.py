"""Tables with a row for each GPU of many nodes, or a column for each, as monitoring exports them and people type them.

    Time,node,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_POWER_USAGE        node  gpu  util  power_w  temp  sm_mhz
    2026-03-02 11:30:00,n20,1,0,72.1                                  n20   1    0 %   72.1 W   31 C  1980

    SM clocks (MHz)            [{"host": "n20", "gpu": 1, "clocks.sm": "1980 MHz"}]
    node  gpu0  gpu1  gpu2

Shape    tells(head) -> whether it begins as one; series(text) -> Series with labels node and gpu
Units    of a column without a known unit: percent, W, C, MHz, as nvidia-smi prints them
Errors   none: a row with another number of cells is left out
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from probes.intake.names import is_address, is_host
from probes.intake.own_tables import table_in
from probes.intake.series import Series
from probes.intake.when import moment_in

_NODE = re.compile(r"(?:node|host|machine|server|instance)(?:_?name)?", re.I)
_GPU = re.compile(r"gpu(?:_?(?:id|index|idx|no|num))?|index|idx|device|dev", re.I)
_ONE = re.compile(r"gpu[ _#-]?(\d{1,2})", re.I)
_TIME = re.compile(r"time(?:stamp)?|date|at|when|ts", re.I)
_METRIC = re.compile(r"DCGM_FI_\w{4,80}|nvidia_smi_\w{4,80}")
_UNIT = re.compile(r"[_ ]?[\[(]?(?:%|pct|percent|W|watts?|C|celsius|MHz)[\])]?$", re.I)
# What people call it, without its unit -> DCGM's name.
_CALLED = {
    "util": "GPU_UTIL", "utilization": "GPU_UTIL", "utilisation": "GPU_UTIL", "gpu_util": "GPU_UTIL",
    "utilization.gpu": "GPU_UTIL", "gpu-util": "GPU_UTIL", "power": "POWER_USAGE", "pwr": "POWER_USAGE",
    "power.draw": "POWER_USAGE", "power_draw": "POWER_USAGE", "power_usage": "POWER_USAGE", "temp": "GPU_TEMP",
    "temperature": "GPU_TEMP", "gpu_temp": "GPU_TEMP", "gtemp": "GPU_TEMP", "temperature.gpu": "GPU_TEMP",
    "sm": "SM_CLOCK", "sm_clock": "SM_CLOCK", "smclk": "SM_CLOCK", "sm_clk": "SM_CLOCK", "clock": "SM_CLOCK",
    "clk": "SM_CLOCK", "clocks.sm": "SM_CLOCK", "pclk": "SM_CLOCK", "clocks.current.sm": "SM_CLOCK",
    "ecc_dbe": "ECC_DBE_VOL_TOTAL", "clocks_event_reasons.active": "CLOCKS_EVENT_REASONS",
    "clocks_throttle_reasons.active": "CLOCKS_EVENT_REASONS",
}  # fmt: skip
# Words of a heading, in any order and with any others -> DCGM's name; the first that fits counts.
_WORDED = (
    (re.compile(r"(?=.{0,40}re-?map)(?=.{0,40}fail)", re.I), "ROW_REMAP_FAILURE"),
    (re.compile(r"(?=.{0,40}re-?map)(?=.{0,40}pend)", re.I), "ROW_REMAP_PENDING"),
    (
        re.compile(
            r"(?!.{0,40}(?:re-?map|aggr|life|total since))(?:.{0,30}uncorr|.{0,30}\bdbe|.{0,30}double.?bit)", re.I
        ),
        "ECC_DBE_VOL_TOTAL",
    ),
    (
        re.compile(r"(?!.{0,40}(?:re-?map|aggr|life|uncorr))(?:.{0,30}\bcorr|.{0,30}\bsbe|.{0,30}single.?bit)", re.I),
        "ECC_SBE_VOL_TOTAL",
    ),
    (re.compile(r"(?=.{0,40}(?:width|lanes))(?!.{0,40}max).{0,30}(?:pci|link|lane)", re.I), "PCIE_LINK_WIDTH"),
    (re.compile(r"(?=.{0,40}\bgen)(?!.{0,40}max).{0,30}(?:pci|link)", re.I), "PCIE_LINK_GEN"),
    (re.compile(r".{0,30}replay", re.I), "PCIE_REPLAY_COUNTER"),
    (re.compile(r"(?!.{0,40}(?:mem|hbm|max|limit)).{0,30}temp", re.I), "GPU_TEMP"),
    (re.compile(r"(?!.{0,40}(?:mem|max|limit|boost)).{0,30}(?:clock|clk|\bmhz)", re.I), "SM_CLOCK"),
    (re.compile(r"(?!.{0,40}(?:max|limit|cap|brake)).{0,30}(?:power|pwr|watt)", re.I), "POWER_USAGE"),
    (re.compile(r"(?!.{0,40}(?:mem|cpu)).{0,30}\butil", re.I), "GPU_UTIL"),
    (
        re.compile(r".{0,30}(?:throttl|clocks?.?event|slow.?down).{0,20}(?:reason|why)|reasons?", re.I),
        "CLOCKS_EVENT_REASONS",
    ),
)
# Words of a reason -> its bit (nvml.h, nvmlClocksEventReason...).
_REASONS = (
    (re.compile(r"hw[ _-]?thermal|hardware thermal", re.I), 0x40),
    (re.compile(r"power[ _-]?brake", re.I), 0x80),
    (re.compile(r"sw[ _-]?thermal|software thermal", re.I), 0x20),
    (re.compile(r"hw[ _-]?slow", re.I), 0x08),
    (re.compile(r"power[ _-]?cap", re.I), 0x04),
    (re.compile(r"\bidle", re.I), 0x01),
)
_SAID = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0, "none": 0.0, "ok": 0.0, "-": 0.0}
# Words of a title -> what the numbers below are.
_TITLED = (
    (re.compile(r"\b(?:sm |gpu |core )?clocks?\b|\bMHz\b", re.I), "SM_CLOCK"),
    (re.compile(r"\butili[sz]ation|\bGPU[- ]util|\butil\b", re.I), "GPU_UTIL"),
    (re.compile(r"\bpower\b|\bwatts?\b", re.I), "POWER_USAGE"),
    (re.compile(r"\btemp(?:erature)?s?\b", re.I), "GPU_TEMP"),
)
_VALUE = re.compile(
    r"(?:x|gen ?)?(-?\d{1,9}(?:\.\d{1,6})?|0x[0-9a-fA-F]{1,16}) ?(?:%|W|C|°C|MHz|x|lanes)?(?: \([^()]{1,30}\))?"
    r"(?: ?[!*<]{1,4}.{0,40})?",
    re.I,
)
MOST = 100_000


def _metric(cell: str) -> str:
    if _METRIC.fullmatch(cell):
        return cell
    said = cell.lower()
    called = _CALLED.get(said) or _CALLED.get(_UNIT.sub("", said))
    if not called and len(cell) < 41:
        called = next((name for words, name in _WORDED if words.match(said.replace("_", " "))), None)
    return f"DCGM_FI_DEV_{called}" if called else ""


def _is_head(cells: Sequence[str], above: str) -> bool:
    nodes, gpus = sum(bool(_NODE.fullmatch(one)) for one in cells), sum(bool(_GPU.fullmatch(one)) for one in cells)
    if nodes != 1:
        return False
    wide = sum(bool(_ONE.fullmatch(one)) for one in cells) > 1 and bool(_title(above))
    return wide or (gpus == 1 and any(_metric(one) for one in cells))


def _title(above: str) -> str:
    return next((name for words, name in _TITLED if words.search(above)), "")


def tells(head: str) -> bool:
    return table_in(head[:65_536], _is_head) is not None


def series(text: str) -> list[Series]:
    table = table_in(text, _is_head, MOST)
    found: dict[tuple[str, str, str], list[tuple[float | None, float]]] = {}
    titled = _title(table.above) if table is not None else ""
    for row in table.dicts() if table is not None else ():
        node = next((value for key, value in row.items() if _NODE.fullmatch(key)), "")
        if not (is_host(node) or is_address(node)):
            continue
        at = next((moment_in(value) for key, value in row.items() if _TIME.fullmatch(key)), None)
        index = next((value for key, value in row.items() if _GPU.fullmatch(key)), "")
        number = re.fullmatch(r"(?:GPU|nvidia)?[ _#-]?(\d{1,3})", index, re.I)
        for key, cell in row.items():
            one = _ONE.fullmatch(key)
            name, gpu = (f"DCGM_FI_DEV_{titled}", one[1]) if one else (_metric(key), number[1] if number else "")
            if gpu and name and not name.endswith("_DEV_") and (told := _value(name, cell)) is not None:
                found.setdefault((name, node, gpu), []).append((at, told))
    return [
        Series(name, {"node": node, "gpu": gpu, "Hostname": node}, tuple(points))
        for (name, node, gpu), points in found.items()
    ]


def _value(name: str, cell: str) -> float | None:
    """The number of a cell; yes, no and reasons as DCGM counts them."""
    if (value := _VALUE.fullmatch(cell)) is not None:
        return float(int(value[1], 16) if "x" in value[1] else value[1])
    if name.endswith("_REASONS"):
        bits = [bit for words, bit in _REASONS if words.search(cell[:200])]
        return float(sum(bits)) if bits else _SAID.get(cell.lower())
    return _SAID.get(cell.lower()) if "REMAP" in name else None
