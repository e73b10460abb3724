"""One GPU from named values, under the names that `nvidia-smi --help-query-gpu` gives them.

Shape    gpu_of({"pci.bus_id": "00000000:3B:00.0", "temperature.gpu": "41", ...}) -> Gpu
Units    as printed: a unit behind a number is taken off, whichever it is
Errors   none: what is no value of its kind is not known, and the word that stands there is kept in `missing`
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from probes.catalog.gpu.facts import LOST, REASONS, RESET, Gpu, bus_id, reasons_of
from probes.core import ParseError, clean

_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,6})?)\s?(?:%|[A-Za-z]{1,4}(?:/s)?)?")
NO_VALUE = ("N/A", "Not Supported", "Not Available", "Insufficient Permissions", "Unknown Error", "ERR!", LOST, RESET)
BAD = ("ERR!", "Unknown Error", LOST, RESET)
_YES, _NO = ("yes", "enabled", "active", "on", "1"), ("no", "disabled", "not active", "off", "0")


class Values:
    """Looks values up by name and notes why one is missing."""

    def __init__(self, values: Mapping[str, str]):
        self.values = values
        self.missing: dict[str, str] = {}

    def word(self, fact: str, *names: str) -> str | None:
        """The first of these that has a value."""
        for name in names:
            bare = self.values.get(name, "").strip().strip("[]")
            if bare and not bare.startswith(NO_VALUE):
                self.missing.pop(fact, None)
                return bare
            if bare:
                self.missing.setdefault(fact, clean(bare)[:60])
        return None

    def number(self, fact: str, *names: str) -> float | None:
        word = self.word(fact, *names)
        found = _NUMBER.fullmatch(word) if word else None
        if word and not found:
            self.missing[fact] = clean(word)[:60]
        return float(found[1]) if found else None

    def whole(self, fact: str, *names: str) -> int | None:
        found = self.number(fact, *names)
        return None if found is None else int(found)

    def yes(self, fact: str, *names: str) -> bool | None:
        word = (self.word(fact, *names) or "").lower()
        return True if word in _YES else False if word in _NO else None


def gpu_of(values: Mapping[str, str]) -> Gpu:
    """A GPU. `bus_id` is "" where the values hold none. A GPU of which most values are errors is a silent one."""
    row = Values(values)
    named = row.word("bus_id", "pci.bus_id", "gpu_bus_id")
    try:
        bus = bus_id(named) if named else ""
    except ParseError:
        bus = ""
    index = row.whole("index", "index")
    bad = [word.strip().strip("[]") for word in values.values() if word.strip().strip("[]").startswith(BAD)]
    if len(bad) >= 3 and len(bad) * 2 >= sum(bool(word.strip()) for word in values.values()) - 6:
        worst = next((word for word in bad if word.startswith((LOST, RESET))), "Unknown Error")
        return Gpu(bus, index, answered=False, silence=clean(worst)[:60], outcome="failed", name=_name(row))
    action = row.word("recovery_action", "gpu_recovery_action")
    return Gpu(
        bus_id=bus,
        index=index,
        name=_name(row),
        uuid=row.word("uuid", "uuid", "gpu_uuid"),
        recovery_action=action.lower().replace("gpu ", "") if action else _old_action(row),
        persistence=row.yes("persistence", "persistence_mode"),
        mig=row.yes("mig", "mig.mode.current"),
        mig_pending=row.yes("mig_pending", "mig.mode.pending"),
        pstate=row.word("pstate", "pstate"),
        temperature_c=row.whole("temperature_c", "temperature.gpu"),
        memory_c=row.whole("memory_c", "temperature.memory"),
        sm_mhz=row.whole("sm_mhz", "clocks.current.sm", "clocks.sm"),
        sm_max_mhz=row.whole("sm_max_mhz", "clocks.max.sm"),
        reasons=_reasons(row),
        power_w=row.number("power_w", "power.draw", "power.draw.average", "power.draw.instant"),
        power_limit_w=row.number("power_limit_w", "enforced.power.limit", "power.limit"),
        power_default_w=row.number("power_default_w", "power.default_limit"),
        utilisation_percent=row.whole("utilisation_percent", "utilization.gpu"),
        memory_used_mib=row.whole("memory_used_mib", "memory.used"),
        memory_total_mib=row.whole("memory_total_mib", "memory.total"),
        ecc_corrected=row.whole("ecc_corrected", "ecc.errors.corrected.volatile.total"),
        ecc_uncorrected=row.whole("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total"),
        ecc=row.yes("ecc", "ecc.mode.current"),
        ecc_pending=row.yes("ecc_pending", "ecc.mode.pending"),
        sram_threshold_exceeded=row.yes("sram", "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded"),
        remapped_corrected=row.whole("remapped_corrected", "remapped_rows.correctable"),
        remapped_uncorrected=row.whole("remapped_uncorrected", "remapped_rows.uncorrectable"),
        remap_pending=row.yes("remap_pending", "remapped_rows.pending"),
        remap_failed=row.yes("remap_failed", "remapped_rows.failure"),
        pcie_gen=row.whole("pcie_gen", "pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
        pcie_gen_max=row.whole("pcie_gen_max", "pcie.link.gen.max"),
        pcie_width=row.whole("pcie_width", "pcie.link.width.current"),
        pcie_width_max=row.whole("pcie_width_max", "pcie.link.width.max"),
        pcie_replays=row.whole("pcie_replays", "pcie.replays"),
        vbios=row.word("vbios", "vbios_version"),
        fabric_state=(row.word("fabric_state", "fabric.state") or "").lower() or None,
        fabric_status=(row.word("fabric_status", "fabric.status") or "").lower() or None,
        missing=row.missing,
    )


def _name(row: Values) -> str | None:
    word = row.word("name", "name", "gpu_name")
    return clean(word)[:80] if word else None


def _old_action(row: Values) -> str | None:
    """Drivers before 560 say it in two lines."""
    reset, drain = row.yes("reset", "reset_required"), row.yes("drain", "drain_and_reset_recommended")
    return None if reset is None else "reset" if reset else "drain and reset" if drain else "none"


def _reasons(row: Values) -> tuple[str, ...] | None:
    """As a mask, or one value for each."""
    for front in ("clocks_event_reasons", "clocks_throttle_reasons"):
        mask = row.values.get(f"{front}.active", "").strip()
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask):
            return reasons_of(int(mask, 16))
        said = {name: row.yes(f"reasons.{name}", f"{front}.{name}") for _, name, _ in REASONS}
        if any(one is not None for one in said.values()):
            return tuple(name for name, one in said.items() if one)
    return None
