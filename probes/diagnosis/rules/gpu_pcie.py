"""A GPU's PCIe link is narrower or slower than that of its peers, or its bus errs.

The width never changes at idle. The generation does: generation 1 at idle is power saving, so it counts under load.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from probes.catalog.gpu.facts import RISES, Gpu
from probes.catalog.host.pci import PciDevice
from probes.catalog.kernel.events import Aer
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.gpus import gpus_of, usual
from probes.diagnosis.rules.hca_fault import DRIVERS as ADAPTERS
from probes.diagnosis.times import seconds_between, times_of

CAUSE = "gpu.pcie_degraded"
BUSY = 50  # percent of use, judgement
STORM = 1000  # corrected errors, judgement: a bad link prints thousands, a good one a few
AN_HOUR, LEAST_S = 30, 600.0  # corrected errors an hour over so many seconds, judgement: a good link has a few a day
REPLAYS, TIMES = 1000, 20  # packets sent again, and how often more than the usual peer; judgement
ALL_ONES = 63
GPU_DRIVERS = ("nvidia ", "amdgpu ")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _links(evidence)
    yield from _on_bus(evidence)
    yield from _errors(evidence)
    yield from _replays(evidence)


def _links(evidence: Evidence) -> Iterator[Hypothesis]:
    nodes = gpus_of(evidence)
    models: dict[str | None, list[Gpu]] = {}
    for gpu in (gpu for there in nodes.values() for gpu in there.gpus.values() if gpu.answered):
        models.setdefault(gpu.name, []).append(gpu)
    widest = {name: max(one.pcie_width or 0 for one in some) for name, some in models.items()}
    newest = {name: max(one.pcie_gen or 0 for one in some) for name, some in models.items()}
    for node, there in nodes.items():
        for key, gpu in there.gpus.items():
            if not gpu.answered:
                continue
            alone = len(models[gpu.name]) == 1
            behind = (gpu.pcie_width or 0) < widest[gpu.name] or (gpu.pcie_gen or 0) < newest[gpu.name]
            if not alone and not behind:  # nearly all: only few are compared with all others
                continue
            peers = [one for one in models[gpu.name] if one is not gpu]
            width, most, count = usual([one.pcie_width for one in peers])
            if gpu.pcie_width and gpu.pcie_width != ALL_ONES and isinstance(width, int) and most * 2 > count:
                if gpu.pcie_width < width:
                    says = f"runs on {gpu.pcie_width} PCIe lanes, its peers on {width}"
                    yield _found(node, gpu, says, there.refs[key], "pcie_narrower_than_peers")
            elif not peers and gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width * 2 <= gpu.pcie_width_max:
                says = f"runs on {gpu.pcie_width} of {gpu.pcie_width_max} PCIe lanes"
                yield _found(node, gpu, says, there.refs[key], "pcie_narrow")
            yield from _slow(node, gpu, peers, there.refs[key])


def _slow(node: str, gpu: Gpu, peers: list[Gpu], ref: str) -> Iterator[Hypothesis]:
    """Generation, both under load."""
    busy = [one for one in peers if (one.utilisation_percent or 0) >= BUSY]
    usually, most, count = usual([one.pcie_gen for one in busy])
    if not isinstance(usually, int) or most * 2 <= count or (gpu.utilisation_percent or 0) < BUSY:
        return
    if gpu.pcie_gen is not None and gpu.pcie_gen < usually:
        says = f"runs at PCIe generation {gpu.pcie_gen} under load, its busy peers at {usually}"
        yield _found(node, gpu, says, ref, "pcie_narrower_than_peers")


def _found(node: str, gpu: Gpu, says: str, ref: str, signal: str) -> Hypothesis:
    subject: dict[str, str | int] = {"node": node} if node else {}
    subject |= {"bus_id": gpu.bus_id} if gpu.bus_id else {}
    subject |= {} if gpu.index is None else {"gpu": gpu.index}
    name = f"GPU {gpu.bus_id}" if gpu.index is None else f"GPU {gpu.index}"
    name += f" ({gpu.bus_id})" if gpu.index is not None and gpu.bus_id else ""
    strong = signal == "pcie_narrower_than_peers"
    return Hypothesis(
        CAUSE,
        subject,
        f"{name} on {node or 'a node'} {says}",
        (Reason(f"{name} {says}", ref),),
        (signal,),
        against=(Reason("a narrow link is slow: by itself it stops no collective", ref),),
        would_change=("the same width and generation as its peers under load",),
        nodes=frozenset({node}) if strong else frozenset(),
    )


def _on_bus(evidence: Evidence) -> Iterator[Hypothesis]:
    """lspci: a GPU's own link against that of the others on its node."""
    for seen in evidence.of("host.pci"):
        gpus = seen.facts.of("gpu") or _unnamed(evidence, seen)
        width, most, count = usual([gpu.width for gpu in gpus])
        alone = gpus[0] if len(gpus) == 1 else None
        if alone is not None and alone.width and alone.width_max and alone.width * 2 <= alone.width_max:
            yield _at(seen, alone.slot, f"runs on {alone.width} of {alone.width_max} PCIe lanes", "pcie_narrow")
        for gpu in gpus:
            if gpu.dead or not gpu.width or not isinstance(width, int) or most * 2 <= count:
                continue
            if gpu.width < width:
                says = f"runs on {gpu.width} PCIe lanes, the others on {width}"
                yield _at(seen, gpu.slot, says, "pcie_narrower_than_peers")


