"""rocm-smi --json, rocm-smi's table, amd-smi as text and JSON.

Source   ROCm/amdsmi change log (recorded outputs of its tables); influxdata/telegraf's recorded rocm-smi JSON, whose
         keys differ by release
Shape    facts of gpu.state: an AMD GPU has no value for what only NVIDIA's driver knows
Errors   ParseError when no GPU is in it
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from probes.catalog.gpu.facts import GpuState
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools.gpu._amd_held import held_back
from probes.intake.tools.gpu._amd_tables import is_table, lines_by_card, table

_GPU = re.compile(r"GPU: (\d{1,3})\s{0,8}$")
_PAIR = re.compile(r"(\s{1,24})([A-Z][A-Z0-9_]{1,40}): ?([^\n]{0,120})$")
# key of the tool, as a pattern -> our name. The first that fits a key counts.
_KEYS = tuple(
    (re.compile(pattern, re.I), name)
    for pattern, name in (
        (r"PCI Bus|.*\bBDF", "pci.bus_id"),
        (r"Card Series|Card Model|MARKET_NAME|.*MARKET_NAME", "name"),
        (
            r"Temperature \(Sensor (?:junction|hotspot)\).*|.*TEMPERATURE\.HOTSPOT.*|HOTSPOT_TEMPERATURE",
            "temperature.gpu",
        ),
        (
            r"Average Graphics Package Power.*|Current Socket Graphics Package Power.*|.*SOCKET_POWER|POWER_USAGE",
            "power.draw",
        ),
        (r"Max Graphics Package Power.*|.*MAX_POWER", "power.limit"),
        (r"x\.GFX_CLOCK|GFX_CLO?C?K|.*CLOCK\.GFX(?:_0)?\.CLK", "clocks.sm"),
        (r".*CLOCK\.GFX(?:_0)?\.MAX_CLK", "clocks.max.sm"),
        (r"sclk clock speed:?", "clocks.sm"),
        (r"GPU use \(%\)|.*GFX_ACTIVITY|GFX", "utilization.gpu"),
        (r".*TOTAL_UNCORRECTABLE(?:_COUNT)?", "ecc.errors.uncorrected.volatile.total"),
        (r".*TOTAL_CORRECTABLE(?:_COUNT)?", "ecc.errors.corrected.volatile.total"),
        (r".*PCIE\.REPLAY_COUNT|PCIe Replay Count|PCIE_REPLAY", "pcie.replays"),
        (r".*PCIE\.WIDTH", "pcie.link.width.current"),
        (r".*BUS\.MAX_PCIE_WIDTH", "pcie.link.width.max"),
        (r"Driver version|.*DRIVER\.VERSION", "driver_version"),
    )
)
MOST = 512


def _fits(head: str, name: str) -> bool:
    body = head.lstrip()
    if body[:1] in "[{":
        start = body[:4096]
        return '"card0"' in start or (
            '"gpu":' in start and any(f'"{key}"' in head for key in ("bdf", "ecc", "pcie", "asic", "power"))
        )
    first = next((line for line in lines_of(body[:4096]) if line.strip()), "")
    return bool(_GPU.match(first) or is_table(body[:8192]) or ("ROCm System Management" in body[:600]))


def read(text: str) -> GpuState:
    body = text.lstrip("\ufeff \r\n\t")
    if body[:1] in "[{":
        rows, driver = _json(body)
    elif _GPU.match(body.partition("\n")[0]):
        rows, driver = _blocks(body), None
    else:
        rows, driver = lines_by_card(body) or table(body), None
    if not rows:
        raise ParseError("rocm-smi or amd-smi: expected a GPU, found none")
    return GpuState(driver, tuple(gpu_of(_named(row)) for row in rows[:MOST]), len(rows))


def _named(row: Mapping[str, str]) -> dict[str, str]:
    """Under our own names. rocm-smi numbers cards; amd-smi GPUs."""
    values = {name: row[name] for name in ("index",) if name in row}
    for key, value in row.items():
        for pattern, name in _KEYS:
            if pattern.fullmatch(key):
                values.setdefault(name, value.strip("()"))
                break
    # amd-smi bad-pages: a page that waits for a reset, and one that could not be put aside.
    for section, name in (("PENDING.", "remapped_rows.pending"), ("UN_RES.", "remapped_rows.failure")):
        if any(key.upper().startswith(section) for key in row):
            values[name] = "Yes"
    return values | held_back(row)


def _json(body: str) -> tuple[list[dict[str, str]], str | None]:
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise ParseError("rocm-smi or amd-smi: JSON that cannot be read") from None
    if isinstance(said, dict) and "card0" in said:
        cards = [(key[4:], one) for key, one in said.items() if key.startswith("card") and isinstance(one, dict)]
        system = said.get("system")
        driver = clean(str(system.get("Driver version")))[:40] if isinstance(system, dict) else None
        return [{"index": number} | {key: str(value) for key, value in one.items()} for number, one in cards], driver
    some = said if isinstance(said, list) else said.get("gpu_data", [said]) if isinstance(said, dict) else []
    return [{"index": str(one.get("gpu", ""))} | _flat(one) for one in some if isinstance(one, dict)], None


def _flat(one: Mapping[str, Any], front: str = "", depth: int = 0) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in one.items():
        name = f"{front}{key}".upper()
        if isinstance(value, dict) and "value" in value:
            value = value["value"]
        if isinstance(value, dict) and depth < 4:
            found |= _flat(value, f"{name}.", depth + 1)
        elif isinstance(value, str | int | float):
            found[name] = str(value)
    return found


def _blocks(text: str) -> list[dict[str, str]]:
    """`GPU: 0`, then indented sections with `KEY: value`."""
    rows: list[dict[str, str]] = []
    stack: list[tuple[int, str]] = []
    for line in lines_of(text, 400):
        if found := _GPU.match(line):
            rows.append({"index": found[1]})
            stack = []
        elif rows and (found := _PAIR.match(line)):
            indent = len(found[1])
            while stack and stack[-1][0] >= indent:
                stack.pop()
            if found[3].strip():
                rows[-1][".".join([*(name for _, name in stack), found[2]])] = found[3].strip()
            elif len(stack) < 6:
                stack.append((indent, found[2]))
    return rows


TOOL = Tool("rocm-smi or amd-smi", "gpu.state", _fits, read)
