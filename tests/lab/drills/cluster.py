"""A cluster that does not exist: its nodes with ids of their own, and the job that runs on them."""

from __future__ import annotations

import itertools
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

DRILLS = Path(__file__).resolve().parents[3] / "probes" / "drills"
GPUS = 8

# PCI addresses of GPUs and adapters of two kinds of 8-GPU machines, in the order in which the driver numbers them.
PLATFORMS = (
    (("1b", "43", "52", "61", "9d", "c3", "d1", "df"), ("18", "40", "4f", "5e", "9a", "c0", "ce", "dc")),
    (("0f", "2d", "44", "5b", "89", "a8", "c0", "d8"), ("0c", "29", "41", "58", "86", "a5", "bd", "d5")),
)


def sections(parts: Mapping[str, str]) -> str:
    """As the runner prints what a collector found."""
    return "".join(f"==> {name} <==\n{text.rstrip(chr(10))}\n\n" for name, text in parts.items())


def t0_of(drill: str) -> float:
    """The moment at which the recording begins, seconds since the epoch: `t0` of its drill.toml."""
    told = tomllib.loads((DRILLS / drill / "drill.toml").read_text())
    return float(told["t0"].timestamp())


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Node:
    """One machine. `uptime`: seconds since its boot at T0; `offset`: seconds its clock is ahead."""

    drill: str
    name: str
    number: int
    t0: float
    clock_off: float = 0.0

    def rng(self, topic: str) -> random.Random:
        """Numbers of its own for one topic, always the same."""
        return random.Random(f"{self.drill}/{self.name}/{topic}")

    @property
    def platform(self) -> tuple[Sequence[str], Sequence[str]]:
        return PLATFORMS[self.number % 64 > 32]

    @property
    def gpus(self) -> list[str]:
        return [f"0000:{bus}:00.0" for bus in self.platform[0]]

    @property
    def hcas(self) -> list[str]:
        return [f"0000:{bus}:00.0" for bus in self.platform[1]]

    @property
    def address(self) -> str:
        return f"10.40.{self.number // 250}.{self.number % 250 + 1}"

    @property
    def boot_id(self) -> str:
        return uuid_of(self.rng("boot"))

    @property
    def uptime(self) -> float:
        return self.rng("uptime").uniform(11 * 86_400, 43 * 86_400)

    @property
    def offset(self) -> float:
        return self.clock_off or self.rng("offset").uniform(-0.0021, 0.0021)

    def clock(self, at: float) -> float:
        """Its own time at this moment."""
        return round(at + self.offset, 6)

    def mono(self, at: float) -> float:
        return round(self.uptime + at - self.t0, 6)


def uuid_of(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


@dataclass(frozen=True)
class Rank:
    rank: int
    local: int
    pid: int
    started: int  # ticks since the node's boot
    start_time: float


@dataclass(frozen=True)
class Job:
    """A job of 8 ranks a node, one a GPU. `began`: when its ranks were started. `step`: how far it is at `step_at`."""

    name: str
    slurm: str
    nodes: tuple[Node, ...]
    began: float
    step: int
    step_at: float
    step_s: float

    @property
    def world_size(self) -> int:
        return GPUS * len(self.nodes)

    @property
    def master(self) -> str:
        return f"{self.nodes[0].name}:29500"

    def ranks(self, node: Node) -> list[Rank]:
        """Those of one node, in order; none when the job does not run there."""
        if node not in self.nodes:
            return []
        rng = node.rng(f"pids {self.slurm}")
        first, began = rng.randrange(20_000, 3_900_000), self.began + rng.uniform(0, 1.5)
        pids = list(itertools.accumulate((rng.randrange(1, 4) for _ in range(GPUS)), initial=first))[1:]
        place = GPUS * self.nodes.index(node)
        found = []
        for local, pid in enumerate(pids):
            start = round(began + 0.01 * local, 2)
            found.append(Rank(place + local, local, pid, int((node.mono(start)) * 100), node.clock(start)))
        return found

    def launcher(self, node: Node) -> int:
        return self.ranks(node)[0].pid - 3

    def step_now(self, at: float) -> int:
        """The step that runs at this moment, while the job advances."""
        return self.step + int((at - self.step_at) / self.step_s)
