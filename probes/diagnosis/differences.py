"""Values that should be equal along the job and are not: "NVIDIA driver: 535.183.01 on 63 nodes, 550.54.15 on gpu-017".

A difference is no cause by itself: rules say what follows from some. People look at the list first all the same.

Shape    differences_of(evidence) -> those that there are, the fewest odd nodes first
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from probes.catalog.gpu.links import NEAR, nearest
from probes.core import clean
from probes.diagnosis.core import Evidence, Reason
from probes.diagnosis.gpus import GPU_PROBES, gpu_states

MOST, NAMED = 24, 4  # differences that are told, nodes that are named of each value
# What training loads: some of it only when it is first used. One that is built into the kernel is listed on no node.
MODULES = ("nvidia_uvm", "gdrdrv", "ib_uverbs", "mlx5_ib", "rdma_ucm")
MEMORY, MODULE = "memory of the node", 0.02  # of 32 modules one is 3 %
PEERMEM = ("nvidia_peermem", "nv_peer_mem")
WORDS = {
    "driver": "NVIDIA driver",
    "driver library": "driver library",
    "driver kind": "kind of NVIDIA driver",
    "torch": "PyTorch",
}


@dataclass(frozen=True, slots=True)
class Difference:
    """`values`: each with its nodes, the most frequent first. `readings`: one of each odd node that is named."""

    what: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    readings: tuple[Reason, ...]

    @property
    def says(self) -> str:
        """One sentence without its end."""
        return f"{self.what}: " + ", ".join(f"{value} on {_nodes(nodes)}" for value, nodes in self.values[:6])

    @property
    def odd(self) -> int:
        return sum(len(nodes) for _, nodes in self.values[1:])


def differences_of(evidence: Evidence) -> tuple[Difference, ...]:
    """Of nodes with the same model of GPU, where that is known: a job may span two kinds of machines."""
    told: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}  # (group, what) -> node -> (value, reading)
    models = _models(evidence)
    for probe, values_of in _OF.items():
        for seen in evidence.of(probe):
            if not seen.node:
                continue
            for what, value in values_of(seen.facts):
                told.setdefault((models.get(seen.node, ("", ""))[0], what), {}).setdefault(seen.node, (value, seen.ref))
    found = [_difference(what, _alike(nodes) if what == MEMORY else nodes) for (_, what), nodes in told.items()]
    found.append(_difference("processes on GPUs that are no ranks", _no_ranks(evidence)))
    kinds: dict[str, list[str]] = {}
    for node, (model, _) in models.items():
        kinds.setdefault(model, []).append(node)
    if len(kinds) > 1:
        found.append(_difference("model of GPU", models))
    return tuple(sorted(filter(None, found), key=lambda one: (one.odd, one.what))[:MOST])


def _alike(nodes: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Sizes that differ by less than a module of memory are one: firmware and kernel keep some for themselves."""
    found: dict[str, tuple[str, str]] = {}
    largest = 0.0
    for node, (size, ref) in sorted(nodes.items(), key=lambda one: -float(one[1][0])):
        largest = largest if largest and float(size) > (1 - MODULE) * largest else float(size)
        found[node] = (f"{largest:.0f} GiB", ref)
    return found


def _memory(facts: Any) -> Iterator[tuple[str, str]]:
    if facts.memory_total_bytes:
        yield MEMORY, str(facts.memory_total_bytes / 2**30)


def _no_ranks(evidence: Evidence) -> dict[str, tuple[str, str]]:
    """Who else computes on the GPUs of a node: left over from another job, or another user's. Only where the node tells
    ranks among them: else the numbers are of another PID namespace."""
    ranks: dict[str, set[int]] = {}
    for seen in evidence.of("rank.map"):
        mine = {rank.pid for rank in seen.facts.ranks} | {one.pid for rank in seen.facts.ranks for one in rank.workers}
        ranks.setdefault(seen.node, set()).update(mine)
    found = {}
    for seen in gpu_states(evidence):
        holders = {pid: gpu for gpu in seen.facts.gpus for pid in gpu.pids}
        mine = ranks.get(seen.node, set())
        if not mine & set(holders):
            continue
        others = [f"{pid} on GPU {gpu.index if gpu.index is not None else gpu.bus_id}" for pid, gpu in holders.items()
            if pid not in mine]  # fmt: skip
        found[seen.node] = (" and ".join(others[:NAMED]) or "none", seen.ref)
    return found


