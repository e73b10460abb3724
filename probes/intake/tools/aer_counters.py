"""Counters of PCIe errors that the kernel keeps for each device: aer_dev_correctable and the two others.

    /sys/bus/pci/devices/0000:3b:00.0/aer_dev_correctable:TOTAL_ERR_COR 88121      grep . of many
    RxErr 0 ... TOTAL_ERR_COR 88121                                                 one file, named by its device

Source   Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats
Shape    facts host.aer_counters: the total of each device and kind, since boot
Errors   ParseError when no total is in it
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from probes.core import Finding, ParseError, lines_of
from probes.intake.tools import Tool

MOST = 1024
MANY, TIMES = 1000, 20  # judgement: since boot, and against the usual device beside it
_BUS = r"(?P<bus>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_TOTAL = re.compile(r"TOTAL_ERR_(?P<kind>COR|FATAL|NONFATAL)[ =:]{1,3}(?P<count>\d{1,18})")
_DEVICE = re.compile(_BUS, re.I)


@dataclass(frozen=True, slots=True)
class Counted:
    device: str  # dddd:bb:dd.f, "" where nothing says it
    kind: str  # COR, FATAL, NONFATAL
    count: int


@dataclass(frozen=True, slots=True)
class AerCounters:
    totals: tuple[Counted, ...]


def read(text: str) -> AerCounters:
    """The device stands before its total: in the same line, or in the last heading above it."""
    found: list[Counted] = []
    device = ""
    for line in lines_of(text, 600):
        if told := _DEVICE.search(line):
            device = told[1].lower()
        if (total := _TOTAL.search(line)) and len(found) < MOST:
            found.append(Counted(device, total["kind"], int(total["count"])))
    if not found:
        raise ParseError("PCIe error counters: no total in it")
    return AerCounters(tuple(found))


def _named(facts: AerCounters, path: str) -> AerCounters:
    told = _DEVICE.search(re.sub(r"(?<=[0-9a-fA-F])_(?=[0-9a-fA-F])", ":", path))
    if told is None:
        return facts
    return AerCounters(tuple(replace(one, device=one.device or told[1].lower()) for one in facts.totals))


def findings(facts: AerCounters) -> Iterator[Finding]:
    for one in facts.totals:
        if not one.device or not one.count:
            continue
        others = sorted(two.count for two in facts.totals if two.kind == one.kind and two.device != one.device)
        usual = others[len(others) // 2] if others else 0
        words = {"COR": "corrected", "FATAL": "fatal", "NONFATAL": "uncorrected"}[one.kind]
        many = one.count >= (MANY if one.kind == "COR" else 1) and one.count >= TIMES * usual
        if many:
            says = f"PCIe device {one.device} has counted {one.count:,} {words} errors since boot"
            says += f", others about {usual:,}" if others else ""
            yield Finding("gpu.aer_counted", "warn", says, {"bus_id": one.device})


def _fits(head: str, name: str) -> bool:
    return bool(_TOTAL.search(head[:16_384]))


TOOL = Tool("counters of PCIe errors", "host.aer_counters", _fits, read, findings, named=_named)
