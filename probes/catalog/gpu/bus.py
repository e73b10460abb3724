"""GPUs as the PCI bus shows them, beside what each told of itself to a process of its own.

Source   sysfs-bus-pci of the kernel; the answers of `isolate`
Shape    Gpu, of which the silent ones hold why
Errors   ParseError when a section is not what the collectors write
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from probes.catalog._collected import as_object
from probes.catalog.gpu.facts import Gpu, bus_id
from probes.core import ParseError, clean

ALL_ONES = 63  # the width field of a PCIe link status register that reads all ones: nothing answers on the bus


def silent(bus: str, told: Mapping[str, object]) -> Gpu:
    """A GPU whose own process brought no facts: what became of that process."""
    why, outcome, state, wchan = (clean(str(told.get(key) or ""))[:200] for key in ("why", "outcome", "state", "wchan"))
    why = f"did not answer: {why}" if outcome in ("hung", "timeout") else why or "did not answer"
    return Gpu(bus, answered=False, silence=why, outcome=outcome, state=state, wchan=wchan)


def add_pci(gpus: dict[str, Gpu], text: str, name: str) -> int:
    """Add the GPUs on the bus that were not asked, and what the bus says of those that did not answer."""
    rows = as_object(text, name).get("gpus")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ParseError(f"{name}: expected a list of GPUs")
    for row in rows:
        bus, driver = bus_id(str(row.get("bus_id"))), clean(str(row.get("driver") or ""))
        gpu = gpus.get(bus)
        if gpu is None:
            silence = f"not asked: it is bound to {driver}" if driver else "not asked: no driver is bound to it"
            gpu = Gpu(bus, answered=False, silence=silence, outcome="skipped")
        width, width_max = (int(w) if (w := str(row.get(key))).isdecimal() else None for key in ("width", "width_max"))
        if not gpu.answered:
            gpu = dataclasses.replace(gpu, pcie_width=width, pcie_width_max=width_max)
        gpus[bus] = gpu
    return len(rows)


def numbered(gpus: list[Gpu], attached: int | None) -> tuple[Gpu, ...]:
    """The driver numbers GPUs by bus id. Nothing is guessed when only some of the attached GPUs are shown, as
    a single one may be that was cut out of more."""
    if (attached is None and len(gpus) == 1) or (attached is not None and len(gpus) < attached):
        return tuple(gpus)
    taken = {gpu.index for gpu in gpus}
    places = iter(range(len(gpus)))
    numbered = []
    for gpu in gpus:
        place = None if gpu.outcome == "skipped" else next(places)
        if gpu.index is None and place is not None and place not in taken:
            gpu = dataclasses.replace(gpu, index=place)
        numbered.append(gpu)
    return tuple(numbered)
