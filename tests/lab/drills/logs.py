"""What ranks write, as rank.log reduces it on the node (tests/fixtures/rank.log).

Source   NCCL 2.26: net_ib.cc prints a broken work completion with status, length, vendor error, GIDs and adapter;
         init.cc prints what a call returned. torch: ProcessGroupNCCL.cpp, WorkerServer.cpp, Python's traceback
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from tests.lab.drills.cluster import Job, Node, Rank, sections


def stamp(at: float) -> str:
    when = datetime.fromtimestamp(at, UTC)
    return f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03}"


def nccl(node: Node, rank: Rank, at: float, message: str) -> str:
    """A line of NCCL's, as it prints with NCCL_DEBUG=WARN."""
    when = datetime.fromtimestamp(at, UTC)
    return f"[{when:%Y-%m-%d %H:%M:%S}] {node.name}:{rank.pid}:{rank.pid + 61} [{rank.local}] {message}"


def steps(job: Job, node: Node, rank: Rank, until: float, count: int = 2) -> list[tuple[float, str]]:
    """The last lines that tell a step. Training writes one when the step has ended."""
    last = job.step_now(until) - 1
    found = []
    for step in range(last - count + 1, last + 1):
        ended = job.step_at + (step + 1 - job.step) * job.step_s
        loss = 1.87 + random.Random(f"{job.name} {step}").gauss(0, 0.004)  # the mean of all ranks, so the same on each
        ended += node.rng(f"line {rank.rank}/{step}").uniform(0, 0.004)
        text = (
            f"{stamp(node.clock(ended))} [rank{rank.rank}] INFO step {step} | loss {loss:.4f} | {job.step_s:.2f} s/step"
        )
        found.append((ended, text))
    return found


def logs(
    job: Job, node: Node, at: float, lines: Mapping[int, Sequence[tuple[float, str]]], gone: Sequence[int] = ()
) -> str:
    """`lines`: by rank, (when, line); a line may hold several. `gone`: ranks whose process has ended."""
    ranks = job.ranks(node)
    index = {"now": node.clock(at), "utc_offset_s": 0, "streams": [], "left_off": 0, "host": node.name, "given": [],
        "ranks": [[rank.rank, rank.local, rank.pid, job.name] for rank in ranks if rank.rank not in gone]}  # fmt: skip
    parts = {"golden15/rank-logs": json.dumps(index)}
    for number, rank in enumerate(ranks):
        rng = node.rng(f"log {job.slurm} {rank.rank}")
        offset, body = rng.randrange(2 * 10**6, 3 * 10**6), []
        written = sorted(lines.get(rank.rank, ()))
        for _, text in written:
            for row in text.split("\n"):
                body.append(f"{offset} {row}")
                offset += len(row) + 1
        how = "of the launcher pt_elastic" if rank.rank in gone else "stderr"
        place = {"file": f"/workspace/runs/{job.name}/{job.slurm}/attempt_0/{rank.rank}/stderr.log", "how": how,
            "rank": rank.rank, "pid": rank.pid, "writers": [rank.rank], "deleted": False, "job": job.name}  # fmt: skip
        facts = {"outcome": "ok", "size": offset, "mtime": node.clock(written[-1][0]) if written else job.began,
            "inode": f"61:{rng.randrange(10**6, 10**7)}", "read": 65536 + min(offset, 3_145_728) // 2,
            "skipped": rng.randrange(9_000, 20_000)}  # fmt: skip
        parts[f"log {number}"] = "\n".join([json.dumps(place), json.dumps(facts), *body])
    return sections(parts)
