"""Reads what the collector got from NVML for one GPU: raw NVML values and error codes, as JSON.

Source   nvml.h (NVML API reference); constants checked against nvidia-ml-py 13.615
Units    as NVML gives them: mW, MHz, bytes, ns; turned into those of Gpu here
Shape    {"driver", "values": {name: value}, "errors": {name: code}}, or {"error": code} when it could not be opened
Errors   ParseError when the JSON is not what the collector writes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probes.catalog._collected import as_object
from probes.catalog.gpu.facts import LOST, RESET, Gpu, reasons_of
from probes.core import ParseError

# nvmlReturn_t (nvml.h). 13 also stands for a function that this library or this pynvml does not have.
ERRORS = {
    2: "invalid argument",
    3: "not supported",
    4: "no permission",
    6: "not found: the driver does not know this GPU",
    8: "insufficient external power: a power cable is not attached",
    9: "the NVIDIA driver is not loaded",
    10: "timeout in the driver",
    11: "interrupt problem",
    12: "libnvidia-ml.so.1 was not found",
    13: "not in this version of the library",
    14: "the InfoROM is corrupted",
    15: LOST,
    16: RESET,
    17: "blocked by the operating system or cgroup",
    18: "driver/library version mismatch",
    999: "unknown error",
}
WHOLE_NODE = (9, 12, 18)  # say something about the node's driver, not about one GPU

# nvmlGpuRecoveryAction (field 230): 0 none, 1 GPU reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 recover the
# IMEX domain, 6 bus reset, 7 system reboot. The first five in the words that nvidia-smi -q prints, in lower case.
RECOVERY = (
    "none",
    "reset",
    "reboot",
    "drain p2p",
    "drain and reset",
    "recover imex domain",
    "bus reset",
    "system reboot",
)
FABRIC = ("not supported", "not started", "in progress", "completed")  # nvmlGpuFabricState_t
FIELDS = {  # NVML_FI_DEV_CLOCKS_EVENT_REASON_*, each in ns
    "field_74": "sw_power_cap",
    "field_76": "sync_boost",
    "field_269": "sw_thermal_slowdown",
    "field_270": "hw_thermal_slowdown",
    "field_271": "hw_power_brake_slowdown",
}
# nvmlNvLinkErrorCounter_t, each summed over lanes. Replays and recoveries are the link's own repair.
LINK_ERRORS = {
    "0": "replay",
    "1": "recovery",
    "2": "CRC error of flow control",
    "3": "CRC error of data",
    "4": "ECC error",
    "field_206": "malformed packet error",
    "field_207": "buffer overrun error",
    "field_208": "receive error",
    "field_211": "link integrity error",
    "field_214": "failed recovery error",
}
HELD_PERCENT = 5  # judgement: a change of P-state flashes for milliseconds
MIB = 1024 * 1024


def error_words(code: Any) -> str:
    return ERRORS.get(code, f"NVML error {code}") if isinstance(code, int) else "NVML error"


class _Values:
    """Looks values up by name and notes why one is missing, under the name of the fact."""

    def __init__(self, told: dict[str, Any], where: str):
        self.values = told.get("values", {})
        self.errors = told.get("errors", {})
        self.where = where
        self.missing: dict[str, str] = {}
        if not isinstance(self.values, dict) or not isinstance(self.errors, dict):
            raise ParseError(f"{where}: expected values and errors by name")

    def integer(self, name: str, fact: str, at: int | None = None) -> int | None:
        """A whole number; `at` picks one of a list (remapped rows, MIG mode)."""
        value = self.values.get(name)
        if value is None:
            self.missing[fact] = error_words(self.errors[name]) if name in self.errors else "not asked"
            return None
        if at is not None:
            value = value[at] if isinstance(value, list) and len(value) > at else "too short"
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ParseError(f"{self.where}: {name}: expected a whole number, found {str(value)[:40]!r}")
        return value

    def flag(self, name: str, fact: str, at: int | None = None) -> bool | None:
        value = self.integer(name, fact, at)
        return None if value is None else value != 0

    def scaled(self, name: str, fact: str, unit: int) -> int | None:
        value = self.integer(name, fact)
        return None if value is None else value // unit

    def watts(self, name: str, fact: str) -> float | None:
        value = self.integer(name, fact)
        return None if value is None else value / 1000

    def word(self, name: str, fact: str) -> str | None:
        value = self.values.get(name)
        if value is None:
            self.missing[fact] = error_words(self.errors.get(name))
            return None
        if not isinstance(value, str):
            raise ParseError(f"{self.where}: {name}: expected text, found {str(value)[:40]!r}")
        return value

    def choice(self, name: str, fact: str, words: tuple[str, ...]) -> str | None:
        value = self.integer(name, fact)
        if value is None:
            return None
        return words[value] if value < len(words) else f"unknown ({value})"


class _Looks:
    """What rose between the two looks."""

    def __init__(self, got: _Values):
        told = got.values.get("again") or {}
        before, after = got.values.get("links"), told.get("links") if isinstance(told, dict) else None
        if not isinstance(told, dict) or not all(isinstance(value, int | float | list) for value in told.values()):
            raise ParseError(f"{got.where}: again: expected numbers by name, found {str(told)[:40]!r}")
        self.first, self.again, self.where = got.values, told, got.where
        self.apart_s = round(float(told["s"]), 3) if isinstance(told.get("s"), int | float) else None
        self.links = None if before is None else len(before)
        self._before, self._after = self._counts(before), self._counts(after)

    def _counts(self, rows: Any) -> dict[int, dict[str, int]]:
        try:
            return {int(link): {str(key): int(count) for key, count in told.items()} for link, told in rows or ()}
        except (TypeError, ValueError, AttributeError):
            raise ParseError(f"{self.where}: links: expected counters by link, found {str(rows)[:40]!r}") from None

    def more(self, name: str) -> int | None:
        """None where one of the looks lacks it. A counter that went back was cleared: nothing is known then."""
        a, b = self.first.get(name), self.again.get(name)
        return b - a if isinstance(a, int) and isinstance(b, int) and b >= a else None

    def held(self) -> dict[str, float]:
        shares: dict[str, float] = {}
        for key, name in FIELDS.items():
            if (ns := self.more(key)) is not None and self.apart_s:
                shares[name] = round(min(100.0, ns / 1e7 / self.apart_s), 1)
        return shares

    def link_errors(self) -> dict[str, int]:
        rose: dict[str, int] = {}
        for link, counts in self._after.items():
            before = self._before.get(link, {})
            for key, kind in LINK_ERRORS.items():
                if key in counts and counts[key] > before.get(key, counts[key]):
                    rose[f"link {link} {kind}"] = counts[key] - before[key]
        return rose


def nvml(text: str, bus: str) -> tuple[str | None, Gpu, int | None]:
    """(driver version, GPU, error code when the GPU could not even be opened)."""
    told = as_object(text, f"NVML of GPU {bus}")
    driver = told.get("driver")
    driver = driver if isinstance(driver, str) else None
    if "error" in told:
        code = told["error"] if isinstance(told["error"], int) else 999
        return driver, Gpu(bus, answered=False, silence=error_words(code), outcome="failed"), code
    return driver, _gpu(_Values(told, f"NVML of GPU {bus}"), bus), None


def _gpu(got: _Values, bus: str) -> Gpu:
    bits = got.integer("reasons", "reasons")
    pids = got.values.get("pids", [])
    counted = {name: got.scaled(key, f"reason_us.{name}", 1000) for key, name in FIELDS.items()}
    looks = _Looks(got)
    pstate = got.integer("pstate", "pstate")
    if not isinstance(pids, list) or not all(isinstance(pid, int) for pid in pids):
        raise ParseError(f"{got.where}: pids: expected whole numbers, found {str(pids)[:40]!r}")
    return Gpu(
        bus,
        index=got.integer("index", "index"),
        name=got.word("name", "name"),
        uuid=got.word("uuid", "uuid"),
        recovery_action=_recovery(got),
        persistence=got.flag("persistence", "persistence"),
        mig=got.flag("mig", "mig", 0),
        mig_pending=got.flag("mig", "mig_pending", 1),
        pstate=None if pstate is None or pstate > 15 else f"P{pstate}",  # 32 is NVML_PSTATE_UNKNOWN
        temperature_c=got.integer("temperature", "temperature_c"),
        memory_c=got.integer("field_82", "memory_c"),
        slowdown_c=got.integer("slowdown_at", "slowdown_c"),
        memory_max_c=got.integer("memory_at", "memory_max_c"),
        sm_mhz=got.integer("sm", "sm_mhz"),
        sm_max_mhz=got.integer("sm_max", "sm_max_mhz"),
        reasons=None if bits is None else _reasons(bits, looks.held()),
        reason_us={name: us for name, us in counted.items() if us is not None},
        held=looks.held(),
        power_w=got.watts("power", "power_w"),
        power_limit_w=got.watts("power_limit", "power_limit_w"),
        power_default_w=got.watts("power_default", "power_default_w"),
        utilisation_percent=got.integer("utilisation", "utilisation_percent"),
        memory_used_mib=got.scaled("memory_used", "memory_used_mib", MIB),
        memory_total_mib=got.scaled("memory_total", "memory_total_mib", MIB),
        ecc_corrected=got.integer("ecc_corrected", "ecc_corrected"),
        ecc_uncorrected=got.integer("ecc_uncorrected", "ecc_uncorrected"),
        ecc=got.flag("ecc_mode", "ecc", 0),
        ecc_pending=got.flag("ecc_mode", "ecc_pending", 1),
        sram_threshold_exceeded=got.flag("sram_threshold", "sram_threshold_exceeded"),
        remapped_corrected=got.integer("remapped", "remapped_corrected", 0),
        remapped_uncorrected=got.integer("remapped", "remapped_uncorrected", 1),
        remap_pending=got.flag("remapped", "remap_pending", 2),
        remap_failed=got.flag("remapped", "remap_failed", 3),
        pcie_gen=got.integer("pcie_gen", "pcie_gen"),
        pcie_gen_max=got.integer("pcie_gen_max", "pcie_gen_max"),
        pcie_width=got.integer("pcie_width", "pcie_width"),
        pcie_width_max=got.integer("pcie_width_max", "pcie_width_max"),
        pcie_replays=got.integer("field_94", "pcie_replays"),
        pcie_replays_more=looks.more("field_94"),
        ecc_corrected_more=looks.more("ecc_corrected"),
        nvlinks=looks.links,
        nvlink_errors=looks.link_errors(),
        looks_s=looks.apart_s,
        vbios=got.word("vbios", "vbios"),
        gsp=got.word("gsp", "gsp"),
        pids=tuple(dict.fromkeys(pids)),
        fabric_state=got.choice("fabric_state", "fabric_state", FABRIC),
        fabric_status=_fabric_status(got),
        missing=got.missing,
    )


def _reasons(bits: int, held: Mapping[str, float]) -> tuple[str, ...]:
    """Those of the moment, and those that came and went between the two looks."""
    now = reasons_of(bits)
    return now + tuple(name for name, percent in held.items() if percent >= HELD_PERCENT and name not in now)


def _recovery(got: _Values) -> str | None:
    """Field 230; older drivers have fields 226 (reset required) and 227 (drain and reset recommended)."""
    action = got.choice("field_230", "recovery_action", RECOVERY)
    if action is not None or got.values.get("field_226") is None:
        return action
    del got.missing["recovery_action"]
    if got.flag("field_226", "recovery_action"):
        return "reset"
    return "drain and reset" if got.values.get("field_227") else "none"


def _fabric_status(got: _Values) -> str | None:
    code = got.integer("fabric_status", "fabric_status")
    # The status means something only once the state is "completed" (nvml.h, nvmlGpuFabricInfo_t).
    if code is None or got.values.get("fabric_state") != 3:
        return None
    return "success" if code == 0 else error_words(code)
