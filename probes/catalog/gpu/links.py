"""Facts and findings of what connects the GPUs of a node: nvidia-smi topo -m, nvidia-smi nvlink, fabric manager.

Units    NVLinks by their number; GB/s of one link
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from probes.catalog.gpu.p2p import PeerStatus, peer_findings
from probes.core import Finding

# Error counters of a link that are totals since boot and count harmless events too. Replays and recoveries are the
# link's own repair; what could not be repaired is told apart (nvidia-smi nvlink -e).
HARMLESS = ("recovery successful", "total recovery", "replay")


@dataclass(frozen=True, slots=True)
class Topology:
    """nvidia-smi topo -m: how each pair of GPUs is connected (NV18, PIX, PXB, PHB, NODE, SYS)."""

    gpus: tuple[str, ...]
    pairs: Mapping[str, str] = field(default_factory=dict)  # "GPU0 GPU1" -> word
    nics: Mapping[str, str] = field(default_factory=dict)  # "GPU0 NIC0" -> word
    peers: PeerStatus | None = None  # who may read whose memory

    def links(self, gpu: str) -> list[int]:
        """NVLinks of a GPU to each peer; 0 where the pair has none."""
        return [nv(word) for pair, word in self.pairs.items() if gpu in pair.split()]


# Without the CPU in between, where GPUDirect RDMA is fast (NVIDIA, GPUDirect RDMA, "Supported Systems").
NEAR = ("PIX", "PXB")
PATHS = (*NEAR, "PHB", "NODE", "SYS")  # nearest first (nvidia-smi(1), topo)


def nearest(topology: Topology) -> dict[str, tuple[str, tuple[str, ...]]]:
    """GPU -> its shortest path to any adapter, and to which ones that is; without those that have none."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for gpu in topology.gpus:
        words = {pair.split()[1]: word for pair, word in topology.nics.items() if pair.split()[0] == gpu}
        best = min((PATHS.index(word) for word in words.values() if word in PATHS), default=None)
        if best is not None:
            found[gpu] = PATHS[best], tuple(nic for nic, word in words.items() if word == PATHS[best])
    return found


def nv(word: str) -> int:
    """`NV18` -> 18, anything else 0."""
    return int(word[2:]) if word[:2] == "NV" and word[2:].isdecimal() and len(word) < 6 else 0


@dataclass(frozen=True, slots=True)
class LinkState:
    gpu: int
    name: str
    speeds: Mapping[int, float | None]  # link -> GB/s, None where it is inactive
    errors: Mapping[str, int] = field(default_factory=dict)  # kind of error -> sum over the links
    why: str = ""  # why it has none, as printed


@dataclass(frozen=True, slots=True)
class NvLinks:
    gpus: tuple[LinkState, ...]


@dataclass(frozen=True, slots=True)
class FabricEvent:
    """One line of fabric manager's log at error or fatal. `count` where it repeats."""

    text: str
    stamp: str
    count: int
    fatal: bool
    switch: str = ""  # its bus id


@dataclass(frozen=True, slots=True)
class FabricManager:
    """`active`: None where only a log is there. `state`: systemd's own words."""

    active: bool | None
    state: str = ""
    events: tuple[FabricEvent, ...] = ()
    configured: bool | None = None  # the log's last word on it


def topology_findings(topology: Topology) -> Iterator[Finding]:
    """A GPU without NVLink among peers that have it, or with fewer links than they."""
    for gpu, says, peers in odd_gpus(topology):
        subject: dict[str, str | int] = {"gpu": int(gpu[3:])} if gpu[3:].isdecimal() else {}
        yield Finding("gpu.topo_no_nvlink", "bad", f"{gpu} {says}; {peers}", subject)
    if topology.peers is not None:
        yield from peer_findings(topology.peers)


def odd_gpus(topology: Topology) -> Iterator[tuple[str, str, str]]:
    """(GPU, what is odd, what the others have). At least three GPUs, most of them alike: nothing is said of two."""
    most = {gpu: max(topology.links(gpu), default=0) for gpu in topology.gpus}
    usual, count = Counter(most.values()).most_common(1)[0] if most else (0, 0)
    if usual == 0 or count * 2 <= len(most) or len(most) < 3:
        return
    for gpu, links in most.items():
        if links == 0:
            words = {word for pair, word in topology.pairs.items() if gpu in pair.split()}
            yield gpu, f"has no NVLink to any other ({', '.join(sorted(words))[:40]})", f"the others have NV{usual}"
        elif links < usual:
            yield gpu, f"has only {links} NVLinks to the others", f"they have {usual} among each other"


def nvlink_findings(state: NvLinks) -> Iterator[Finding]:
    """Links that are down while others of the node are up; errors that a link could not repair."""
    up = [sum(speed is not None for speed in one.speeds.values()) for one in state.gpus]
    most = max(up, default=0)
    for one, count in zip(state.gpus, up, strict=True):
        down = [str(link) for link, speed in one.speeds.items() if speed is None]
        if most and (down or count < most) and (one.speeds or one.why.lower().endswith("inactive")):
            which = (
                f"links {', '.join(down[:18])} are" if len(down) > 1 else f"link {down[0]} is" if down else "all are"
            )
            says = f"GPU {one.gpu}: NVLink {which} inactive; {most} are up on another GPU"
            if count == most:
                says = f"GPU {one.gpu}: NVLink {which} inactive"
            yield Finding("gpu.nvlink_inactive", "bad", says, {"gpu": one.gpu})
        bad = {kind: number for kind, number in one.errors.items() if number and not kind.startswith(HARMLESS)}
        if bad:
            words = ", ".join(f"{number} {kind}" for kind, number in list(bad.items())[:6])
            says = f"GPU {one.gpu}: NVLink errors since boot: {words}; only counts that rise tell of now"
            yield Finding("gpu.nvlink_errors", "warn", says, {"gpu": one.gpu})


def fabric_findings(manager: FabricManager) -> Iterator[Finding]:
    """The service is down, or its log tells of switches that failed."""
    if manager.active is False:
        says = f"the fabric manager does not run ({manager.state}): CUDA fails with error 802 on NVSwitch machines"
        yield Finding("gpu.fabric_manager_down", "bad", says)
    for event in manager.events:
        count = f", {event.count} times" if event.count > 1 else ""
        subject: dict[str, str | int] = {"switch": event.switch} if event.switch else {}
        at = f" at {event.stamp} (local time)" if event.stamp else ""
        says = f"fabric manager: {event.text}{count}{at}"
        yield Finding("gpu.fabric_manager_error", "bad" if event.fatal else "warn", says, subject)
