"""Does every GPU of this node answer, and is one of them lost, slowed down, broken or waiting for a reset?

Source   sysfs (GPUs on the PCI bus); NVML (API reference, nvml.h) through pynvml or libnvidia-ml.so.1, one process per
         GPU; where neither loads, nvidia-smi(1) -q. The plain text of `nvidia-smi -q` is read too, drivers 535 to 595.
         The NVML way was never run on a GPU, only against a library that the tests compile.
         By NVML what tells of now (clocks held down, PCIe replays, NVLink errors) is read twice, a second apart
Units    Celsius, MHz, W, percent, MiB, microseconds; ECC counts since the driver loaded, remapped rows since made
Shape    GpuState: driver, gpus in the order of their bus ids (also silent ones), attached, on_pci, problem
Errors   ParseError when a GPU's block is cut or garbled, naming the GPU and the line; N/A, ERR! and [GPU is lost] are
         no errors but values that are not known (None, with the word in `missing`)
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog._collected import as_object
from probes.catalog.gpu import ladder, library
from probes.catalog.gpu.bus import ALL_ONES, add_pci, numbered, silent
from probes.catalog.gpu.collect import collect
from probes.catalog.gpu.facts import LOST, RESET, RISES, Gpu, GpuState, bus_id, by_bus_id
from probes.catalog.gpu.nvml import WHOLE_NODE, error_words, nvml
from probes.catalog.gpu.smi import smi
from probes.core import Finding, ParseError, Probe, Severity, clean, sections

# nvml.h on the reason HW Slowdown: "reducing the core clocks by a factor of 2 or more".
SLOWED = 0.5
CORRECTED = 10  # in a second; judgement: a healthy board corrects a few in a day
HELD_DOWN = ("hw_power_brake_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown")
SAID_BY_DRIVER = ("Failed to initialize NVML", "NVIDIA-SMI has failed", "No devices were found")


def parse(text: str) -> GpuState:
    """Sections of the collector, or the plain text of one `nvidia-smi -q`, into a GpuState."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    parts = sections(text) if first.startswith("==> ") else {"nvidia-smi -q": text}
    driver = attached = None
    problem, gpus, known = "", {}, False
    for name, part in parts.items():
        kind, _, bus = name.rpartition(" ")
        if name == "nvidia-smi -q":
            problem = next((clean(line) for line in part.splitlines() if line.startswith(SAID_BY_DRIVER)), "")
            driver, attached, found = (None, None, []) if problem else smi(part)
            gpus.update({gpu.bus_id: gpu for gpu in found})
        elif kind == "nvidia-smi -q -i":
            said, attached, gpu = _one(part, bus)
            driver = driver or said
            gpus[gpu.bus_id] = gpu
        elif kind == "golden15/nvml":
            said, gpu, code = nvml(part, bus_id(bus))
            driver = driver or said
            gpus[gpu.bus_id] = gpu
            problem = error_words(code) if code in WHOLE_NODE else problem
        elif name == "golden15/silent all":
            problem = f"nvidia-smi did not answer: {as_object(part, name).get('why', '')}"
        elif kind == "golden15/silent":
            gpus[bus_id(bus)] = silent(bus_id(bus), as_object(part, name))
        known = known or name.startswith(("nvidia-smi -q", "golden15/"))
    if not known:
        raise ParseError(f"expected nvidia-smi -q or the collector's sections, found {clean(', '.join(parts))[:80]!r}")
    on_pci = add_pci(gpus, parts["golden15/pci"], "golden15/pci") if "golden15/pci" in parts else None
    ordered = numbered(sorted(gpus.values(), key=by_bus_id), attached if on_pci is None else None)
    return GpuState(driver, ordered, attached, on_pci, problem)


def _one(text: str, bus: str) -> tuple[str | None, int | None, Gpu]:
    """`nvidia-smi -q -i BUS`: one GPU's block, or the words that came instead of it."""
    if "NVSMI LOG" not in text and "Unable to determine" not in text:
        words = clean(" ".join(text.split()))[:200]
        return None, None, Gpu(bus_id(bus), answered=False, silence=words, outcome="failed")
    driver, attached, found = smi(text)
    for gpu in found:
        if gpu.bus_id == bus_id(bus):
            return driver, attached, gpu
    others = ", ".join(gpu.bus_id for gpu in found) or "none"
    raise ParseError(f"nvidia-smi -q -i {bus}: expected this GPU, found {others}")


def findings(state: GpuState) -> Iterator[Finding]:
    """What is wrong with the driver as a whole, then GPU by GPU. Idle and a software power cap are no faults."""
    if state.problem:
        yield Finding("gpu.driver_problem", "bad", f"the NVIDIA driver does not work on this node: {state.problem}")
    if state.attached is not None and state.on_pci is None and len(state.gpus) < state.attached:
        yield Finding(
            "gpu.not_shown", "warn", f"the driver counts {state.attached} GPUs, this output shows {len(state.gpus)}"
        )
    stuck = [gpu for gpu in state.gpus if gpu.outcome in ("hung", "timeout")]
    asked = [gpu for gpu in state.gpus if gpu.outcome != "skipped"]
    all_stuck = len(stuck) > 1 and len(stuck) == len(asked)
    if all_stuck:
        yield Finding(
            "gpu.driver_no_answer",
            "bad",
            f"none of the {len(asked)} GPUs answers ({_stuck(stuck[0])}): the driver is stuck, no GPU can be named",
        )
    for gpu in state.gpus:
        if gpu.answered:
            yield from _answered(gpu)
        elif not (all_stuck and gpu.outcome != "skipped") and gpu.silence != state.problem:
            yield _unanswered(gpu)


