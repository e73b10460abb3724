"""Reads `nvidia-smi -q` of drivers 535 to 595 (and 450 to 530, whose labels are the same or listed here).

Source   nvidia-smi(1), section "GPU ATTRIBUTES" and -q; recorded outputs in tests/fixtures/gpu.state
Shape    (driver, attached, GPUs in the order printed); a GPU's block is read as (path, value) pairs, because one label
         means different things in different places ("HW Thermal Slowdown" is a state in one section and a counter in
         another; "Power Draw" is the GPU's, its memory's or its module's)
Errors   ParseError that names the GPU and what is missing or unreadable in its block
"""

from __future__ import annotations

from probes.catalog.gpu.facts import LOST, REASONS, Gpu, bus_id, total
from probes.core import ParseError, clean, lines_of

Path = tuple[str, ...]
Pairs = list[tuple[Path, str]]

# In every output of every generation at hand; a block without one of them was cut.
ALWAYS: tuple[Path, ...] = (
    ("Product Name",),
    ("GPU UUID",),
    ("PCI", "Bus Id"),
    ("Performance State",),
    ("FB Memory Usage", "Total"),
    ("Temperature", "GPU Current Temp"),
    ("Clocks", "SM"),
    ("Max Clocks", "SM"),
    ("Processes",),
)
REASON_SECTIONS = ("Clocks Event Reasons", "Clocks Throttle Reasons")  # renamed in driver 535
POWER_SECTIONS = ("GPU Power Readings", "Power Readings")  # renamed in driver 530
UNDER_HW_SLOWDOWN = ("hw_thermal_slowdown", "hw_power_brake_slowdown")
COUNTERS = {  # labels of the counters section -> names as in REASONS
    "SW Power Capping": "sw_power_cap",
    "Sync Boost": "sync_boost",
    "SW Thermal Slowdown": "sw_thermal_slowdown",
    "HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Power Braking": "hw_power_brake_slowdown",
}
# What stands where a value should be. nvidia-smi(1): N/A is "not supported or not available"; the bracketed words are
# NVML's error texts. None of them is ever a number.
NOT_VALUES = ("N/A", "ERR!", "Unknown Error", LOST, "GPU requires reset", "Not Supported", "Insufficient Permissions")
DEPRECATED = "Requested functionality has been deprecated"


def smi(text: str) -> tuple[str | None, int | None, list[Gpu]]:
    """(driver version, attached GPUs, GPUs), from the whole text of one `nvidia-smi -q`."""
    head, blocks, lost = _split(text)
    gpus = [_gpu(bus, lines) for bus, lines in blocks] + lost
    driver = head.get("Driver Version")
    attached = head.get("Attached GPUs")
    if not gpus and driver is None:
        first = next((line for line in lines_of(text) if line.strip()), "")
        raise ParseError(f"nvidia-smi -q: expected 'Driver Version' and 'GPU <bus id>', found {clean(first)[:80]!r}")
    if not gpus and attached != "0":
        raise ParseError(f"nvidia-smi -q: {attached or 'some'} GPUs attached but none printed: the output was cut")
    return driver, _integer(attached, "Attached GPUs", "") if attached else None, gpus


def _split(text: str) -> tuple[dict[str, str], list[tuple[str, list[str]]], list[Gpu]]:
    head: dict[str, str] = {}
    blocks: list[tuple[str, list[str]]] = []
    lost: list[Gpu] = []
    for line in lines_of(text):
        if line.startswith("GPU ") and " : " not in line:
            blocks.append((bus_id(line[4:]), []))
        elif "Unable to determine the device handle for" in line:
            lost.append(_lost(line))
        elif blocks:
            blocks[-1][1].append(line)
        elif " : " in line:
            key, _, value = line.partition(" : ")
            head.setdefault(key.strip(), value.strip())
    return head, blocks, lost


def _lost(line: str) -> Gpu:
    """`Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system ...`.

    Newer drivers write `GPU0000:02:00.0` without the space and `GPU2: 0000:02:00.0` with the index.
    """
    where, _, why = line.partition("device handle for")[2].strip().removeprefix("GPU").strip().rpartition(": ")
    number, _, place = where.rpartition(" ")
    index = int(number[:-1]) if number[:-1].isdecimal() and number.endswith(":") and len(number) < 5 else None
    return Gpu(bus_id(place), index, answered=False, silence=clean(why.strip())[:200] or LOST, outcome="failed")


def _pairs(lines: list[str]) -> Pairs:
    """Each line's path of labels, by indentation, and its value ("" for a heading)."""
    found: Pairs = []
    stack: list[tuple[int, str]] = []
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip(" "))
        label, _, value = line.partition(" : ")
        while stack and stack[-1][0] >= indent:
            stack.pop()
        stack.append((indent, label.strip()))
        if len(stack) > 8:  # nvidia-smi nests four deep
            raise ParseError(f"nvidia-smi -q: a line nested {len(stack)} deep: {clean(line)[:60]!r}")
        found.append((tuple(label for _, label in stack), value.strip()))
    return found


