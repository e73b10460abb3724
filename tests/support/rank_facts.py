"""Ranks of a job as the rank probes tell them, made by hand for tests of the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from probes.catalog._flight_recorder_facts import Dump, FlightRecorder, dump_of
from probes.catalog._log_events import LogEvent, RankLog, RankLogs
from probes.catalog._process_facts import Process, RankProcesses
from probes.catalog._rank_facts import Rank, RankMap
from probes.diagnosis import Seen

Calls = Sequence[tuple[str, int]]  # operation and size; the last one has not ended


def dump(number: int, groups: Mapping[str, tuple[Sequence[int], Calls, bool]], age: float = 60.0) -> Dump:
    """A dump as the reducer writes it. Per group: members, calls, and whether the last call waits."""
    signatures: list[list[Any]] = []
    told = []
    for name, (members, calls, waits) in groups.items():
        rows, marks = [], []
        for seq, (op, size) in enumerate(calls, 1):
            signatures.append([f"nccl:{op}", [[size]], ["Float"], [[size]], ["Float"], 1, f"{op}{size}"])
            pending = waits and seq == len(calls)
            state = "started" if pending else "completed"
            moments = [1000.0 - age if pending else 900.0, None, None, None, None]
            at = len(signatures) - 1
            rows.append([seq, 0, seq, seq, at, state, pending, False, False, *moments, 7, []])
            marks.append(at)
        last = len(calls)
        told.append(
            {
                "name": name, "desc": name, "pg_id": 0, "backend": "nccl", "ranks": [[m, m, 1] for m in members],
                "enqueued": last, "started": last, "completed": last - waits, "told": None, "first": 1, "held": last,
                "p2p": 0, "pending_count": int(waits), "timed_out": 0, "history": [1, marks],
                "pending": rows[-1:] if waits else [], "last": rows,
            }
        )  # fmt: skip
    reduced = {"form": "pickle", "schema": "2.10", "comm_lib_version": "", "entries": 1, "groups": told,
        "signatures": signatures, "frames": [], "problems": []}  # fmt: skip
    stamp = {"rank": number, "pid": None, "host": "", "world_size": None, "run_id": None, "slurm_job": None,
        "master": None, "how": "worker server", "path": "", "mtime": None, "at": 1000.0, "bytes": 1}  # fmt: skip
    return dump_of(reduced, stamp)


def processes(number: int, state: str) -> Seen:
    facts = RankProcesses(1.0, (Process(9, number, 3, None, None, "python", state, state),), (), (), 0, 0)
    return Seen("gpu-001/rank.process", "gpu-001", "rank.process", "ok", "", facts, ())


def recorders(*dumps: Dump, node: str = "n") -> Seen:
    """What rank.flight_recorder saw on a node."""
    facts = FlightRecorder(node, dumps, (), 0)
    return Seen(f"{node}/rank.flight_recorder", node, "rank.flight_recorder", "ok", "", facts, ())


def silent(node: str, probe: str, outcome: Any = "unreachable") -> Seen:
    """A node that gave no facts."""
    return Seen(f"{node}/{probe}", node, probe, outcome, "no route to host", None, ())


def mapped(node: str, ranks: Sequence[int], world_size: int, run_id: str | None = None, pid: int = 100) -> Seen:
    """What rank.map saw on a node: these ranks, each in a process of its own."""
    rows = tuple(
        Rank(
            rank=number, world_size=world_size, local_rank=None, local_world_size=None, node_rank=None, run_id=run_id,
            slurm_job=None, master=None, source="env", pid=pid + number, ppid=1, comm="python", state="S",
            started=1, start_time=100.0, uid=0, ns_pids=(), wrappers=(), visible={}, restarts=None, workers=(),
        )
        for number in ranks
    )  # fmt: skip
    return Seen(f"{node}/rank.map", node, "rank.map", "ok", "", RankMap(rows, (), (), 0, 9, 0, 0), ())


def wrote(node: str, *events: LogEvent) -> Seen:
    """What rank.log read on a node, all in one file of a launcher."""
    log = RankLog(None, None, "torchrun.log", events=events)
    return Seen(f"{node}/rank.log", node, "rank.log", "ok", "", RankLogs((log,)), ())
