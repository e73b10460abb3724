"""Lines that somebody grep-ed out of `nvidia-smi -q`, with or without the lines that name the GPUs.

    $ nvidia-smi -q | grep -iE "^GPU|slowdown"       $ nvidia-smi -q | grep -A4 Fabric

Source   nvidia-smi(1), -q; recorded outputs of drivers 535 to 595: a label means one thing, or its value tells which
Shape    facts of gpu.state. Where no line names a GPU, a label that comes again begins the next one, in their order
Errors   ParseError when no known label is in it
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.gpu.facts import GpuState
from probes.catalog.gpu.rows import gpu_of
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool

_HEADER = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0)\s{0,8}")
_PAIR = re.compile(r"[ \t]{0,24}([A-Z][\w ./-]{1,44}?)\s{0,44}: {1,4}(\S[^\n]{0,60})")
_ACTIVE, _YES, _COUNT = r"(?:Not )?Active", r"Yes|No", r"\d{1,12}"
# (label, what its value looks like) -> the name of nvidia-smi --query-gpu.
_LABELS = (
    (r"HW Slowdown", _ACTIVE, "clocks_event_reasons.hw_slowdown"),
    (r"HW Thermal Slowdown", _ACTIVE, "clocks_event_reasons.hw_thermal_slowdown"),
    (r"HW Power Brake Slowdown", _ACTIVE, "clocks_event_reasons.hw_power_brake_slowdown"),
    (r"SW Thermal Slowdown", _ACTIVE, "clocks_event_reasons.sw_thermal_slowdown"),
    (r"SW Power Cap", _ACTIVE, "clocks_event_reasons.sw_power_cap"),
    (r"State", r"In Progress|Completed|Not Started", "fabric.state"),
    (r"Remapping Failure Occurred", _YES, "remapped_rows.failure"),
    (r"Pending", _YES, "remapped_rows.pending"),
    (r"Uncorrectable Error", _COUNT, "remapped_rows.uncorrectable"),
    (r"Correctable Error", _COUNT, "remapped_rows.correctable"),
    (r"(?:DRAM|SRAM) Uncorrectable.{0,20}", _COUNT, "ecc"),
    (r"GPU Recovery Action", r"[A-Z][\w ]{2,40}", "gpu_recovery_action"),
    (r"GPU Current Temp", r"\d{1,3} C", "temperature.gpu"),
    (r"(?:Average )?Power Draw", r"\d{1,4}\.\d{1,2} W", "power.draw"),
    (r"SM", r"\d{1,4} MHz", "clocks.sm"),
    (r"G(?:PU|pu)", r"\d{1,3} %", "utilization.gpu"),
    (r"Max", r"\d{1,2}x", "pcie.link.width.max"),
    (r"Current", r"\d{1,2}x", "pcie.link.width.current"),
    (r"Bus Id", r"[0-9A-Fa-f:]{10,16}\.0", "pci.bus_id"),
    (r"Product Name", r"[^\n]{3,60}", "name"),
    (r"GPU UUID", r"GPU-[0-9a-f-]{8,40}", "uuid"),
)
_KNOWN = tuple((re.compile(label), re.compile(value), name) for label, value, name in _LABELS)
_WEAK = ("pcie.link.width.max", "pcie.link.width.current", "name", "uuid", "remapped_rows.pending", "clocks.sm")
_ONLY = re.compile(r"(?<![\w-])(?:-i|--id)[ _=](\d{1,2})(?!\d)")
_ECC = "ecc.errors.uncorrected.volatile.total"
MOST = 512


def _told(line: str) -> tuple[str, str]:
    found = _PAIR.fullmatch(line.rstrip())
    if found is None:
        return "", ""
    label, value = found[1], found[2].strip()
    return next((name for one, form, name in _KNOWN if one.fullmatch(label) and form.fullmatch(value)), ""), value


def fits(head: str, name: str) -> bool:
    lines = [line for line in lines_of(head[:16_384], 400) if line.strip(" -\t")][:200]
    if not lines or "NVSMI LOG" in head:
        return False
    told = [_told(line)[0] for line in lines]
    pairs = sum(bool(_PAIR.fullmatch(line.rstrip()) or _HEADER.fullmatch(line)) for line in lines)
    asked = "nvidia-smi" in name and "-q" in name  # the command that is the part's name
    return (asked or any(one and one not in _WEAK for one in told)) and any(told) and pairs * 10 >= len(lines) * 6


def read(text: str) -> GpuState:
    gpus: list[dict[str, str]] = [{}]
    for line in lines_of(text[:4_194_304], 400):
        if header := _HEADER.fullmatch(line.rstrip()):
            gpus.append({"pci.bus_id": header[1]})
            continue
        name, value = _told(line)
        if name == "ecc":
            # Of volatile and aggregate the first are the volatile ones: SRAM's one or two, then DRAM's.
            label = line.split(" :")[0].strip()
            if f"ecc.{label}" not in gpus[-1]:
                gpus[-1][f"ecc.{label}"] = value
                gpus[-1][_ECC] = str(int(gpus[-1].get(_ECC, "0")) + int(value))
            continue
        if name and name in gpus[-1] and "pci.bus_id" not in gpus[-1]:
            gpus.append({})
        if name:
            gpus[-1].setdefault(name, value)
        if len(gpus) > MOST:
            break
    gpus = [one for one in gpus if one.keys() - {"pci.bus_id", "name", "uuid"}]
    if not gpus:
        raise ParseError("lines of nvidia-smi -q: no known label in it")
    if len(gpus) > 1:  # -q shows all of them, in the driver's order
        gpus = [one | {"index": str(at)} for at, one in enumerate(gpus)]
    return GpuState(None, tuple(gpu_of(one) for one in gpus))


def _named(facts: GpuState, path: str) -> GpuState:
    """`nvidia-smi -q -i 3`: the only GPU's index."""
    only = _ONLY.search(path.rpartition("/")[2])
    if only is None or len(facts.gpus) != 1 or facts.gpus[0].bus_id:
        return facts
    return replace(facts, gpus=(replace(facts.gpus[0], index=int(only[1])),))


TOOL = Tool("lines of nvidia-smi -q", "gpu.state", fits, read, named=_named)
