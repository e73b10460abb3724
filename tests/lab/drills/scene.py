"""One look at all nodes of a drill: every probe of a suite, answered by each node at its own time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from probes.core import Capture
from tests.lab.drills import fabric, gpus, hosts, logs, ranks, recorders
from tests.lab.drills.cluster import Job, Node
from tests.lab.drills.fabric import Odd
from tests.lab.drills.ranks import Doing

VERIFY = ("rank.map", "rank.process", "rank.flight_recorder", "rank.log")
NO_RANK = "none of {seen} processes was started with RANK and WORLD_SIZE, or Slurm's or MPI's"
NO_LOG = "no training rank and no launcher on this node writes to a file"
NO_RAS = "nobody listens: NCCL before 2.24, NCCL_RAS_ENABLE=0, or no communicator yet"
NO_AMD = "no AMD GPU on the PCI bus (vendor 0x1002, class 0x0302, 0x0380 or 0x1200)"
# When each probe begins after the node was reached, and how long it takes; measured on real nodes, in seconds.
TOOK = {
    "rank.map": (0.02, 0.17), "rank.process": (0.03, 1.23), "rank.flight_recorder": (0.05, 0.42),
    "rank.stack": (0.05, 1.61), "rank.log": (0.06, 0.55), "rank.env": (0.06, 0.19), "nccl.ras": (0.07, 0.02),
    "host.clock": (0.07, 0.05), "host.kernel_log": (0.08, 0.31), "host.load": (0.08, 1.09),
    "host.storage": (0.09, 1.08), "ib.ports": (0.1, 0.16), "gpu.amd": (0.1, 0.02),
    "gpu.state": (0.11, 0.93),
}  # fmt: skip


@dataclass
class Look:
    """What is so on one node at one time, where it is not as usual."""

    job: Job
    node: Node
    at: float
    place: Callable[[float], recorders.Place]  # where every rank stands at a moment
    doing: Mapping[int, Doing] = field(default_factory=dict)
    gone: tuple[int, ...] = ()
    missing: Mapping[int, str] = field(default_factory=dict)
    lines: Mapping[int, list[tuple[float, str]]] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    kernel: tuple[tuple[float, str], ...] = ()
    ports: Mapping[str, Odd] = field(default_factory=dict)
    gpu: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    smi: Mapping[int, Mapping[str, str]] | None = None  # given: the node is asked through nvidia-smi
    lost: tuple[int, ...] = ()
    backup: bool = False
    failed: Mapping[str, Capture] = field(default_factory=dict)  # probes that did not answer

    def captures(self, probes: tuple[str, ...] = tuple(TOOK)) -> Iterator[Capture]:
        runs_here = self.node in self.job.nodes
        for probe in probes:
            if probe in self.failed:
                yield self.failed[probe]
            elif not runs_here and probe.startswith("rank."):
                seen = self.node.rng(f"seen {self.at}").randrange(190, 240)
                yield self._capture(probe, b"", "absent", NO_LOG if probe == "rank.log" else NO_RANK.format(seen=seen))
            elif probe == "nccl.ras":
                yield self._capture(probe, b"", "absent", NO_RAS)
            elif probe == "gpu.amd":
                yield self._capture(probe, b"", "absent", NO_AMD)
            else:
                yield self._capture(probe, self._out(probe).encode())

    def _capture(self, probe: str, out: bytes, outcome: str = "ok", why: str = "") -> Capture:
        begins, took = TOOK[probe]
        rng = self.node.rng(f"took {probe} {self.at}")
        at, took = self._when(probe), took * rng.uniform(0.93, 1.18)
        return Capture(
            self.node.name, probe, outcome, out, why=why, at=self.node.clock(at), mono=self.node.mono(at),  # type: ignore[arg-type]
            took_s=round(took, 3), boot_id=self.node.boot_id,
        )  # fmt: skip

    def _when(self, probe: str) -> float:
        reached = self.at + self.node.rng(f"reached {self.at}").uniform(0.08, 0.9)
        return round(reached + TOOK[probe][0], 6)

    def _out(self, probe: str) -> str:
        job, node, at = self.job, self.node, self._when(probe)
        makes = {
            "rank.map": lambda: ranks.rank_map(job, node, self.gone),
            "rank.env": lambda: ranks.rank_env(job, node, self.env),
            "rank.process": lambda: ranks.processes(job, node, at, self.doing, self.gone),
            "rank.stack": lambda: ranks.stacks(job, node, self.doing, self.gone),
            "rank.flight_recorder": lambda: recorders.recorders(job, node, at, self.place(at), self.missing, self.gone),
            "rank.log": lambda: logs.logs(job, node, at, self.lines, self.gone),
            "host.clock": lambda: hosts.clock(node, at),
            "host.kernel_log": lambda: hosts.kernel_log(node, at, self.kernel),
            "host.load": lambda: hosts.load(node, at, job.ranks(node), self.backup),
            "host.storage": lambda: hosts.storage(node),
            "ib.ports": lambda: fabric.ports(node, at, self.ports),
            "gpu.state": lambda: self._gpus(at),
        }
        return makes[probe]()

    def _gpus(self, at: float) -> str:
        here = [rank for rank in self.job.ranks(self.node) if rank.rank not in self.gone]
        if self.smi is None:
            return gpus.by_nvml(self.node, here, self.gpu)
        when = datetime.fromtimestamp(self.node.clock(at), UTC)
        return gpus.by_smi(self.node, f"{when:%a %b %e %H:%M:%S %Y}", here, self.smi, self.lost)