def _subject(gpu: Gpu) -> dict[str, str | int]:
    subject: dict[str, str | int] = {} if gpu.index is None else {"gpu": gpu.index}
    return subject | {"bus_id": gpu.bus_id} if gpu.bus_id else subject


def _named(gpu: Gpu) -> str:
    if not gpu.bus_id:  # a list of GPUs tells none
        return f"GPU {gpu.index}" if gpu.index is not None else "a GPU"
    return f"GPU at {gpu.bus_id}" if gpu.index is None else f"GPU {gpu.index} at {gpu.bus_id}"


def _stuck(gpu: Gpu) -> str:
    if not gpu.state:
        return gpu.silence
    return f"process in state {gpu.state}" + (f" in {gpu.wchan}" if gpu.wchan else "")


def _unanswered(gpu: Gpu) -> Finding:
    """A GPU without facts: what its silence means."""
    words, silence = gpu.silence.lower(), f"{_named(gpu)}: {gpu.silence}"
    if LOST.lower() in words or "unknown error" in words or gpu.pcie_width == ALL_ONES:
        return Finding("gpu.lost", "bad", f"{_named(gpu)} is lost to the driver: {gpu.silence}", _subject(gpu))
    if RESET.lower() in words:
        return Finding("gpu.recovery_action", "bad", f"{_named(gpu)} needs a reset: {gpu.silence}", _subject(gpu))
    if gpu.outcome == "skipped":
        bound = "no driver" not in gpu.silence
        return Finding("gpu.not_asked", "info" if bound else "warn", silence, _subject(gpu))
    if words.startswith(("not found", "no permission", "blocked")):  # also what a container's limits look like
        says = f"{silence}; it is on the PCI bus, so it is lost or hidden from this login"
        return Finding("gpu.not_visible", "warn", says, _subject(gpu))
    says = f"{_named(gpu)} does not answer: {_stuck(gpu)}"
    if gpu.wchan.startswith(("nfs", "rpc")):  # the asking process imports pynvml and loads a library first
        says += ", a network file system and not the GPU"
    return Finding("gpu.no_answer", "bad", says, _subject(gpu))


def _answered(gpu: Gpu) -> Iterator[Finding]:
    for code, severity, says in (*_verdicts(gpu), *_memory(gpu), *_slowed(gpu), *_limits(gpu), *_rising(gpu)):
        yield Finding(code, severity, f"{_named(gpu)} {says}", _subject(gpu))


Said = Iterator[tuple[str, Severity, str]]


def _verdicts(gpu: Gpu) -> Said:
    """What the driver itself says. The recovery action is NVML field 230, the log form of which is Xid 154."""
    if any(LOST.lower() in word.lower() for word in gpu.missing.values()):
        yield "gpu.lost", "bad", "is lost: the driver gives no values for it any more"
    action = gpu.recovery_action
    if action in (None, "none") and any(RESET.lower() in word.lower() for word in gpu.missing.values()):
        action = "reset"
    if action not in (None, "none"):
        yield "gpu.recovery_action", "bad", f"needs recovery: the driver asks for '{clean(str(action))}'"
    # Fabric Manager has not admitted the GPU to the NVLink fabric: CUDA fails with error 802 until it has.
    if gpu.fabric_state in ("not started", "in progress"):
        yield "gpu.fabric_not_ready", "bad", f"is not in the NVLink fabric: state '{gpu.fabric_state}'"
    elif gpu.fabric_status not in (None, "success"):
        yield "gpu.fabric_not_ready", "bad", f"is not in the NVLink fabric: status '{clean(gpu.fabric_status)}'"


