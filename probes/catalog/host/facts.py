"""Facts and findings of a node as a whole that files tell: boots, versions, hardware error logs, dmon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.core import Finding, Severity


@dataclass(frozen=True, slots=True)
class Boots:
    """uptime, who -b, last reboot, journalctl --list-boots. Times are as the node prints them, in its own zone where it
    names none: seconds since the epoch as if it were UTC, `utc` says whether it is."""

    booted: float | None  # the last boot
    utc: bool
    uptime_s: float | None
    before: float | None = None  # the boot before the last, or the end of the one before
    crashed: bool = False  # the one before ended without a shutdown (last says "crash")
    stamp: str = ""  # of the last boot, as printed
    of_day: float | None = None  # seconds since midnight at which uptime was asked, as it prints it


@dataclass(frozen=True, slots=True)
class Versions:
    """Component -> version, as the node's tools print them. "driver" is the loaded module; "driver library" what
    programs load; "driver module file" what is on disk and would be loaded at the next boot; "driver kind" whether
    the loaded module is NVIDIA's open or closed one; "dma-buf" whether the kernel was built with it."""

    found: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HardwareError:
    """One line, or several of the same. `kind`: uncorrected, counted (uncorrected, at a time that is not
    told), corrected, power, heat, other."""

    kind: str
    where: str
    count: int
    stamp: str
    text: str


@dataclass(frozen=True, slots=True)
class HardwareLog:
    """mcelog, rasdaemon, edac-util, ipmitool sel."""

    tool: str
    errors: tuple[HardwareError, ...]
    older: int = 0  # records left out: of before the last day, where the node's own clock tells that


@dataclass(frozen=True, slots=True)
class Sampled:
    """One GPU in nvidia-smi dmon: medians of its rows."""

    gpu: int
    samples: int
    power_w: float | None
    temperature_c: float | None
    sm_percent: float | None
    clock_mhz: float | None


@dataclass(frozen=True, slots=True)
class Dmon:
    gpus: tuple[Sampled, ...]


def version_findings(versions: Versions) -> Iterator[Finding]:
    """The loaded driver against the library that programs load, on one node."""
    loaded = versions.found.get("driver")
    for part, words in (("driver library", "the library"), ("driver module file", "the module on disk")):
        other = versions.found.get(part)
        if loaded and other and loaded != other:
            says = f"the loaded NVIDIA driver is {loaded}, {words} is {other}: an update without a reboot"
            yield Finding("host.driver_mismatch", "bad" if part == "driver library" else "warn", says)


_HARDWARE: dict[str, tuple[str, Severity, str]] = {
    "uncorrected": ("host.hardware_error", "bad", "uncorrected hardware error"),
    "counted": ("host.hardware_counted", "warn", "uncorrected hardware errors, when is not told"),
    "power": ("host.power_event", "warn", "power"),
    "heat": ("host.heat_event", "warn", "heat"),
    "rising": ("host.hardware_rising", "warn", "corrected hardware errors that become more now"),
    "corrected": ("host.hardware_corrected", "info", "corrected hardware errors"),
}


def hardware_findings(log: HardwareLog) -> Iterator[Finding]:
    """What the machine's own error log tells. Corrected errors stop nothing."""
    for error in log.errors:
        if error.kind in _HARDWARE:
            code, severity, words = _HARDWARE[error.kind]
            count = f", {error.count} times" if error.count > 1 else ""
            at = f" at {error.stamp}" if error.stamp else ""
            says = f"{log.tool}: {words} of {error.where or 'the machine'}{count}{at}: {error.text[:120]}"
            yield Finding(code, severity, says, {"device": error.where} if error.where else {})