def _difference(what: str, nodes: Mapping[str, tuple[str, str]]) -> Difference | None:
    counts = Counter(value for value, _ in nodes.values())
    if len(counts) < 2:
        return None
    order = [value for value, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]
    values = tuple((value, tuple(sorted(node for node, (own, _) in nodes.items() if own == value))) for value in order)
    odd = [(node, value) for value, some in values[1:] for node in some[:NAMED]][: 4 * NAMED]
    return Difference(what, values, tuple(Reason(f"{node}: {value}", nodes[node][1]) for node, value in odd))


def _nodes(nodes: tuple[str, ...]) -> str:
    if len(nodes) <= NAMED:
        return ", ".join(nodes)
    return f"{len(nodes)} nodes"


def _models(evidence: Evidence) -> dict[str, tuple[str, str]]:
    """Node -> the model of its GPUs, and the reading that tells it."""
    found: dict[str, tuple[str, str]] = {}
    for seen in gpu_states(evidence):
        names = sorted({gpu.name for gpu in seen.facts.gpus if gpu.name})
        if seen.node and names:
            found.setdefault(seen.node, (" and ".join(names), seen.ref))
    return found


def _versions(facts: Any) -> Iterator[tuple[str, str]]:
    for component, version in facts.found.items():
        yield WORDS.get(component, component), version.partition("-1+")[0]


def _switched(value: bool) -> str:
    """ "off on gpu-017" would be hard to read."""
    return "enabled" if value else "disabled"


def _settings(facts: Any) -> Iterator[tuple[str, str]]:
    """Only what a node's tool or probe told."""
    numbers = (("CPUs online", facts.cpus), ("cores", facts.cores), ("NUMA nodes", facts.numa_nodes))
    yield from ((what, str(number)) for what, number in numbers if number is not None)
    if facts.clocksource:
        yield "clock source", facts.clocksource
        yield "automatic NUMA balancing", _switched(facts.numa_balancing)
    if facts.cpu_model:
        yield "model of CPU", facts.cpu_model
    if facts.governors:
        yield "CPU governor", " and ".join(facts.governors)
    words = (("transparent huge pages", facts.huge_pages), ("IOMMU", facts.iommu))
    yield from ((what, word) for what, word in words if word)
    files = sorted({room.files for room in facts.rooms if room.files})
    if files:
        yield "limit of open files of ranks", " and ".join(map(str, files))
    if facts.modules and any(name.startswith("nvidia") for name in facts.modules):
        yield "module for GPUDirect RDMA", "loaded" if set(PEERMEM) & set(facts.modules) else "not loaded"
        yield from ((f"module {name}", "loaded" if name in facts.modules else "not loaded") for name in MODULES)


def _gpus(facts: Any) -> Iterator[tuple[str, str]]:
    if facts.driver:
        yield WORDS["driver"], facts.driver
    if not facts.gpus:
        return
    yield "GPUs that answer", str(sum(gpu.answered for gpu in facts.gpus))
    for what, values in (
        ("persistence mode", {gpu.persistence for gpu in facts.gpus} - {None}),
        ("MIG", {gpu.mig for gpu in facts.gpus} - {None}),
        ("ECC", {gpu.ecc for gpu in facts.gpus} - {None}),
    ):
        if values:
            yield what, " and ".join(map(_switched, sorted(values)))
    for what, words in (
        ("VBIOS", {gpu.vbios for gpu in facts.gpus}),
        ("GSP firmware", {gpu.gsp for gpu in facts.gpus}),
    ):
        if words - {None}:
            yield what, " and ".join(sorted(words - {None}))
    limits = sorted({gpu.power_limit_w for gpu in facts.gpus if gpu.power_limit_w})
    if limits:
        yield "power limit", " and ".join(f"{watts:g} W" for watts in limits)


