"""dcgmi dmon: fields of GPUs, a row per GPU and look.

    #Entity   GPUTL  SMACT     POWER    TMPTR   SMCLK
    ID                         W        C       MHz
    GPU 0     100    0.991     132.101  42      1980

Source   NVIDIA/DCGM, dcgm_fields.cpp (short names), DeviceMonitor.cpp of dcgmi (the heading; older ones begin
         `# Entity`, or name a GPU by its number alone)
Shape    facts of gpu.state: numbers are the median of a GPU's rows, all else its last row
Errors   ParseError when no row of a GPU is in it
"""

from __future__ import annotations

import re
from itertools import islice
from statistics import median

from probes.catalog.gpu.facts import GpuState
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

_HEAD = re.compile(r"#? {0,4}(?:#?Entity|Id) {2,40}(?=\S)([A-Z0-9][A-Z0-9 _%]{2,2000})$")
_ROW = re.compile(r"(?:GPU[ -]{0,2})?(\d{1,3})\s{1,40}(\S[^\n]{0,2000})$")
_VALUES = {  # short name -> name of --query-gpu; all are numbers that change
    "GPUTL": "utilization.gpu",
    "POWER": "power.draw",
    "TMPTR": "temperature.gpu",
    "SMCLK": "clocks.sm",
    "FBUSD": "memory.used",
    "PMLMT": "power.limit",
}
_LAST = {
    "EDVTL": "ecc.errors.uncorrected.volatile.total",
    "ECCDB": "ecc.errors.uncorrected.volatile.total",
    "ESVTL": "ecc.errors.corrected.volatile.total",
    "RMUNC": "remapped_rows.uncorrectable",
    "RRF": "remapped_rows.failure",
    "RRP": "remapped_rows.pending",
    "PCILG": "pcie.link.gen.current",
    "PCILW": "pcie.link.width.current",
    "PCIRC": "pcie.replays",
}
_REASONS = ("DVCCTR", "CLKTR", "CLOCK_THROTTLE_REASONS")
_NONE = ("N/A", "-", "ERR")
MOST = 100_000


def _fits(head: str, name: str) -> bool:
    return any(_HEAD.match(line.strip()) and _known(line) for line in islice(lines_of(head[:8192], 2400), 12))


def _known(line: str) -> bool:
    return bool({"GPUTL", "SMCLK", "POWER", "SMACT", "GRACT", "TMPTR", "TENSO"} & set(line.split()))


def read(text: str) -> GpuState:
    names: list[str] = []
    rows: dict[int, list[dict[str, str]]] = {}
    for number, line in enumerate(lines_of(text, 2400)):
        if number > MOST:
            break
        if (found := _HEAD.match(line.strip())) and _known(line):
            names = found[1].split()
        elif names and (found := _ROW.match(line.strip())):
            cells = found[2].split()
            if len(cells) == len(names):
                rows.setdefault(int(found[1]), []).append(dict(zip(names, cells, strict=True)))
    if not rows:
        raise ParseError("dcgmi dmon: a heading without a row of a GPU")
    return GpuState(None, tuple(gpu_of(_values(gpu, some)) for gpu, some in sorted(rows.items())[:256]))


def _values(gpu: int, some: list[dict[str, str]]) -> dict[str, str]:
    told = {"index": str(gpu)}
    for short, name in _VALUES.items():
        numbers = [float(row[short]) for row in some if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", row.get(short, ""))]
        if numbers:
            told[name] = f"{median(numbers):.1f}"
    for short, name in _LAST.items():
        if some[-1].get(short, "N/A") not in _NONE:
            told[name] = some[-1][short]
    if "utilization.gpu" not in told and (share := _active(some)) is not None:
        told["utilization.gpu"] = f"{share:.0f}"
    mask = next((some[-1][short] for short in _REASONS if some[-1].get(short, "").isdecimal()), "")
    return told | ({"clocks_event_reasons.active": f"0x{int(mask[:12]):x}"} if mask else {})


def _active(some: list[dict[str, str]]) -> float | None:
    """Percent of the time in which anything ran, where only profiling fields were asked for."""
    for short in ("GRACT", "SMACT"):
        shares = [float(row[short]) for row in some if re.fullmatch(r"[01](?:\.\d{1,6})?", row.get(short, ""))]
        if shares:
            return 100 * median(shares)
    return None


TOOL = Tool("dcgmi dmon", "gpu.state", _fits, read)