def _memory(gpu: Gpu) -> Said:
    """Each of these is the board's own flag; any uncorrectable error has destroyed somebody's data."""
    if gpu.ecc_uncorrected:
        yield "gpu.ecc_uncorrected", "bad", f"has {gpu.ecc_uncorrected} uncorrectable ECC errors since driver load"
    if (gpu.ecc_corrected_more or 0) >= CORRECTED:
        more = f"corrected {gpu.ecc_corrected_more} ECC errors within {gpu.looks_s:g} s"
        yield "gpu.ecc_corrected_rising", "warn", f"{more}: a row of its memory is about to fail"
    if gpu.sram_threshold_exceeded:
        yield "gpu.sram_threshold", "bad", "has more uncorrectable SRAM errors than its threshold allows: replace it"
    if gpu.remap_failed:
        yield "gpu.remap_failed", "bad", "could not remap a broken memory row: replace it"
    if gpu.remap_pending:
        rows = "?" if gpu.remapped_uncorrected is None else gpu.remapped_uncorrected
        yield "gpu.remap_pending", "bad", f"waits for a reset to remap memory ({rows} rows with uncorrectable errors)"
    if gpu.memory_unrepairable:
        yield "gpu.memory_unrepairable", "bad", "has memory that cannot be repaired: replace it"
    elif gpu.repair_pending:
        yield "gpu.repair_pending", "bad", "waits for a reset to repair a memory channel or TPC"

    if gpu.ecc is not None and gpu.ecc_pending is not None and gpu.ecc != gpu.ecc_pending:
        yield "gpu.ecc_mode", "info", f"has ECC {_switch(gpu.ecc)}, and {_switch(gpu.ecc_pending)} after the next reset"
    if gpu.mig is not None and gpu.mig_pending is not None and gpu.mig != gpu.mig_pending:
        says = (
            f"is {_split(gpu.mig)}, and {_split(gpu.mig_pending)} after the next reset: a job would find other devices"
        )
        yield "gpu.mig_mode", "info", says


def _split(value: bool) -> str:
    """NVIDIA's words: multi-instance GPU (MIG) mode."""
    return "split into instances (MIG)" if value else "one whole device"


def _switch(value: bool) -> str:
    return "on" if value else "off"


def _slowed(gpu: Gpu) -> Said:
    """Hardware slowdown. One sample can catch a flash of it at a change of P-state: bad only with a low clock."""
    reasons = gpu.reasons or ()
    clock = f"SM clock {gpu.sm_mhz} of {gpu.sm_max_mhz} MHz" if gpu.sm_mhz is not None else "SM clock not known"
    down = gpu.sm_mhz is not None and gpu.sm_max_mhz is not None and gpu.sm_mhz <= SLOWED * gpu.sm_max_mhz
    how: Severity = "bad" if down else "warn"
    heat = f"{gpu.temperature_c} C" if gpu.temperature_c is not None else "temperature not known"
    share = max((gpu.held.get(name, 0.0) for name in HELD_DOWN if name in reasons), default=0.0)
    clock += f", {share:g} % of the time between two looks" if share else ""
    for what, at, most in (("it", gpu.temperature_c, gpu.slowdown_c), ("its memory", gpu.memory_c, gpu.memory_max_c)):
        if at is not None and most and at >= most and "hw_thermal_slowdown" not in reasons:
            yield "gpu.hot", "warn", f"is hot: {what} has {at} C, and is to stay below {most} C"
    if "hw_power_brake_slowdown" in reasons:
        yield "gpu.power_brake", how, f"is held back by the external power brake (power supply, rack or BMC): {clock}"
    if "hw_thermal_slowdown" in reasons:
        yield "gpu.thermal_slowdown", how, f"is too hot and slowed down by its hardware: {heat}, {clock}"
    elif "sw_thermal_slowdown" in reasons:
        yield "gpu.thermal_slowdown", "warn", f"is slowed down by the driver because it is hot: {heat}, {clock}"
    if "hw_slowdown" in reasons and not {"hw_power_brake_slowdown", "hw_thermal_slowdown"} & set(reasons):
        yield "gpu.hw_slowdown", how, f"is slowed down by its hardware, which does not say why: {clock}"


def _rising(gpu: Gpu) -> Said:
    """Counters that went up between the two looks, so they tell of now. What a link repairs by itself is no fault."""
    bad = {what: more for what, more in gpu.nvlink_errors.items() if "error" in what}
    if bad:
        which = ", ".join(f"{what} +{more}" for what, more in list(bad.items())[:4])
        how: Severity = "bad" if sum(bad.values()) >= RISES else "warn"
        yield "gpu.nvlink_rising", how, f"counts NVLink errors now: {which} within {gpu.looks_s:g} s"
    if (gpu.pcie_replays_more or 0) >= RISES:
        more = gpu.pcie_replays_more
        yield "gpu.pcie_replays_rise", "warn", f"sent {more} packets again over PCIe within {gpu.looks_s:g} s"


def _limits(gpu: Gpu) -> Said:
    """The link's width never changes at idle, so narrower is a fault; its generation does, so it is none."""
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        yield "gpu.pcie_width", "bad", f"runs on {gpu.pcie_width} of {gpu.pcie_width_max} PCIe lanes"
    limit, default = gpu.power_limit_w, gpu.power_default_w
    if limit is not None and default is not None and limit < default - 1:  # limits are printed to 0.01 W, set in W
        yield "gpu.power_limit_lowered", "warn", f"may draw only {limit:g} W where its default is {default:g} W"


PROBE = Probe(
    "gpu.state",
    "Does every GPU answer, and is one lost, slowed down, broken or waiting for a reset?",
    parse,
    findings,
    collect=collect,
    by_hand="nvidia-smi -q",
    timeout_s=8.0,
    max_bytes=524_288,
    touches="driver",
    brings=(ladder, library),
    cost="not measured: there was no such hardware",
)
