"""Flight-recorder dumps: from files, and as the nodes have reduced them."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from probes.catalog.recorder import reader
from probes.catalog.recorder.facts import Dump, FlightRecorder, dump_of
from probes.diagnosis.core import Evidence, Seen
from tests.accuracy import peers
from tests.bench.dumps import dump, write
from tests.bench.measure import Cost, call, command
from tests.bench.rows import Row

ENTRIES = 2000


def from_files(folder: Path, quick: bool) -> Iterator[Row]:
    """`explain` over the dumps of all ranks, beside torch's analyser over the same files."""
    world = 64 if quick else 1024
    place = folder / "dumps"
    write(place, world, ENTRIES)
    what = f"{world:,} dumps of {ENTRIES:,} entries from files"
    peer = None
    if peers.LAB.exists():
        cost, _ = command([*peers.ANALYSER, str(place), "-p", "rank_"], {"OMP_NUM_THREADS": "1"})
        peer = cost.cpu_s
        yield Row(what, "torchfrtrace", cost)
    cost, told = command([sys.executable, "-m", "probes", "explain", str(place), "--json"])
    assert '"fw.rank_missing_collective"' in told, told[:2000]
    yield Row(what, "Golden15", cost, "10 s, 150 MB" if world == 1024 else "", peer)


def merged(folder: Path, quick: bool) -> Iterator[Row]:
    """Dumps that the nodes have reduced, merged into who waits for whom."""
    world = 512 if quick else 8192
    readings = [_reading(node, world) for node in range(world // 8)]
    cost, stalls = call(lambda: Evidence(readings).stalls)
    assert len(stalls.culprits) == 1, stalls.culprits
    yield Row(f"{world:,} reduced dumps merged", "Golden15", Cost(cost, 0, 0), "1 s" if world == 8192 else "")


def _reading(node: int, world: int) -> Seen:
    name = f"gpu-{node:04}"
    dumps = tuple(_reduced(rank, world, name) for rank in range(8 * node, 8 * node + 8))
    return Seen(
        f"{name}/rank.flight_recorder", name, "rank.flight_recorder", "ok", "", FlightRecorder(name, dumps, (), 0), ()
    )


def _reduced(rank: int, world: int, node: str) -> Dump:
    told: dict[str, Any] = reader.reduce(pickle.dumps(dump(rank, world, 60), 2))
    stamp = {"rank": rank, "pid": 1000 + rank, "host": node, "world_size": world, "run_id": "run", "slurm_job": None}
    stamp |= {"master": None, "how": "worker server", "path": "", "mtime": None, "at": 1_795_961_600.0, "bytes": 1}
    return dump_of(told, stamp)