def _services(facts: Any) -> Iterator[tuple[str, str]]:
    yield from ((f"service {unit.name}", unit.active) for unit in facts.units)


def _links(facts: Any) -> Iterator[tuple[str, str]]:
    """Of the interfaces that carry RDMA only: others differ for good reasons."""
    rdma = [link for link in facts.links if link.hca]
    sizes = sorted({link.mtu for link in rdma if link.mtu})
    if sizes:
        yield "MTU of RDMA interfaces", " and ".join(map(str, sizes))
    pauses = {link.pause for link in rdma} - {None}
    if pauses:
        yield "pause frames", " and ".join(map(_switched, sorted(pauses)))
    for what, values in (
        ("buffers of priorities without loss", {_buffers(link) for link in rdma} - {""}),
        ("shares of traffic classes", {_shown(link.class_share) for link in rdma if link.class_share}),
        ("traffic classes of priorities", {_shown(link.class_of) for link in rdma if link.class_of}),
    ):
        if values:
            yield what, " and ".join(sorted(values))


def _shown(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def _buffers(link: Any) -> str:
    """ "3 in buffer 1 of 130,944 bytes"; "" where it was not told, or no priority is without loss."""
    sizes = link.buffer_bytes or ()
    told = []
    for priority in link.pfc or () if link.buffer_of else ():
        buffer = link.buffer_of[priority] if priority < len(link.buffer_of) else None
        size = f" of {sizes[buffer]:,} bytes" if buffer is not None and buffer < len(sizes) else ""
        told.append(f"{priority} in buffer {buffer}{size}")
    return ", ".join(told)


def _ports(facts: Any) -> Iterator[tuple[str, str]]:
    active = [port for port in facts.ports if port.state == "ACTIVE"]
    if facts.ports:
        yield "RDMA ports that are up", str(len(active))
    rates = sorted({port.rate_gbps for port in active if port.rate_gbps})
    if rates:
        yield "rate of RDMA ports", " and ".join(f"{rate:g} Gb/s" for rate in rates)


def _near(facts: Any) -> Iterator[tuple[str, str]]:
    """`PIX: GPU0 NIC0, GPU1 NIC1; SYS: GPU2`: only of those that are near does it matter which."""
    by_path: dict[str, list[str]] = {}
    for gpu, (word, nics) in nearest(facts).items():
        by_path.setdefault(word, []).append(f"{gpu} {'+'.join(nics)}" if word in NEAR else gpu)
    if by_path:
        yield (
            "adapter nearest to each GPU",
            "; ".join(f"{path}: {', '.join(by_path[path])}" for path in sorted(by_path)),
        )


def _adapters(facts: Any) -> Iterator[tuple[str, str]]:
    if facts.mtus:
        yield "MTU of InfiniBand ports", " and ".join(map(str, sorted(set(facts.mtus.values()))))


_OF: dict[str, Callable[[Any], Iterator[tuple[str, str]]]] = {
    "host.versions": _versions,
    "host.settings": _settings,
    "host.load": _memory,
    "host.services": _services,
    **dict.fromkeys(GPU_PROBES, _gpus),
    "net.links": _links,
    "ib.ports": _ports,
    "ib.resources": _adapters,
    "gpu.topo": _near,
}


def as_json(found: tuple[Difference, ...]) -> list[dict[str, Any]]:
    """For telling and the page."""
    return [
        {
            "what": clean(one.what)[:80],
            "says": clean(one.says)[:600],
            "readings": [
                {"says": clean(each.says)[:200], "reading": clean(each.reading)[:400]} for each in one.readings
            ],
        }
        for one in found
    ]
