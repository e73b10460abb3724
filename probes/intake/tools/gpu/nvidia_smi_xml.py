"""nvidia-smi -q -x.

Source   nvidia-smi(1); the DTD nvsmi_device_v12 and v13 as recorded outputs show it (tests/fixtures/tools)
Shape    facts of gpu.state
Errors   ParseError when no GPU is in it

Read as lines with a stack of element names: no entity of a stranger's document is ever expanded.
"""

from __future__ import annotations

import re

from probes.catalog.gpu.facts import REASONS, GpuState
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

_TAG = re.compile(r"<(/?)([a-z_0-9]{1,80})(?: id=\"([0-9A-Fa-f:.]{4,20})\")?(/?)>(?:([^<]{1,400})</\2>)?")
_NAMES = {
    "product_name": "name",
    "uuid": "uuid",
    "persistence_mode": "persistence_mode",
    "mig_mode/current_mig": "mig.mode.current",
    "mig_mode/pending_mig": "mig.mode.pending",
    "performance_state": "pstate",
    "gpu_recovery_action": "gpu_recovery_action",
    "gpu_reset_status/reset_required": "reset_required",
    "gpu_reset_status/drain_and_reset_recommended": "drain_and_reset_recommended",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "pcie.link.gen.current",
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "pcie.link.gen.max",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "pcie.link.width.current",
    "pci/pci_gpu_link_info/link_widths/max_link_width": "pcie.link.width.max",
    "fb_memory_usage/used": "memory.used",
    "fb_memory_usage/total": "memory.total",
    "utilization/gpu_util": "utilization.gpu",
    "temperature/gpu_temp": "temperature.gpu",
    "clocks/sm_clock": "clocks.current.sm",
    "max_clocks/sm_clock": "clocks.max.sm",
    "fabric/state": "fabric.state",
    "fabric/status": "fabric.status",
    "remapped_rows/remapped_row_corr": "remapped_rows.correctable",
    "remapped_rows/remapped_row_unc": "remapped_rows.uncorrectable",
    "remapped_rows/remapped_row_pending": "remapped_rows.pending",
    "remapped_rows/remapped_row_failure": "remapped_rows.failure",
}
for _front in ("gpu_power_readings", "power_readings"):  # renamed in driver 530
    _NAMES |= {
        f"{_front}/power_draw": "power.draw",
        f"{_front}/average_power_draw": "power.draw.average",
        f"{_front}/instant_power_draw": "power.draw.instant",
        f"{_front}/current_power_limit": "enforced.power.limit",
        f"{_front}/enforced_power_limit": "enforced.power.limit",
        f"{_front}/power_limit": "power.limit",
        f"{_front}/default_power_limit": "power.default_limit",
    }
for _bit, _reason, _label in REASONS:
    _word = "display_clocks_setting" if _reason == "display_clock_setting" else _reason
    _NAMES[f"clocks_event_reasons/clocks_event_reason_{_word}"] = f"clocks_event_reasons.{_reason}"
    _NAMES[f"clocks_throttle_reasons/clocks_throttle_reason_{_word}"] = f"clocks_event_reasons.{_reason}"
_ECC = re.compile(r"ecc_errors/volatile/(?:(single|double)_bit/total|(?:sram|dram)_(?:un)?correctable\w{0,12})")


def read(text: str) -> GpuState:
    """Every <gpu> of the document."""
    head: dict[str, str] = {}
    blocks: list[dict[str, str]] = []
    stack: list[str] = []
    for line in lines_of(text, 2048):
        for end, tag, bus, closed, value in _TAG.findall(line):
            if end:
                while stack and stack.pop() != tag:
                    pass
            elif value or closed:
                path = "/".join([*stack[2:], tag]) if stack[1:2] == ["gpu"] else tag
                _take(blocks[-1] if blocks and stack[1:2] == ["gpu"] else head, path, value.strip())
            elif len(stack) < 16:
                stack.append(tag)
                if stack[1:] == ["gpu"]:
                    blocks.append({"pci.bus_id": bus, "index": str(len(blocks))})
    count = int(head["attached_gpus"]) if head.get("attached_gpus", "").isdecimal() else None
    if not blocks and count != 0:
        raise ParseError("nvidia-smi -q -x: expected an element <gpu>, found none: was it cut?")
    if count is not None and len(blocks) < count:
        for block in blocks:
            del block["index"]
    return GpuState(head.get("driver_version"), tuple(gpu_of(block) for block in blocks), count)


def _take(block: dict[str, str], path: str, value: str) -> None:
    if found := _ECC.fullmatch(path):
        bad = found[1] == "double" if found[1] else "uncorrectable" in path
        name = f"ecc.errors.{'un' if bad else ''}corrected.volatile.total"
        before = block.get(name, "")
        if value.isdecimal() and len(value) < 19:
            block[name] = str(int(value) + (int(before) if before.isdecimal() else 0))
        else:
            block.setdefault(name, value)
    elif "/" not in path and path not in _NAMES:
        block.setdefault(path, value)
    elif path in _NAMES:
        block.setdefault(_NAMES[path], value)


TOOL = Tool("nvidia-smi -q -x", "gpu.state", lambda head, name: "<nvidia_smi_log>" in head[:2000], read)