class _Block:
    """One GPU's block: looks values up by path and notes why one is missing."""

    def __init__(self, bus: str, lines: list[str]):
        self.bus = bus
        self.pairs = _pairs(lines)
        self.values: dict[Path, str] = {}
        for path, value in self.pairs:
            self.values.setdefault(path, value)
        self.missing: dict[str, str] = {}
        # A whole output begins with these two. `-d PERFORMANCE,CLOCK` and grep leave them, and more, out.
        self.excerpt = [path[-1] for path, _ in self.pairs[:2]] != ["Product Name", "Product Brand"]
        for path in ALWAYS:
            if path not in self.values and not (self.excerpt and self.pairs):
                last = clean(self.pairs[-1][0][-1])[:60] if self.pairs else "its first line"
                wanted = " / ".join(path)
                raise ParseError(f"nvidia-smi -q: GPU {bus} has no {wanted!r}; its block ends after {last!r}: cut?")

    def word(self, fact: str, *paths: Path) -> str | None:
        """The first value there is among `paths`, or None with the reason noted under `fact`."""
        for path in paths:
            value = self.values.get(path)
            if value is None or value == "":
                continue
            bare = value.strip("[]")
            if bare not in NOT_VALUES and bare != DEPRECATED:
                self.missing.pop(fact, None)
                return value
            self.missing.setdefault(fact, bare)
        self.missing.setdefault(fact, "not printed")
        return None

    def integer(self, fact: str, *paths: Path, unit: str = "") -> int | None:
        return _integer(value, " / ".join(paths[0]), self.bus, unit) if (value := self.word(fact, *paths)) else None

    def number(self, fact: str, *paths: Path, unit: str) -> float | None:
        value = self.word(fact, *paths)
        if value is None:
            return None
        try:
            return float(_without(value, unit))
        except ValueError:
            raise self.bad(paths[0], f"a number in {unit}", value) from None

    def yes(self, fact: str, *paths: Path) -> bool | None:
        value = self.word(fact, *paths)
        if value is None:
            return None
        if value not in ("Yes", "No", "Enabled", "Disabled", "Active", "Not Active"):
            raise self.bad(paths[0], "Yes, No, Enabled, Disabled, Active or Not Active", value)
        return value in ("Yes", "Enabled", "Active")

    def bad(self, path: Path, expected: str, found: str) -> ParseError:
        label = " / ".join(path)
        return ParseError(f"nvidia-smi -q: GPU {self.bus}: {label!r}: expected {expected}, found {clean(found)[:60]!r}")


def _without(value: str, unit: str) -> str:
    return value.removesuffix(unit).strip() if unit else value


def _integer(value: str, label: str, bus: str, unit: str = "") -> int:
    bare = _without(value, unit)
    if not (bare.isascii() and bare.isdigit() and len(bare) <= 20):
        where = f"GPU {bus}: " if bus else ""
        raise ParseError(f"nvidia-smi -q: {where}{label!r}: expected a whole number, found {clean(value)[:60]!r}")
    return int(bare)


def _gpu(bus: str, lines: list[str]) -> Gpu:
    block = _Block(bus, lines)
    link = ("PCI", "GPU Link Info")
    reset = block.yes("recovery_action", ("GPU Reset Status", "Reset Required"))
    drain = block.yes("recovery_action", ("GPU Reset Status", "Drain and Reset Recommended"))
    legacy = None if reset is None else "reset" if reset else "drain and reset" if drain else "none"
    action = block.word("recovery_action", ("GPU Recovery Action",))
    if legacy and not action:
        del block.missing["recovery_action"]
    return Gpu(
        bus,
        name=block.word("name", ("Product Name",)),
        uuid=block.word("uuid", ("GPU UUID",)),
        recovery_action=action.lower() if action else legacy,
        persistence=block.yes("persistence", ("Persistence Mode",)),
        mig=block.yes("mig", ("MIG Mode", "Current")),
        mig_pending=block.yes("mig_pending", ("MIG Mode", "Pending")),
        pstate=block.word("pstate", ("Performance State",)),
        temperature_c=block.integer("temperature_c", ("Temperature", "GPU Current Temp"), unit="C"),
        memory_c=block.integer("memory_c", ("Temperature", "Memory Current Temp"), unit="C"),
        sm_mhz=block.integer("sm_mhz", ("Clocks", "SM"), unit="MHz"),
        sm_max_mhz=block.integer("sm_max_mhz", ("Max Clocks", "SM"), unit="MHz"),
        reasons=_reasons(block),
        reason_us=_counters(block),
        power_w=block.number("power_w", *_power("Average Power Draw", "Power Draw"), unit="W"),
        power_limit_w=block.number("power_limit_w", *_power("Current Power Limit", "Enforced Power Limit"), unit="W"),
        power_default_w=block.number("power_default_w", *_power("Default Power Limit"), unit="W"),
        utilisation_percent=block.integer(
            "utilisation_percent", ("Utilization", "GPU"), ("Utilization", "Gpu"), unit="%"
        ),
        memory_used_mib=block.integer("memory_used_mib", ("FB Memory Usage", "Used"), unit="MiB"),
        memory_total_mib=block.integer("memory_total_mib", ("FB Memory Usage", "Total"), unit="MiB"),
        ecc_corrected=_ecc(block, "ecc_corrected", "Correctable", "Single Bit"),
        ecc_uncorrected=_ecc(block, "ecc_uncorrected", "Uncorrectable", "Double Bit"),
        ecc=block.yes("ecc", ("ECC Mode", "Current")),
        ecc_pending=block.yes("ecc_pending", ("ECC Mode", "Pending")),
        sram_threshold_exceeded=block.yes(
            "sram_threshold_exceeded", ("ECC Errors", "Aggregate", "SRAM Threshold Exceeded")
        ),
        remapped_corrected=block.integer("remapped_corrected", *_rows("Correctable Error")),
        remapped_uncorrected=block.integer("remapped_uncorrected", *_rows("Uncorrectable Error")),
        remap_pending=block.yes("remap_pending", *_rows("Pending")),
        remap_failed=block.yes("remap_failed", *_rows("Remapping Failure Occurred")),
        repair_pending=_repair(block),
        memory_unrepairable=block.yes("memory_unrepairable", ("ECC Errors", "Unrepairable Memory")),
        pcie_gen=block.integer("pcie_gen", (*link, "PCIe Generation", "Current")),
        pcie_gen_max=block.integer("pcie_gen_max", (*link, "PCIe Generation", "Max")),
        pcie_width=block.integer("pcie_width", (*link, "Link Width", "Current"), unit="x"),
        pcie_width_max=block.integer("pcie_width_max", (*link, "Link Width", "Max"), unit="x"),
        pcie_replays=block.integer("pcie_replays", ("PCI", "Replays Since Reset")),
        vbios=block.word("vbios", ("VBIOS Version",)),
        gsp=block.word("gsp", ("GSP Firmware Version",)),
        pids=_pids(block),
        fabric_state=(block.word("fabric_state", ("Fabric", "State")) or "").lower() or None,
        fabric_status=(block.word("fabric_status", ("Fabric", "Status")) or "").lower() or None,
        missing=block.missing,
    )


