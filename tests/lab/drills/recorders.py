"""Flight recorders as rank.flight_recorder reduces them on the node (tests/fixtures/rank.flight_recorder).

The job shards its model over all ranks: per step an all-gather for each of 80 layers, then an all-gather and a
reduce-scatter for each, then two small all-reduces. Its ring buffer holds 8 entries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.lab.drills.cluster import Job, Node, Rank, sections
from tests.lab.drills.ranks import PROGRAM

LAYERS, PER_STEP, HELD = 80, 242, 8
GATHER, SCATTER, SMALL = 0, 1, 2
FRAMES = [["train_step", PROGRAM, 212], ["main", PROGRAM, 341], ["<module>", PROGRAM, 402]]
AHEAD = 2  # collectives that a rank has handed over beyond the one that runs
SHARD = 855_638_016


@dataclass(frozen=True)
class Place:
    """Where a rank stands: `running` has not ended, since `since`; the rank has enqueued up to `enqueued`."""

    running: int
    since: float
    enqueued: int
    step_s: float


def kind(seq: int) -> int:
    place = (seq - 1) % PER_STEP
    if place < LAYERS:
        return GATHER
    if place < 3 * LAYERS:
        return (GATHER, SCATTER)[place % 2]
    return SMALL


def first_of(step: int) -> int:
    """The first collective of a step."""
    return (step - 1) * PER_STEP + 1


def moving(job: Job, at: float) -> Place:
    """Of a job that advances, at this moment."""
    each = job.step_s / PER_STEP
    done = int((at - job.step_at) / each)
    running = first_of(job.step) + done
    return Place(running, job.step_at + done * each, running + AHEAD, job.step_s)


def standing(job: Job, since: float, within: int) -> Place:
    """All wait in collective `within` of the step that ran at `since`."""
    running = first_of(job.step_now(since)) + within
    return Place(running, since, running + AHEAD, job.step_s)


def signatures(job: Job) -> list[list[Any]]:
    whole, part = SHARD - SHARD % job.world_size, SHARD // job.world_size
    bf = ["BFloat16"]
    rows = [
        ["nccl:_all_gather_base", [[part]], bf, [[whole]], bf, 1],
        ["nccl:_reduce_scatter_base", [[whole]], bf, [[part]], bf, 1],
        ["nccl:all_reduce", [[1]], ["Float"], [[1]], ["Float"], 1],
    ]
    return [[*row, hashlib.sha256(json.dumps(row).encode()).hexdigest()[:12]] for row in rows]


def recorders(
    job: Job, node: Node, at: float, place: Place, missing: Mapping[int, str] | None = None, gone: Sequence[int] = ()
) -> str:
    """`place`: where all ranks stand. `missing`: ranks that gave no dump, and why. `gone`: ranks without a process."""
    missing = missing or {}
    ranks = [rank for rank in job.ranks(node) if rank.rank not in gone]
    parts = {"golden15/recorders": json.dumps({"host": node.name, "ranks": len(ranks), "left_out": 0})}
    whose = {"run_id": job.name, "slurm_job": job.slurm, "master": job.master}
    for rank in ranks:
        if rank.rank in missing:
            told = {"rank": rank.rank, "pid": rank.pid, "why": missing[rank.rank], "pipe": "", "refused": False}
            parts[f"golden15/missing {rank.pid}"] = json.dumps({**told, **whose})
            continue
        moment = node.clock(at + 0.0013 * rank.local)
        reduced = _reduced(job, node, rank, place, moment)
        told = {
            "rank": rank.rank,
            "pid": rank.pid,
            "world_size": job.world_size,
            "host": node.name,
            **whose,
            "how": "worker server",
            "path": f"/run/user/2107/{job.name}/worker_{rank.rank}.sock",
            "mtime": None,
            "at": moment,
            "bytes": node.rng(f"bytes {rank.rank}").randrange(19_000, 21_000),
            "reduced": reduced,
            "torch": "2.7.1+cu126",
        }
        parts[f"golden15/dump {rank.pid}"] = json.dumps(told)
    return sections(parts)


def _reduced(job: Job, node: Node, rank: Rank, place: Place, at: float) -> dict[str, Any]:
    last = range(max(1, place.enqueued - HELD + 1), place.enqueued + 1)
    rows = [_entry(node, rank, place, seq, at) for seq in last]
    completed, started = place.running - 1, min(place.running, place.enqueued)
    pending = [row for row in rows if row[6]]
    group = {
        "name": "0",
        "desc": "default_pg",
        "pg_id": 0,
        "backend": "nccl",
        "enqueued": place.enqueued,
        "started": started,
        "completed": min(completed, place.enqueued),
        "first": last[0],
        "held": len(rows),
        "p2p": 0,
        "pending_count": len(pending),
        "timed_out": 0,
        "pending": pending,
        "last": rows,
        "history": [last[0], [kind(seq) for seq in last]],
        "ranks": [[0, job.world_size - 1, 1]],
        "told": [place.enqueued, started, min(completed, place.enqueued)],
    }
    return {
        "schema": "2.10",
        "comm_lib_version": "2.26.2",
        "entries": len(rows),
        "first_record": last[0] - 1,
        "groups": [group],
        "signatures": signatures(job),
        "frames": FRAMES,
        "problems": [],
        "form": "json",
    }


def _entry(node: Node, rank: Rank, place: Place, seq: int, at: float) -> list[Any]:
    """One row, in the order of probes.catalog.recorder.facts.COLUMNS."""
    rng = node.rng(f"entry {rank.rank}/{seq}")
    each = place.step_s / PER_STEP
    begun = (
        place.since + each * (seq - place.running)
        if seq <= place.running
        else place.since + 0.0004 * (seq - place.running)
    )
    created = round(node.clock(begun) + rng.uniform(0, 0.0006), 6)
    created = min(created, round(at - 0.0002, 6))
    thread = node.rng(f"thread {rank.rank}").randrange(139 * 10**12, 140 * 10**12)
    pending = seq >= place.running
    state = "completed" if not pending else "started" if seq == place.running else "scheduled"
    started = round(created + 0.0003, 6) if state != "scheduled" else None
    took = round(each * rng.uniform(0.6, 0.8), 6)
    ended = round(created + 0.0003 + took, 6) if not pending else None
    return [
        seq,
        0,
        seq,
        seq - 1,
        kind(seq),
        state,
        pending,
        False,
        False,
        created,
        started,
        ended,
        round(took * 1000, 3) if ended else None,
        1_800_000,
        thread,
        [0, 1, 2],
    ]
