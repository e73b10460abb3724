"""port-down-64: the cable of one adapter's port on gpu-017 has gone; 512 ranks wait in one all-gather."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.core import Capture
from tests.lab.drills import fabric, recorders
from tests.lab.drills.cluster import Job, Node, Rank, t0_of
from tests.lab.drills.fabric import DISABLED, POLLING, Odd
from tests.lab.drills.logs import nccl, steps
from tests.lab.drills.scene import VERIFY, Look

NAME = "port-down-64"
VICTIM, HCA = 17, 3
WENT_DOWN = -274.0  # seconds before T0
GAVE_UP = -151.0  # NCCL's retries are over: NCCL_IB_TIMEOUT=22, seven times
RESTARTED, LOOKS = 404.0, (531.0, 552.0)  # seconds after T0
STEP_S = 4.62
# NCCL's own variables: what it waits for on a dead link, and that torch does not end the ranks for it.
ENV = {
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_IB_RETRY_CNT": "7",
    "NCCL_RAS_ENABLE": "0",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
}
SECOND_PORT, WENT_ONCE, CORRECTED, SLOW_SMI = 9, 41, 22, 58  # nodes with an oddity


def nodes() -> tuple[Node, ...]:
    t0 = t0_of(NAME)
    return tuple(Node(NAME, f"gpu-{number:03}", number, t0) for number in range(1, 65))


def job_of(all_nodes: tuple[Node, ...]) -> Job:
    t0 = all_nodes[0].t0
    return Job("llm-70b-run7", "48213", all_nodes, t0 - 53_000, 41_236, t0 + WENT_DOWN - 0.4 * STEP_S, STEP_S)


def recording(fault: bool = True) -> Iterator[Capture]:
    """The first look at all nodes. Without the fault the job advances; what is odd elsewhere stays."""
    return look_at(nodes(), fault)


def look_at(everything: tuple[Node, ...], fault: bool = True) -> Iterator[Capture]:
    """The same of any number of nodes, numbered from 1."""
    job = job_of(everything)
    for node in everything:
        yield from _look(job, node, fault).captures()


def _look(job: Job, node: Node, fault: bool) -> Look:
    stalled = recorders.standing(job, node.t0 + WENT_DOWN, 96)
    until = node.t0 + (WENT_DOWN if fault else 0)
    look = Look(
        job,
        node,
        node.t0,
        (lambda at: stalled) if fault else (lambda at: recorders.moving(job, at)),
        env=ENV,
        lines={rank.rank: steps(job, node, rank, until) for rank in job.ranks(node)},
    )
    _oddities(look)
    if fault:
        _fault(look)
    return look


def _oddities(look: Look) -> None:
    number, t0 = look.node.number, look.node.t0
    if number == SECOND_PORT:
        look.ports = {"mlx5_4/2": Odd(DISABLED)}
    elif number == WENT_ONCE:
        look.ports = {"mlx5_6/1": Odd(counters={"link_downed": 3, "link_error_recovery": 2})}
    elif number == CORRECTED:
        look.gpu = {3: {"ecc_corrected": 1187, "remapped": [1, 0, 0, 0]}}
        memory = "CE memory read error on CPU_SrcID#0_MC#2_Chan#1_DIMM#0 (channel:1 slot:0 page:0x5b21c3f "
        look.kernel = ((t0 - 5163.2, f"EDAC MC2: 1 {memory}offset:0x640 grain:32 syndrome:0x0)"),)
    elif number == SLOW_SMI:
        at = t0 + 0.61
        why = "no answer within 8 s; its process was stopped"
        look.failed = {
            "gpu.state": Capture(
                look.node.name,
                "gpu.state",
                "timeout",
                why=why,
                at=look.node.clock(at),
                mono=look.node.mono(at),
                took_s=8.02,
                boot_id=look.node.boot_id,
            )
        }


def _fault(look: Look) -> None:
    """The port and the kernel on the node itself; NCCL's errors there and on its two neighbours of the same rail."""
    node, t0 = look.node, look.node.t0
    if node.number == VICTIM:
        look.ports = {f"mlx5_{HCA}/1": Odd(POLLING, {"link_downed": 1, "port_xmit_discards": 214})}
        down = f"mlx5_core {node.hcas[HCA]} mlx5_{HCA}: Port: 1 Link DOWN"
        look.kernel = ((t0 + WENT_DOWN, down),)
    if abs(node.number - VICTIM) <= 1:
        rank = look.job.ranks(node)[HCA]
        look.lines = {**look.lines, rank.rank: [*look.lines[rank.rank], *_nccl(look, rank)]}


def _nccl(look: Look, rank: Rank) -> Iterator[tuple[float, str]]:
    node, t0 = look.node, look.node.t0
    if node.number == VICTIM:
        at = t0 + WENT_DOWN + 0.3
        event = f"misc/ibvwrap.cc:94 NCCL WARN NET/IB : mlx5_{HCA}:1 Got async event : port error"
        yield at, nccl(node, rank, at, event)
    peer = VICTIM if node.number != VICTIM else VICTIM + 1
    other = next(one for one in look.job.nodes if one.number == peer)
    way = "Send" if node.number < VICTIM else "Recv"
    local, remote = (f"fe80::{fabric.guid(one, HCA)}" for one in (node, other))
    at = t0 + GAVE_UP + 0.4 * (node.number - VICTIM)
    socket = f"{other.address}<{40_000 + rank.pid % 20_000}>"
    broken = (
        f"transport/net_ib.cc:2148 NCCL WARN NET/IB: Got completion from peer {socket}"
        f" with status=12 opcode=0 len=0 vendor err 129 ({way}) localGid {local} remoteGids{remote} hca mlx5_{HCA}"
    )
    yield at, nccl(node, rank, at, broken)
    yield at + 0.002, nccl(node, rank, at + 0.002, "NCCL INFO transport/net.cc:1304 -> 6")


def stages() -> dict[str, list[list[Capture]]]:
    """`without`: the job was started again from its checkpoint on the other 63 nodes, looked at twice."""
    everything = nodes()
    t0 = everything[0].t0
    rest = tuple(node for node in everything if node.number != VICTIM)
    job = replace(
        job_of(rest), slurm="48231", began=t0 + RESTARTED, step=41_201, step_at=t0 + RESTARTED + 88, step_s=4.69
    )
    looks = []
    for number, after in enumerate(LOOKS):
        probes = VERIFY if number == 0 else ("rank.flight_recorder", "rank.log")
        looks.append([one for node in everything for one in _again(job, node, t0 + after).captures(probes)])
    return {"without": looks}


def _again(job: Job, node: Node, at: float) -> Look:
    lines = {rank.rank: steps(job, node, rank, at) for rank in job.ranks(node)}
    return Look(job, node, at, lambda moment: recorders.moving(job, moment), lines=lines, env=ENV)
