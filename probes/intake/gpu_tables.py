"""Tables with a row for each GPU of many nodes, as monitoring exports them and people type them, as series of metrics.

    Time,node,gpu,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_POWER_USAGE        node  gpu  util  power_w  temp  sm_mhz
    2026-03-02 11:30:00,n20,1,0,72.1                                  n20   1    0 %   72.1 W   31 C  1980

Shape    heads(line) -> columns, None where it is no such table; series(text) -> Series with labels node and gpu
Units    of a column without a known unit: percent, W, C, MHz, as nvidia-smi prints them
Errors   none: a row with another number of cells is left out
"""

from __future__ import annotations

import re
from itertools import islice

from probes.core import lines_of
from probes.intake.names import is_address, is_host
from probes.intake.series import Series
from probes.intake.when import moment_in

_NODE = re.compile(r"(?:node|host|machine|server|instance)(?:_?name)?", re.I)
_GPU = re.compile(r"gpu(?:_?(?:id|index|idx|no|num))?|index|idx|device|dev", re.I)
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
    "clk": "SM_CLOCK",
    "clocks.sm": "SM_CLOCK", "pclk": "SM_CLOCK", "clocks.current.sm": "SM_CLOCK", "ecc_dbe": "ECC_DBE_VOL_TOTAL",
}  # fmt: skip
_VALUE = re.compile(r"(-?\d{1,9}(?:\.\d{1,6})?) ?(?:%|W|C|°C|MHz)?")
MOST = 100_000


def _cells(line: str) -> list[str]:
    mark = next((one for one in ("\t", ",", ";", "|") if one in line), "")
    line = line.strip().strip("|")
    cells = line.split(mark) if mark else re.sub(r"(?<=\d) (?=(?:%|W|C|MHz)(?:\s|$))", "", line).split()
    return [cell.strip().strip("\"'") for cell in cells]


def _metric(cell: str) -> str:
    if _METRIC.fullmatch(cell):
        return cell
    said = cell.lower()
    called = _CALLED.get(said) or _CALLED.get(_UNIT.sub("", said))
    return f"DCGM_FI_DEV_{called}" if called else ""


def heads(line: str) -> list[str] | None:
    cells = _cells(line[:4000])
    nodes, gpus = sum(bool(_NODE.fullmatch(one)) for one in cells), sum(bool(_GPU.fullmatch(one)) for one in cells)
    return cells if nodes == 1 and gpus == 1 and any(_metric(one) for one in cells) else None


def series(text: str) -> list[Series]:
    first, _, rest = text.lstrip("\ufeff \t\r\n").partition("\n")
    columns = heads(first) or []
    node = next((at for at, one in enumerate(columns) if _NODE.fullmatch(one)), 0)
    gpu = next((at for at, one in enumerate(columns) if _GPU.fullmatch(one)), 0)
    time = next((at for at, one in enumerate(columns) if _TIME.fullmatch(one)), None)
    found: dict[tuple[str, str, str], list[tuple[float | None, float]]] = {}
    for line in islice(lines_of(rest, 4000), MOST):
        cells = _cells(line)
        number = (
            re.fullmatch(r"(?:GPU|nvidia)?[ _#-]?(\d{1,3})", cells[gpu], re.I) if len(cells) == len(columns) else None
        )
        if number is None or not (is_host(cells[node]) or is_address(cells[node])):
            continue
        at = None if time is None else moment_in(cells[time])
        for column, cell in zip(columns, cells, strict=True):
            if (name := _metric(column)) and (value := _VALUE.fullmatch(cell)):
                found.setdefault((name, cells[node], number[1]), []).append((at, float(value[1])))
    return [
        Series(name, {"node": host, "gpu": index, "Hostname": host}, tuple(points))
        for (name, host, index), points in found.items()
    ]
