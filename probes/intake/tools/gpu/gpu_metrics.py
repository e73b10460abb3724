"""GPU metrics as exporters write them, or as Prometheus answers: the same facts as nvidia-smi tells.

Source   NVIDIA/dcgm-exporter, etc/*-counters.csv, and dcgm_fields.h (names and units); utkuozdemir/nvidia_gpu_exporter
         (nvidia_smi_ and the names of --query-gpu, units behind); ROCm/device-metrics-exporter (gpu_...)
Shape    facts of gpu.state: of each metric the last value; the node is named by a label
Units    as the names say: ratios become percent, hertz MHz, bytes MiB
Errors   ParseError when no metric of a GPU is in it
"""

from __future__ import annotations

import re
from collections import Counter

from probes.catalog.gpu.facts import REASONS, GpuState, bus_id
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError
from probes.intake.samples import Sample, is_query, samples
from probes.intake.tools import Tool

MOST = 4_096
# DCGM's field, without DCGM_FI_DEV_ or DCGM_FI_ -> a name of --query-gpu.
_DCGM = {
    "SM_CLOCK": "clocks.sm",
    "MAX_SM_CLOCK": "clocks.max.sm",
    "GPU_TEMP": "temperature.gpu",
    "POWER_USAGE": "power.draw",
    "POWER_USAGE_INSTANT": "power.draw.instant",
    "ENFORCED_POWER_LIMIT": "enforced.power.limit",
    "POWER_MGMT_LIMIT": "power.limit",
    "POWER_MGMT_LIMIT_DEF": "power.default_limit",
    "GPU_UTIL": "utilization.gpu",
    "FB_USED": "memory.used",
    "FB_TOTAL": "memory.total",
    "ECC_DBE_VOL_TOTAL": "ecc.errors.uncorrected.volatile.total",
    "ECC_SBE_VOL_TOTAL": "ecc.errors.corrected.volatile.total",
    "CORRECTABLE_REMAPPED_ROWS": "remapped_rows.correctable",
    "UNCORRECTABLE_REMAPPED_ROWS": "remapped_rows.uncorrectable",
    "ROW_REMAP_FAILURE": "remapped_rows.failure",
    "ROW_REMAP_PENDING": "remapped_rows.pending",
    "PCIE_LINK_GEN": "pcie.link.gen.current",
    "PCIE_MAX_LINK_GEN": "pcie.link.gen.max",
    "PCIE_LINK_WIDTH": "pcie.link.width.current",
    "PCIE_MAX_LINK_WIDTH": "pcie.link.width.max",
    "PCIE_REPLAY_COUNTER": "pcie.replays",
    "PERSISTENCE_MODE": "persistence_mode",
}
_REASON_FIELDS = ("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS")
_AMD = {
    "gpu_package_power": "power.draw",
    "gpu_average_package_power": "power.draw",
    "gpu_power_usage": "power.draw",
    "gpu_gfx_activity": "utilization.gpu",
    "gpu_junction_temperature": "temperature.gpu",
    "gpu_ecc_uncorrect_total": "ecc.errors.uncorrected.volatile.total",
    "gpu_ecc_correct_total": "ecc.errors.corrected.volatile.total",
    "gpu_used_vram": "memory.used",
    "gpu_total_vram": "memory.total",
    "pcie_replay_count": "pcie.replays",
}
# Of nvidia_gpu_exporter: nvidia_smi_clocks_current_sm_clock_hz, nvidia_smi_utilization_gpu_ratio ...
_SMI = re.compile(r"nvidia_smi_([a-z][a-z0-9_]{2,100})")
_UNITS = (("_clock_hz", 1e-6), ("_hz", 1e-6), ("_ratio", 100.0), ("_bytes", 1 / 1_048_576), ("_watts", 1.0),
    ("_celsius", 1.0))  # fmt: skip
