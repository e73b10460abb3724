"""Counters of PCIe errors that the kernel keeps for each device, as files or through grep: see host.aer_counters."""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.host_aer_counters import DEVICE, TOTAL, AerCounters, parse
from probes.intake.tools import Tool


def _named(facts: AerCounters, path: str) -> AerCounters:
    told = DEVICE.search(re.sub(r"(?<=[0-9a-fA-F])_(?=[0-9a-fA-F])", ":", path))
    if told is None:
        return facts
    return AerCounters(tuple(replace(one, device=one.device or told[1].lower()) for one in facts.totals))


def _fits(head: str, name: str) -> bool:
    return bool(TOTAL.search(head[:16_384]))


TOOL = Tool("counters of PCIe errors", "host.aer_counters", _fits, parse, named=_named)
