"""Logs of a job as NCCL and torch write them: eight ranks on four nodes, healthy until told otherwise.

All names, pids and addresses are our own; the shapes are those of NCCL 2.27 and torch 2.7.
"""

from __future__ import annotations

from collections.abc import Callable

from probes.catalog.logs.events import RankLogs
from probes.catalog.rank_log import findings, of_file
from probes.diagnosis import Diagnosis, Seen, diagnose

NODES = ("gpu-a", "gpu-b", "gpu-c", "gpu-d")
RANKS = range(8)
More = Callable[[int], str]


def node(rank: int) -> str:
    return NODES[rank // 2]


def at(rank: int) -> str:
    """The bootstrap address of a rank's node."""
    return f"10.0.0.{rank // 2 + 1}"


def info(rank: int, says: str) -> str:
    return f"{node(rank)}:{4000 + rank}:{5000 + rank} [{rank % 2}] NCCL INFO {says}\n"


def warn(rank: int, says: str, clock: str = "", file: str = "transport/net_ib.cc:1295") -> str:
    stamp = f"[2026-11-29 {clock}] " if clock else ""
    return f"\n{stamp}{node(rank)}:{4000 + rank}:{5000 + rank} [{rank % 2}] {file} NCCL WARN {says}\n"


def c10(rank: int, says: str, clock: str = "14:13:49.100000000") -> str:
    return f"[rank{rank}]:[E1129 {clock} ProcessGroupNCCL.cpp:632] {says}\n"


def set_up(rank: int, *, interface: str = "eth0", network: str = "IB", direct: str = "/GDRDMA", channels: int = 16,
           peer: str = "P2P/CUMEM", bus: str = "", version: str = "2.27.7+cuda12.8", done: bool = True,
           where: str = "") -> str:  # fmt: skip
    """What a rank writes while it sets up its communicator."""
    comm = f"comm 0x55d0{rank} rank {rank} nranks 8 cudaDev {rank % 2} nvmlDev {rank % 2} "
    comm += f"busId {bus or f'{1 + rank % 2}b000'} commId 0xabc1"
    text = f"NCCL version {version}\n"
    text += info(rank, f"Bootstrap: Using {interface}:{where or at(rank)}<0>")
    if network == "IB":
        text += info(rank, f"NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB {interface}:{where or at(rank)}<0>")
    text += info(rank, f"Using network {network}")
    text += info(rank, f"ncclCommInitRankConfig {comm} - Init START")
    text += info(rank, f"comm 0x55d0{rank} rank {rank} nRanks 8 nNodes 4 localRanks 2 localRank {rank % 2} MNNVL 0")
    text += info(rank, f"Ring 00 : {(rank - 1) % 8} -> {rank} -> {(rank + 1) % 8}")
    text += info(rank, f"{channels} coll channels, 0 collnet channels, 0 nvls channels, 16 p2p channels")
    text += info(rank, f"Channel 00/0 : {rank}[{rank % 2}] -> {rank ^ 1}[{1 - rank % 2}] via {peer}")
    link = f"NET/IB/0{direct}" if network == "IB" else "NET/Socket/0"
    text += info(rank, f"Channel 00/0 : {rank}[{rank % 2}] -> {(rank + 2) % 8}[0] [send] via {link}")
    return text + (info(rank, f"ncclCommInitRankConfig {comm} - Init COMPLETE") if done else "")


def work(seq: int = 42, op: str = "ALLREDUCE", size: int = 1024, limit_ms: int = 600_000) -> str:
    return (
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size}, Timeout(ms)={limit_ms}) "
        f"ran for {limit_ms + 29} milliseconds before timing out."
    )


def timed_out(rank: int, clock: str = "14:13:49.100000000", group: str = "0", **what: int | str) -> str:
    said = work(**what)  # type: ignore[arg-type]
    name = "(default_pg)" if group == "0" else ""
    who = f"[PG ID {group} PG GUID {group}{name} Rank {rank}]"
    return c10(rank, f"{who} Watchdog caught collective operation timeout: {said}", clock)


def logs(wrote: More, folders: bool = False, ranks: range = RANKS) -> list[Seen]:
    """One file per rank. `folders`: they lie in folders that are named after nodes."""
    found = []
    for rank in ranks:
        log = of_file(f"rank{rank}.log", wrote(rank), rank)
        facts = RankLogs((log,))
        place = node(rank) if folders else ""
        found.append(Seen(f"{place}/rank{rank}.log", place, "rank.log", "ok", "", facts, tuple(findings(facts))))
    return found


def judged(wrote: More, *more: Seen, folders: bool = False, ranks: range = RANKS) -> Diagnosis:
    found = diagnose([*logs(wrote, folders, ranks), *more])
    assert not found.failed, found.failed
    return found
