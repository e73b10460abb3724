"""Flight-recorder dumps of a job of any size, in the schema of torch 2.13 (2.10): one rank left out an all-reduce.

Each rank is in three groups: all ranks, its tensor-parallel one (8 neighbours), its data-parallel one (every eighth).
A step is two all-gathers and two reduce-scatters of the second, an all-reduce of the third and one of the first.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

SIDE = 8
T0_NS = 1_795_961_507_000_000_000
APART_NS = 1_500_000
LIBRARY = "/usr/local/lib/python3.12/dist-packages/torch/"
# kind -> (group, operation, sizes in and out, dtype)
KINDS: dict[str, tuple[str, str, list[int], list[int], str]] = {
    "gather": ("tensor", "nccl:_all_gather_base", [4096, 1024], [4096 * SIDE, 1024], "BFloat16"),
    "scatter": ("tensor", "nccl:_reduce_scatter_base", [4096 * SIDE, 1024], [4096, 1024], "BFloat16"),
    "gradients": ("data", "nccl:all_reduce", [8_388_608], [8_388_608], "Float"),
    "loss": ("world", "nccl:all_reduce", [1], [1], "Float"),
}
STEP = ("gather", "scatter", "gather", "scatter", "gradients", "loss")
FIRST = {"tensor": 90_000, "data": 30_000, "world": 5_000}


def victim(world: int) -> int:
    return world // 2 + 3


def groups(rank: int, world: int) -> dict[str, tuple[str, str, int, list[int]]]:
    """(name, description, id, ranks) of the groups of a rank."""
    first = rank // SIDE * SIDE
    return {
        "world": ("0", "default_pg", 0, list(range(world))),
        "tensor": (str(1 + rank // SIDE), "tensor_parallel_group", 1, list(range(first, first + SIDE))),
        "data": (str(1000 + rank % SIDE), "data_parallel_group", 2, list(range(rank % SIDE, world, SIDE))),
    }


def _frames(operation: str) -> list[dict[str, Any]]:
    inner = [{"name": operation, "filename": f"{LIBRARY}distributed/distributed_c10d.py", "line": 2900}]
    inner += [{"name": "forward", "filename": f"{LIBRARY}nn/modules/module.py", "line": 1773 + n} for n in range(9)]
    return [*inner, {"name": "train_step", "filename": "/srv/train/trainer.py", "line": 412}]


FRAMES = {kind: _frames(kind) for kind in STEP}


def dump(rank: int, world: int, entries: int) -> dict[str, Any]:
    """What the recorder of one rank holds when all others wait for the victim, or for those who do."""
    mine, odd = groups(rank, world), victim(world)
    seq, found = dict(FIRST), []
    last = max(place for place in range(entries) if STEP[place % len(STEP)] == "gradients")
    for place in range(last + 1 if rank % SIDE == odd % SIDE else min(entries, last + 2)):
        if rank == odd and place == last:
            break
        kind = STEP[place % len(STEP)]
        group = KINDS[kind][0]
        seq[group] += 1
        found.append(_entry(125_000 + place, kind, mine[group], seq[group], T0_NS + place * APART_NS, place < last))
    config = {name: {"name": name, "desc": words, "ranks": str(ranks)} for name, words, _, ranks in mine.values()}
    return {"version": "2.10", "pg_config": config, "comm_lib_version": "2.27.7", "pg_status": {}, "entries": found}


def _entry(
    record: int, kind: str, group: tuple[str, str, int, list[int]], seq: int, at: int, done: bool
) -> dict[str, Any]:
    _, operation, size, size_out, dtype = KINDS[kind]
    told = {
        "frames": FRAMES[kind], "record_id": record, "pg_id": group[2], "process_group": group[:2],
        "thread_name": "python3", "thread_id": "139682700839808", "collective_seq_id": seq, "p2p_seq_id": 0,
        "op_id": seq, "profiling_name": operation, "time_created_ns": at, "input_sizes": [list(size)],
        "input_dtypes": [dtype], "output_sizes": [list(size_out)], "output_dtypes": [dtype],
        "state": "completed" if done else "scheduled", "time_discovered_started_ns": at + 200_000 if done else None,
        "time_discovered_completed_ns": at + 1_200_000 if done else None, "retired": done, "timeout_ms": 600_000,
        "is_p2p": False,
    }  # fmt: skip
    return {**told, "duration_ms": 1.0} if done else told


def write(folder: Path, world: int, entries: int) -> None:
    """One pickle per rank, as torch writes them: rank_0 ..."""
    folder.mkdir()
    for rank in range(world):
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(dump(rank, world, entries), 2))
