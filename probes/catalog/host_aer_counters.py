"""How many PCIe errors has each device of this node counted, and does it count more now?

    /sys/bus/pci/devices/0000:3b:00.0/aer_dev_correctable:TOTAL_ERR_COR 88121      grep . of many
    RxErr 0 ... TOTAL_ERR_COR 88121                                                 one file, named by its device

Source   Linux, Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats; GPUs, network adapters, NVSwitches and disks.
         A node is looked at twice, a second apart. No right is needed. Never run on a GPU
Units    errors since boot
Shape    AerCounters: the total of each device and kind
Errors   ParseError when no total is in it; Absent where no device counts
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.core import Finding, ParseError, Probe, lines_of
from probes.runner import Absent, read

__all__ = ["DEVICE", "PROBE", "TOTAL", "AerCounters", "Counted", "findings", "parse"]

MOST = 4096
MANY, TIMES = 1000, 20  # judgement: since boot, and against the usual device beside it
A_SECOND = 10  # judgement: corrected errors that come so fast are a storm, which costs time on the link
_BUS = r"(?P<bus>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
TOTAL = re.compile(r"TOTAL_ERR_(?P<kind>COR|FATAL|NONFATAL)[ =:]{1,3}(?P<count>\d{1,18})")
DEVICE = re.compile(_BUS, re.I)
WORDS = {"COR": "corrected", "FATAL": "fatal", "NONFATAL": "uncorrected"}


@dataclass(frozen=True, slots=True)
class Counted:
    """`risen`: by how much within a second, None where it was looked at once."""

    device: str  # dddd:bb:dd.f, "" where nothing says it
    kind: str  # COR, FATAL, NONFATAL
    count: int
    risen: int | None = None


@dataclass(frozen=True, slots=True)
class AerCounters:
    totals: tuple[Counted, ...]


def _collect() -> Mapping[str, str]:
    import os
    import time

    root = "/sys/bus/pci/devices"

    def value(slot: str, name: str) -> str:
        try:
            return read(f"{root}/{slot}/{name}", 4096)
        except OSError:
            return ""

    def look(slots: list[str]) -> str:
        lines = []
        for slot in slots:
            for kind in ("correctable", "nonfatal", "fatal"):
                for line in value(slot, "aer_dev_" + kind).split("\n"):
                    if line.startswith("TOTAL_ERR_"):
                        lines.append(f"{root}/{slot}/aer_dev_{kind}:{line}")
        return "\n".join(lines)

    slots = sorted(os.listdir(root)) if os.path.isdir(root) else []
    slots = [slot for slot in slots if value(slot, "class")[2:4] in ("01", "02", "03", "12")
        or (value(slot, "class")[2:6] == "0680" and value(slot, "vendor")[:6] == "0x10de")][:1024]  # fmt: skip
    first = look(slots)
    if not first:
        raise Absent("no PCIe device here counts its errors (aer_dev_correctable)")
    time.sleep(1.0)  # only what rises in between tells of now
    return {"first": first, "again": look(slots)}


def parse(text: str) -> AerCounters:
    """The device stands before its total: in the same line, or in the last heading above it. What is told twice has
    risen in between."""
    found: dict[tuple[str, str], Counted] = {}
    device = ""
    for line in lines_of(text, 600):
        if told := DEVICE.search(line):
            device = told[1].lower()
        if (total := TOTAL.search(line)) and len(found) < MOST:
            count, before = int(total["count"]), found.get((device, total["kind"]))
            risen = count - before.count if before is not None and device else None
            found[device, total["kind"]] = Counted(device, total["kind"], count, risen)
    if not found:
        raise ParseError("PCIe error counters: no total in it")
    return AerCounters(tuple(found.values()))


def findings(facts: AerCounters) -> Iterator[Finding]:
    """What has counted far more than its like, or counts now."""
    for one in facts.totals:
        if not one.device or not one.count:
            continue
        others = sorted(two.count for two in facts.totals if two.kind == one.kind and two.device != one.device)
        usual = others[len(others) // 2] if others else 0
        many = one.count >= (MANY if one.kind == "COR" else 1) and one.count >= TIMES * usual
        now = one.risen is not None and one.risen >= (A_SECOND if one.kind == "COR" else 1)
        if many or now:
            says = f"PCIe device {one.device} has counted {one.count:,} {WORDS[one.kind]} errors since boot"
            says += f", {one.risen:,} of them in the last second" if now else ""
            says += f", others about {usual:,}" if others else ""
            yield Finding("gpu.aer_counted", "warn", says, {"bus_id": one.device})


PROBE = Probe(
    "host.aer_counters",
    "How many PCIe errors has each device counted, and does it count more now?",
    parse,
    findings,
    collect=_collect,
    by_hand="grep . /sys/bus/pci/devices/*/aer_dev_*",
    timeout_s=5.0,
    cost="not measured: there was no such hardware",
)
