"""rank-stopped: somebody sent SIGSTOP to one rank of 32 and forgot it; the others wait for it in a collective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.core import Capture
from tests.lab.drills import recorders
from tests.lab.drills.cluster import Job, Node, t0_of
from tests.lab.drills.logs import steps
from tests.lab.drills.ranks import STOPPED
from tests.lab.drills.scene import VERIFY, Look

NAME = "rank-stopped"
VICTIM = 19  # of 32: local rank 3 of the third node
STOOD = -188.0  # seconds before T0
CONTINUED, LOOKS = 371.0, (402.0, 423.0)  # seconds after T0
STEP_S = 3.08
BACKUP, CLOCK = 101, 104  # nodes with an oddity
WHY = (
    "it is stopped, so a worker server in it cannot answer; /tmp/nccl_trace_rank_{rank} is not there; "
    "/home/train/.cache/torch/comm_lib_trace_rank_{rank} is not there"
)


def nodes() -> tuple[Node, ...]:
    t0 = t0_of(NAME)
    return tuple(
        Node(NAME, f"gpu-{number}", number, t0, clock_off=0.431 if number == CLOCK else 0.0)
        for number in range(101, 105)
    )


def job_of(all_nodes: tuple[Node, ...]) -> Job:
    t0 = all_nodes[0].t0
    return Job("vit-22b-run3", "51877", all_nodes, t0 - 31_400, 9_618, t0 + STOOD - 0.5 * STEP_S, STEP_S)


def recording(fault: bool = True) -> Iterator[Capture]:
    """The first look at all nodes. Without the fault the job advances; what is odd elsewhere stays."""
    everything = nodes()
    job = job_of(everything)
    stalled = recorders.standing(job, everything[0].t0 + STOOD, 41)
    for node in everything:
        until = node.t0 + (STOOD if fault else 0)
        look = Look(
            job, node, node.t0, (lambda at: stalled) if fault else (lambda at: recorders.moving(job, at)),
            lines={rank.rank: steps(job, node, rank, until) for rank in job.ranks(node)},
            backup=node.number == BACKUP,
        )  # fmt: skip
        if fault:
            look.doing = {VICTIM: STOPPED}
            look.missing = {VICTIM: WHY.format(rank=VICTIM)}
        yield from look.captures()


def stages() -> dict[str, list[list[Capture]]]:
    """`mended`: the rank was continued and the job goes on where it stood, looked at twice."""
    everything = nodes()
    t0 = everything[0].t0
    before = job_of(everything)
    job = replace(before, step=before.step_now(t0 + STOOD), step_at=t0 + CONTINUED - 0.5 * STEP_S)
    looks = []
    for after in LOOKS:
        found: list[Capture] = []
        for node in everything:
            lines = {rank.rank: steps(job, node, rank, t0 + after) for rank in job.ranks(node)}
            look = Look(job, node, t0 + after, lambda at: recorders.moving(job, at), lines=lines)
            found += look.captures((*VERIFY, "rank.stack"))
        looks.append(found)
    return {"mended": looks}