def _unnamed(evidence: Evidence, seen: Seen) -> tuple[PciDevice, ...]:
    """Links that are told by address alone, where something else says of an address among them that a GPU is there."""
    devices: tuple[PciDevice, ...] = seen.facts.of("unnamed")
    there = gpus_of(evidence).get(seen.node)
    logs = [one.facts for one in evidence.of("host.kernel_log") if one.node == seen.node]
    told = {event.device for log in logs for event in log.aer if event.text.startswith(GPU_DRIVERS)}
    is_gpu = (one.slot in told or (there is not None and there.at(one.slot) is not None) for one in devices)
    return devices if any(is_gpu) else ()


def _at(seen: Seen, slot: str, what: str, signal: str) -> Hypothesis:
    says = f"the GPU at {slot} {what}"
    subject: dict[str, str | int] = {"bus_id": slot}
    return Hypothesis(
        CAUSE,
        subject | ({"node": seen.node} if seen.node else {}),
        f"On {seen.node or 'a node'} {says}",
        (Reason(says, seen.ref),),
        (signal,),
        would_change=("the same width as the others",),
        nodes=frozenset({seen.node}) if signal == "pcie_narrower_than_peers" else frozenset(),
    )


def _errors(evidence: Evidence) -> Iterator[Hypothesis]:
    """Advanced Error Reporting in the kernel log."""
    times, gpus = times_of(evidence), gpus_of(evidence)
    for seen in evidence.of("host.kernel_log"):
        said = [finding for finding in seen.findings if finding.code == "kernel.aer"]
        for event, finding in zip(seen.facts.aer, said, strict=False):
            if finding.severity == "info" or times.old(seen.node, event.last_at, event.last):
                continue
            if event.severity != "corrected" and event.text.startswith(ADAPTERS):
                continue  # that adapter is at fault
            serious = {"fatal": "pcie_fatal_errors", "nonfatal": "pcie_uncorrected_errors"}
            signal = serious.get(event.severity, _corrected(event))
            there = gpus.get(seen.node)
            is_gpu = event.text.startswith(GPU_DRIVERS) or (there is not None and there.at(event.device) is not None)
            subject: dict[str, str | int] = {"bus_id" if is_gpu else "device": event.device}
            yield Hypothesis(
                CAUSE,
                {"node": seen.node, **subject} if seen.node else subject,
                f"On {seen.node or 'a node'} {finding.says}",
                (Reason(finding.says, seen.ref),),
                (signal,),
                would_change=("no more of these lines after a reseat",),
                nodes=frozenset({seen.node}) if signal != "pcie_some_errors" else frozenset(),
            )


def _corrected(event: Aer) -> str:
    """How many there are, or how fast they come: the kernel prints some of them only."""
    if event.count >= STORM:
        return "pcie_error_storm"
    lasted = seconds_between(event.first_at, event.first, event.last_at, event.last)
    steady = lasted is not None and lasted >= LEAST_S and event.count * 3600 / lasted >= AN_HOUR
    return "pcie_error_rate" if steady else "pcie_some_errors"


def _replays(evidence: Evidence) -> Iterator[Hypothesis]:
    """Packets that were sent again, against the other GPUs of the model: totals alone are noise."""
    nodes = gpus_of(evidence)
    every = [(node, key, gpu) for node, there in nodes.items() for key, gpu in there.gpus.items()]
    for node, key, gpu in every:
        if (gpu.pcie_replays_more or 0) >= RISES:
            says = f"sent {gpu.pcie_replays_more} packets again over PCIe between two looks"
            yield _found(node, gpu, says, nodes[node].refs[key], "pcie_error_rate")
        if (gpu.pcie_replays or 0) < REPLAYS:
            continue
        peers = [one.pcie_replays for _, _, one in every if one is not gpu and one.pcie_replays is not None]
        if peers and (gpu.pcie_replays or 0) >= TIMES * max(median(peers), 1):
            says = f"has sent {gpu.pcie_replays} packets again over PCIe, its peers about {median(peers):.0f}"
            yield _found(node, gpu, says, nodes[node].refs[key], "pcie_replays_above_peers")


RULE = Rule((CAUSE,), judge)