_SMI_NAMES = {
    name.replace(".", "_"): name
    for name in (
        *(one for one in _DCGM.values()),
        "clocks.current.sm",
        "clocks_event_reasons.active",
        "clocks_throttle_reasons.active",
        *(f"{front}.{name}" for front in ("clocks_event_reasons", "clocks_throttle_reasons") for _, name, _ in REASONS),
    )
} | {"index": "index"}
_FITS = re.compile(
    r"^(?:DCGM_FI_\w{4,80}|nvidia_smi_\w{4,80}|gpu_(?:gfx_activity|package_power|power_usage)\w{0,40})\{", re.M
)


def _fits(head: str, name: str) -> bool:
    if is_query(head):
        return '"DCGM_FI_' in head or '"nvidia_smi_' in head or '"gpu_gfx_activity"' in head
    return len(_FITS.findall(head)) >= 2


def read(text: str) -> GpuState:
    """One GPU for each that labels tell apart. Instances (MIG) of a GPU are that GPU."""
    gpus: dict[str, dict[str, str]] = {}
    driver = None
    for one in samples(text):
        key = one.labels.get("uuid") or one.labels.get("gpu") or one.labels.get("gpu_id") or ""
        if not key or (len(gpus) >= MOST and key not in gpus):
            continue
        told = _told(one)
        if not told and one.name != "nvidia_smi_gpu_info":
            continue
        row = gpus.setdefault(key, {})
        row |= _labelled(one) | told
        driver = one.labels.get("dcgm_fi_driver_version") or one.labels.get("driver_version") or driver
    rows = [row for row in gpus.values() if any(name not in ("index", "uuid", "name", "pci.bus_id") for name in row)]
    if not rows:
        raise ParseError("GPU metrics: expected metrics of a GPU, found none")
    found = tuple(gpu_of(row) for row in rows)
    return GpuState(driver, found)


def _labelled(one: Sample) -> dict[str, str]:
    labels = one.labels
    named = {
        "index": labels.get("gpu") or labels.get("gpu_id") or labels.get("index", ""),
        "name": labels.get("modelname")
        or labels.get("model_name")
        or labels.get("card_model")
        or labels.get("name", ""),
        "uuid": labels.get("uuid", ""),
        "pci.bus_id": _bus(labels.get("pci_bus_id") or labels.get("pci_bus") or labels.get("pcie_bus_id") or ""),
    }
    return {name: value for name, value in named.items() if value}


def _bus(said: str) -> str:
    try:
        return bus_id(said) if said else ""
    except ParseError:
        return ""


def _told(one: Sample) -> dict[str, str]:
    if one.name.startswith("DCGM_FI_"):
        field = one.name.removeprefix("DCGM_FI_").removeprefix("DEV_")
        if field in _REASON_FIELDS:
            return {"clocks_event_reasons.active": f"0x{int(one.value):x}"} if 0 <= one.value < 2**63 else {}
        return {_DCGM[field]: _number(one.value)} if field in _DCGM and one.value < 2**62 else {}  # above: no value
    if found := _SMI.fullmatch(one.name):
        base, factor = found[1], 1.0
        for ending, times in _UNITS:
            if base.endswith(ending):
                base, factor = base.removesuffix(ending), times
                break
        name = _SMI_NAMES.get(base, "")
        if name.endswith("_reasons.active"):
            return {name: f"0x{int(one.value):x}"} if 0 <= one.value < 2**63 else {}
        return {name: _number(one.value * factor)} if name else {}
    if one.name == "gpu_clock" and one.labels.get("clock_type", "").upper().startswith("GPU_CLOCK_TYPE_SYSTEM"):
        return {"clocks.sm": _number(one.value)}
    name = _AMD.get(one.name, "")
    return {name: _number(one.value)} if name else {}


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def host(text: str) -> str:
    """The node that the labels name; "" where they name several."""
    nodes = Counter(one.node for one in samples(text[:262_144]) if one.node)
    plain = [node for node in nodes if re.fullmatch(r"[A-Za-z][\w.-]{0,62}", node)]
    return plain[0] if len(plain) == 1 else ""


TOOL = Tool("GPU metrics of an exporter", "gpu.state", _fits, read, host=host)
