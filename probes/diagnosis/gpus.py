"""The GPUs of all nodes, from every reading that tells of them: asked, listed, as table, CSV or XML, on the PCI bus."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from probes.catalog.gpu.facts import Gpu
from probes.diagnosis.core import Evidence, Seen

GPU_PROBES = ("gpu.state", "gpu.amd")  # NVIDIA's (and all brought files), AMD's live


@dataclass(slots=True)
class NodeGpus:
    """`gpus` by key (bus id, else index). `listed`: how many GPUs the driver showed at most, None where a reading shows
    only some. `on_pci`: how many the bus shows. `refs`: key -> reading."""

    node: str
    gpus: dict[str, Gpu] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    listed: int | None = None
    listed_ref: str = ""
    on_pci: int | None = None
    pci_ref: str = ""
    drivers: dict[str, str] = field(default_factory=dict)  # version -> reading

    def at(self, bus_id: str) -> tuple[Gpu, str] | None:
        """The GPU at a bus id, with or without its function, and its reading."""
        short = bus_id.lower().partition(".")[0]
        return next(((g, self.refs[key]) for key, g in self.gpus.items() if g.bus_id.partition(".")[0] == short), None)


def gpu_states(evidence: Evidence) -> Iterator[Seen]:
    """What tells the state of a node's GPUs, of either maker: the facts have one shape."""
    for probe in GPU_PROBES:
        yield from evidence.of(probe)


def gpus_of(evidence: Evidence) -> dict[str, NodeGpus]:
    """By node; made once for all rules, which only read it."""
    found: dict[str, NodeGpus] = evidence.derived("gpus", lambda: _gpus_of(evidence))
    return found


def _gpus_of(evidence: Evidence) -> dict[str, NodeGpus]:
    found: dict[str, NodeGpus] = {}
    for seen in gpu_states(evidence):
        there = found.setdefault(seen.node, NodeGpus(seen.node))
        if seen.facts.driver:
            there.drivers.setdefault(seen.facts.driver, seen.ref)
        for gpu in seen.facts.gpus:
            _add(there, gpu, seen.ref)
        answered = sum(gpu.answered for gpu in seen.facts.gpus)
        whole = seen.facts.attached is None or answered >= seen.facts.attached
        if answered and whole and answered > (there.listed or 0):
            there.listed, there.listed_ref = answered, seen.ref
        if seen.facts.on_pci is not None:
            there.on_pci, there.pci_ref = max(there.on_pci or 0, seen.facts.on_pci), seen.ref
    for seen in evidence.of("host.pci"):
        there = found.setdefault(seen.node, NodeGpus(seen.node))
        count = len(seen.facts.of("gpu"))
        if count:
            there.on_pci, there.pci_ref = max(there.on_pci or 0, count), seen.ref
    return found


def _add(there: NodeGpus, gpu: Gpu, ref: str) -> None:
    """Of two readings of one GPU the later fills what the earlier leaves open; a silent one stays silent."""
    key = gpu.bus_id or next((k for k, g in there.gpus.items() if gpu.index is not None and g.index == gpu.index), "")
    key = key or f"#{gpu.index}"
    if gpu.bus_id and gpu.index is not None and (old := there.gpus.pop(f"#{gpu.index}", None)) is not None:
        there.gpus[key], there.refs[key] = dataclasses.replace(old, bus_id=gpu.bus_id), there.refs.pop(f"#{gpu.index}")
    known = there.gpus.get(key)
    if known is None:
        there.gpus[key], there.refs[key] = gpu, ref
        return
    if not gpu.answered:
        there.gpus[key], there.refs[key] = gpu, ref
        return
    more = {
        one.name: getattr(gpu, one.name)
        for one in dataclasses.fields(Gpu)
        if getattr(known, one.name) in (None, ()) and getattr(gpu, one.name) not in (None, ())
    }
    there.gpus[key] = dataclasses.replace(known, **more)


def usual(values: Iterator[object] | list[object]) -> tuple[object, int, int]:
    """(the value that most have, how many have it, how many there are), None values left out."""
    counts = Counter(value for value in values if value is not None)
    if not counts:
        return None, 0, 0
    value, count = counts.most_common(1)[0]
    return value, count, sum(counts.values())