def _power(*labels: str) -> list[Path]:
    return [(section, label) for section in POWER_SECTIONS for label in labels]


def _rows(label: str) -> tuple[Path, Path]:
    return ("Remapped Rows", label), ("Remapped Rows",)  # the second holds "N/A" for the whole section


def _repair(block: _Block) -> bool | None:
    waiting = [block.yes("repair_pending", ("ECC Errors", f"{part} Repair Pending")) for part in ("Channel", "TPC")]
    return True if True in waiting else None if None in waiting else False


def _reasons(block: _Block) -> tuple[str, ...] | None:
    section = next((name for name in REASON_SECTIONS if (name,) in block.values), "")
    if not section:
        block.missing["reasons"] = "not printed"
        return None
    if block.word("reasons", (section,)) is None and block.values[(section,)]:
        return None  # "Clocks Event Reasons : N/A"
    block.missing.pop("reasons", None)
    active = []
    for _, name, label in REASONS:
        under = (section, "HW Slowdown") if name in UNDER_HW_SLOWDOWN else (section,)
        path = (*under, label)
        if path not in block.values and block.excerpt:
            continue
        if path not in block.values:
            there = [clean(other[-1])[:40] for other in block.values if other[0] == section and len(other) > 1]
            raise block.bad((section,), f"a line {label!r}", ", ".join(there))
        if block.yes(f"reasons.{name}", path):
            active.append(name)
    return tuple(active)


def _counters(block: _Block) -> dict[str, int]:
    found: dict[str, int] = {}
    for section in ("Clocks Event Reasons Counters", "Clocks Throttle Reasons Counters"):
        for label, name in COUNTERS.items():
            if (section, label) in block.values:
                count = block.integer(f"reason_us.{name}", (section, label), unit="us")
                if count is not None:
                    found[name] = count
    return found


def _ecc(block: _Block, fact: str, kind: str, old_kind: str) -> int | None:
    """Volatile errors of one kind: SRAM and DRAM lines (Turing and later), or the total of the older form."""
    if ("ECC Errors", "Volatile", old_kind, "Total") in block.values:
        return block.integer(fact, ("ECC Errors", "Volatile", old_kind, "Total"))
    paths = [p for p in block.values if p[:2] == ("ECC Errors", "Volatile") and len(p) == 3 and kind in p[2].split()]
    count = total([block.integer(fact, path) for path in paths])
    if count is None:
        block.missing.setdefault(fact, "N/A" if paths else "not printed")
    return count


def _pids(block: _Block) -> tuple[int, ...]:
    """Compute processes (types C, C+G, M+C). Each block in the Processes section begins with its GPU instance."""
    found: list[int] = []
    pid = -1
    for path, value in block.pairs:
        if path[:2] == ("Processes", "Process ID") and len(path) == 2:
            pid = _integer(value, "Process ID", block.bus)
        elif path == ("Processes", "Process ID", "Type") and "C" in value.split("+"):
            found.append(pid)
    return tuple(dict.fromkeys(found))  # under MIG a process is listed once per instance
