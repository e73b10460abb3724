"""What is known about the GPUs of one node: the facts that both ways of asking (NVML, nvidia-smi -q) end in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from probes.core import ParseError

# Names of the bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReason*) and the labels that
# nvidia-smi -q prints for them. The names are those of nvidia-smi --query-gpu=clocks_event_reasons.*.
REASONS: tuple[tuple[int, str, str], ...] = (
    (0x001, "gpu_idle", "Idle"),
    (0x002, "applications_clocks_setting", "Applications Clocks Setting"),
    (0x004, "sw_power_cap", "SW Power Cap"),
    (0x008, "hw_slowdown", "HW Slowdown"),
    (0x010, "sync_boost", "Sync Boost"),
    (0x020, "sw_thermal_slowdown", "SW Thermal Slowdown"),
    (0x040, "hw_thermal_slowdown", "HW Thermal Slowdown"),
    (0x080, "hw_power_brake_slowdown", "HW Power Brake Slowdown"),
    (0x100, "display_clock_setting", "Display Clock Setting"),
)

# Within a second. A healthy Gen5 link of 16 lanes may replay 31 times in a minute (DCGM's policy: 1.92 a minute and
# lane); of NVLink errors DCGM warns of each, and calls 100 a second bad.
RISES = 10

LOST = "GPU is lost"
RESET = "GPU requires reset"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. None means that it is not known; `missing` then says why, in the tool's own word (N/A, GPU is lost ...).

    Units: Celsius, MHz, W, percent, MiB, microseconds since the driver loaded (`reason_us`), PCIe lanes and generation.
    What two looks about a second apart differ by tells of now; only the way by NVML looks twice.
    ECC counts are volatile (since the driver loaded); remapped rows are for the life of the board.
    """

    bus_id: str  # dddd:bb:dd.f, lower case
    index: int | None = None  # the driver's, which orders by bus id; for a silent GPU its place on the PCI bus
    answered: bool = True
    silence: str = ""  # why it did not answer, in words
    outcome: str = "ok"  # of the process that asked it, as for a capture
    state: str = ""  # process state letter of that process when it was given up; "D" cannot be killed
    wchan: str = ""  # kernel function it slept in
    name: str | None = None
    uuid: str | None = None
    recovery_action: str | None = None  # the driver's own verdict: none, reset, reboot, drain p2p, drain and reset, ...
    persistence: bool | None = None
    mig: bool | None = None
    mig_pending: bool | None = None  # after the next reset
    pstate: str | None = None
    temperature_c: int | None = None
    memory_c: int | None = None  # of its HBM
    slowdown_c: int | None = None  # from here on its hardware slows down
    memory_max_c: int | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    reasons: tuple[str, ...] | None = None  # clocks event reasons now or between the looks, names as in REASONS
    reason_us: Mapping[str, int] = field(default_factory=dict)  # time spent in a reason; only where the driver counts
    held: Mapping[str, float] = field(default_factory=dict)  # reason -> percent of the time between the two looks
    power_w: float | None = None  # averaged over a second where the GPU does so (Ampere and later, without GA100)
    power_limit_w: float | None = None  # enforced now
    power_default_w: float | None = None
    utilisation_percent: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    ecc_corrected: int | None = None
    ecc_corrected_more: int | None = None  # between the two looks
    ecc_uncorrected: int | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None  # after the next reset
    sram_threshold_exceeded: bool | None = None
    remapped_corrected: int | None = None
    remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    repair_pending: bool | None = None  # channel or TPC repair waits for a reset (driver 590 and later)
    memory_unrepairable: bool | None = None  # driver 590 and later
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None  # packets sent again over PCIe, since the driver loaded
    pcie_replays_more: int | None = None  # between the two looks
    nvlinks: int | None = None  # that are up
    nvlink_errors: Mapping[str, int] = field(default_factory=dict)  # "link 3 CRC" -> more at the second look
    looks_s: float | None = None  # between the two looks
    vbios: str | None = None
    gsp: str | None = None  # firmware of its system processor; None where the driver does without
    pids: tuple[int, ...] = ()  # compute processes, in the node's own PID namespace
    fabric_state: str | None = None  # not supported, not started, in progress, completed
    fabric_status: str | None = None  # success, or an error in words
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuState:
    """All GPUs of the node in the order of their bus ids, and what was said about the driver as a whole."""

    driver: str | None
    gpus: tuple[Gpu, ...]
    attached: int | None = None  # how many the driver counts; None where nothing says
    on_pci: int | None = None  # how many the PCI bus shows; None when nobody looked (an uploaded file)
    problem: str = ""  # what the driver said instead of an answer, for the whole node


def bus_id(text: str) -> str:
    """`00000000:3B:00.0`, `0000:3b:00.0` or `3B:00.0` as `0000:3b:00.0`. Errors: ParseError."""
    parts = text.strip().lower().rpartition(".")[0].split(":") or [""]
    function = text.strip().rpartition(".")[2]
    try:
        domain, bus, device = (int(part, 16) for part in (["0"] * (3 - len(parts)) + parts))
        return f"{domain:04x}:{bus:02x}:{device:02x}.{int(function, 16):x}"
    except ValueError:
        raise ParseError(f"expected a PCI bus id such as 00000000:3B:00.0, found {text.strip()[:40]!r}") from None


def by_bus_id(gpu: Gpu) -> tuple[int, ...]:
    """Sort key: the driver's own order of GPUs."""
    return tuple(int(part, 16) for part in gpu.bus_id.replace(".", ":").split(":"))


def reasons_of(bits: int) -> tuple[str, ...]:
    """Names of the set bits; a bit that is newer than this table is kept as its number."""
    known = tuple(name for bit, name, _ in REASONS if bits & bit)
    rest = bits & ~sum(bit for bit, _, _ in REASONS)
    return known + ((f"{rest:#x}",) if rest else ())


def total(counts: list[int | None]) -> int | None:
    """Sum of error counts. Unknown parts make the sum unknown, unless the known parts already show errors."""
    known = sum(count for count in counts if count is not None)
    return known if known or (counts and None not in counts) else None
