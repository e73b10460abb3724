"""Does every AMD GPU of this node answer, and is one broken, narrowly connected or silent?

Source   sysfs of the kernel's driver amdgpu, no tool: Documentation/gpu/amdgpu (driver-misc, thermal, ras),
         drivers/gpu/drm/amd/pm/amdgpu_pm.c and amdgpu_ras.c for the form of each file; amdkfd's kfd_process.c and
         kfd_topology.c for who computes. Of a card with a PCIe switch of its own (Vega 20, Navi) the link is the one
         inside the card. Never run on an AMD GPU, only on files that the tests make
Units    Celsius, MHz, W, percent, MiB, lanes; RAS errors since the driver loaded
Shape    GpuState, as of gpu.state
Errors   ParseError when a section is not what the collector writes. What a file does not tell is None, with the
         kernel's word in `missing`. Absent where no AMD GPU is on the bus; Skipped where a process hangs in a driver
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from probes.catalog._collected import as_object
from probes.catalog.gpu import ladder
from probes.catalog.gpu.amd_collect import collect
from probes.catalog.gpu.bus import ALL_ONES, add_pci, numbered, silent
from probes.catalog.gpu.facts import Gpu, GpuState, bus_id, by_bus_id, total
from probes.catalog.gpu_state import findings
from probes.core import ParseError, Probe, clean, sections

__all__ = ["PROBE", "findings", "parse"]

MIB, MICRO = 1024 * 1024, 1_000_000
BUS = "golden15/amd-bus"
# What amdgpu refuses with EPERM while it resets the GPU: amdgpu_in_reset() in amdgpu_pm.c. All are readable to anybody.
LIVE = ("gpu_busy_percent", "pp_dpm_sclk")
GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6, "64": 6}
_LEVEL = re.compile(r"\s{0,4}[\dS]{1,3}: {0,4}(\d{1,5})M[hH]z {0,4}(\*?)\s{0,4}")  # S: asleep, below all levels
_COUNT = re.compile(r"^(ue|ce): (\d{1,18})$", re.M)
_PAGE = re.compile(r"^0x[0-9a-f]{1,16} : 0x[0-9a-f]{1,16} : ([RPF])$", re.M)


def parse(text: str) -> GpuState:
    """Sections of the collector into a GpuState."""
    parts = sections(text)
    if BUS not in parts:
        raise ParseError(f"expected the section {BUS}, found {clean(', '.join(parts))[:80]}")
    about = as_object(parts[BUS], BUS)
    pids = about.get("processes")
    gpus: dict[str, Gpu] = {}
    for name, part in parts.items():
        kind, _, bus = name.rpartition(" ")
        if kind == "golden15/amd":
            gpus[bus_id(bus)] = _gpu(bus_id(bus), as_object(part, name), name, pids if isinstance(pids, dict) else {})
        elif kind == "golden15/silent":
            gpus[bus_id(bus)] = silent(bus_id(bus), as_object(part, name))
    on_pci = add_pci(gpus, parts[BUS], BUS)
    driver = clean(str(about.get("driver") or ""))[:40] or None  # only a driver that did not come with the kernel says
    return GpuState(driver, numbered(sorted(gpus.values(), key=by_bus_id), None), None, on_pci)


class _Files:
    """What the files of one GPU say, and why one says nothing."""

    def __init__(self, told: Mapping[str, Any], where: str):
        files, errors = told.get("files"), told.get("errors")
        if not isinstance(files, dict) or not isinstance(errors, dict):
            raise ParseError(f"{where}: expected files and errors by name")
        self.files = {str(name): str(text) for name, text in files.items()}
        self.errors = {str(name): clean(str(word))[:60] for name, word in errors.items()}
        self.where = where
        self.missing: dict[str, str] = {}

    def whole(self, fact: str, *names: str) -> int | None:
        """The first of these files that holds a number."""
        for name in names:
            text = self.files.get(name)
            if text is None:
                continue
            if not re.fullmatch(r"\d{1,20}", text):
                raise ParseError(f"{self.where}: {name}: expected a whole number, found {text[:40]!r}")
            return int(text)
        self.missing[fact] = next((self.errors[name] for name in names if name in self.errors), "not told")
        return None

    def word(self, fact: str, name: str) -> str | None:
        text = clean(self.files.get(name, "")).strip()[:80]
        if not text:
            self.missing[fact] = self.errors.get(name, "not told")
        return text or None

    def hwmon(self, ending: str) -> list[str]:
        """hwmon/hwmon3/power1_cap for power1_cap, of whichever number."""
        return [
            name for name in (*self.files, *self.errors) if name.startswith("hwmon/") and name.endswith(f"/{ending}")
        ]

    def temperature(self) -> str:
        """The hottest place of the GPU is its junction; cards before Vega 20 tell only their edge."""
        labels = {self.files[name]: name for name in self.files if name.endswith("_label")}
        label = next((labels[place] for place in ("junction", "edge") if place in labels), "")
        return label.replace("_label", "_input") or next(iter(self.hwmon("temp1_input")), "")


def _gpu(bus: str, told: Mapping[str, Any], where: str, pids: Mapping[str, Any]) -> Gpu:
    files = _Files(told, where)
    width, width_max = files.whole("pcie_width", "current_link_width"), files.whole("pcie_width_max", "max_link_width")
    refused = {files.errors[name] for name in LIVE if name in files.errors}
    if width == ALL_ONES:
        words = "it does not answer on the PCIe bus any more"
        return Gpu(bus, answered=False, silence=words, outcome="failed", pcie_width=width, pcie_width_max=width_max)
    if refused and not any(files.files.get(name) for name in LIVE):
        words = f"its driver refuses to read it ({' and '.join(sorted(refused))}), as while it resets the GPU"
        return Gpu(bus, answered=False, silence=words, outcome="failed", pcie_width=width, pcie_width_max=width_max)
    sm, sm_max = _clock(files)
    used, room = (
        files.whole("memory_used_mib", "mem_info_vram_used"),
        files.whole("memory_total_mib", "mem_info_vram_total"),
    )
    heat = files.whole("temperature_c", files.temperature())
    mine = pids.get(bus, ())
    return Gpu(
        bus_id=bus,
        name=files.word("name", "product_name"),
        uuid=files.word("uuid", "unique_id"),
        vbios=files.word("vbios", "vbios_version"),
        temperature_c=None if heat is None else heat // 1000,
        sm_mhz=sm,
        sm_max_mhz=sm_max,
        power_w=_watts(files, "power_w", "power1_average", "power1_input"),
        power_limit_w=_watts(files, "power_limit_w", "power1_cap"),
        power_default_w=_watts(files, "power_default_w", "power1_cap_default"),
        utilisation_percent=files.whole("utilisation_percent", "gpu_busy_percent"),
        memory_used_mib=None if used is None else used // MIB,
        memory_total_mib=None if room is None else room // MIB,
        ecc_corrected=_errors(files, "ecc_corrected", "ce"),
        ecc_uncorrected=_errors(files, "ecc_uncorrected", "ue"),
        # P: will be put aside at the next chance; F: could not be. amdgpu_ras.c, "bad page info".
        remap_pending=_page(files, "P"),
        remap_failed=_page(files, "F"),
        pcie_gen=_generation(files.files.get("current_link_speed", "")),
        pcie_gen_max=_generation(files.files.get("max_link_speed", "")),
        pcie_width=width,
        pcie_width_max=width_max,
        pcie_replays=files.whole("pcie_replays", "pcie_replay_count"),
        pids=tuple(sorted(pid for pid in mine if isinstance(pid, int))) if isinstance(mine, list) else (),
        missing=files.missing,
    )


def _clock(files: _Files) -> tuple[int | None, int | None]:
    """`1: 2100Mhz *` is the level that the GPU runs at now."""
    text = files.files.get("pp_dpm_sclk", "")
    levels = [(line, _LEVEL.fullmatch(line)) for line in text.splitlines() if line.strip()]
    bad = next((line for line, found in levels if not found), None)
    if bad is not None:
        raise ParseError(f"{files.where}: pp_dpm_sclk: expected a level such as '1: 2100Mhz *', found {bad[:40]!r}")
    clocks = [(int(found[1]), bool(found[2])) for _, found in levels if found]
    if not clocks:
        files.missing["sm_mhz"] = files.errors.get("pp_dpm_sclk", "not told")
    return next((mhz for mhz, now in clocks if now), None), max((mhz for mhz, _ in clocks), default=None)


def _watts(files: _Files, fact: str, *endings: str) -> float | None:
    found = files.whole(fact, *(name for ending in endings for name in files.hwmon(ending)))
    return None if found is None else found / MICRO


def _errors(files: _Files, fact: str, kind: str) -> int | None:
    """`ue: 0` and `ce: 12` of every block; while the driver resets it says `Query currently inaccessible`."""
    blocks = [text for name, text in files.files.items() if name.endswith("_err_count")]
    told = [int(count) for text in blocks for found, count in _COUNT.findall(text) if found == kind]
    if not told:
        refused = (word for name, word in files.errors.items() if name.endswith("_err_count"))
        files.missing[fact] = clean(blocks[0])[:60] if blocks else next(refused, "not told")
    return total(list(told))


def _page(files: _Files, kind: str) -> bool | None:
    text = files.files.get("ras/gpu_vram_bad_pages")
    return None if text is None else kind in _PAGE.findall(text)


def _generation(speed: str) -> int | None:
    return GENERATIONS.get(speed.partition(" ")[0])


PROBE = Probe(
    "gpu.amd",
    "Does every AMD GPU answer, and is one broken, narrowly connected or silent?",
    parse,
    findings,
    collect=collect,
    by_hand="cd /sys/class/drm; grep -H . card*/device/{gpu_busy_percent,mem_info_vram_*,pp_dpm_sclk,*_link_width} "
    "card*/device/ras/*_err_count card*/device/hwmon/*/{temp,power}*",
    timeout_s=7.0,
    max_bytes=524_288,
    touches="driver",
    brings=(ladder,),
    cost="not measured: there was no such hardware",
)
