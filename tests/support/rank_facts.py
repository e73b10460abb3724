"""Ranks of a job as the rank probes tell them, made by hand for tests of the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from probes.catalog.gpu.facts import Gpu, GpuState
from probes.catalog.logs.events import LogEvent, RankLog, RankLogs
from probes.catalog.ranks.process_facts import Process, RankProcesses
from probes.catalog.ranks.rank_facts import Rank, RankMap
from probes.catalog.recorder.facts import Dump, Entry, FlightRecorder, dump_of
from probes.catalog.stacks.facts import Frame, Look, ProcessStack, Stacks, Thread
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


def with_entries(one: Dump, group: str, **words: Any) -> Dump:
    """The same dump with these fields in what waits in a group, or where nothing waits in all that is told of it."""

    def changed(entry: Entry) -> Entry:
        return replace(entry, **words)

    groups = tuple(
        replace(
            two,
            pending=tuple(map(changed, two.pending)),
            last=tuple(changed(entry) if entry.pending or not two.pending else entry for entry in two.last),
        )
        if two.name == group
        else two
        for two in one.groups
    )
    return replace(one, groups=groups)


def p2p(number: int, members: Sequence[int], *calls: str, age: float = 60.0) -> Dump:
    """A dump whose point-to-point calls in group "pp", such as "recv 0<-1" by ranks of the group, have not ended."""
    one = dump(number, {"pp": (members, [(call, 1024) for call in calls or ["send 0->0"]], True)}, age)
    (group,) = one.groups
    entries = tuple(
        replace(entry, seq=0, p2p_seq=at, is_p2p=True, pending=bool(calls), created_at=1000.0 - age)
        for at, entry in enumerate(group.last, 1)
    )
    pending = entries if calls else ()
    told = replace(group, pending=pending, last=entries, p2p=len(entries), enqueued=None, completed=None, history=())
    return replace(one, groups=(replace(told, pending_count=len(pending), history_first=None),))


FRAMES = {
    "collective": [("all_reduce", "torch/distributed/distributed_c10d.py", 2800), ("step", "/job/train.py", 40)],
    "barrier": [("barrier", "torch/distributed/distributed_c10d.py", 4500), ("end", "/job/train.py", 77)],
    "data loader": [("_try_get_data", "torch/utils/data/dataloader.py", 1100), ("step", "/job/train.py", 30)],
    "checkpoint": [("_save", "torch/serialization.py", 900), ("keep", "/job/train.py", 70)],
    "compile": [("compile_fx", "torch/_inductor/compile_fx.py", 500), ("step", "/job/train.py", 35)],
    "preprocessing": [("map", "datasets/arrow_dataset.py", 3000), ("prepare", "/job/data.py", 12)],
    "user code": [("mend", "/job/train.py", 90)],
    "p2p": [("recv", "torch/distributed/distributed_c10d.py", 2100), ("stage", "/job/pipe.py", 20)],
    "device sync": [("synchronize", "torch/cuda/__init__.py", 800), ("log", "/job/train.py", 55)],
}


def frames(kind: str) -> tuple[Frame, ...]:
    return tuple(Frame(*one) for one in FRAMES[kind])


def stack(
    number: int, kind: str, before: Sequence[str] = (), holder: str = "", active: bool = False, workers: Any = ()
) -> ProcessStack:
    """A rank's stack as py-spy tells it: its main thread in this, and in those at earlier looks; `holder` is the thread
    that holds the interpreter's lock at all of them."""
    pid = 100 + number
    main = Thread(pid, None, "MainThread", active, False, "", "", frames(kind))
    other = Thread(pid + 1000, None, holder, True, True, "", "", (Frame("work", "/job/keep.py", 8),))
    looks = tuple(Look(frames(one), active, False, holder, "work (keep.py:8)" if holder else "") for one in before)
    threads = (main, other) if holder else (main,)
    return ProcessStack(pid, number, False, "python", "py-spy", "", "S", "", (), threads, looks)


def stacked(node: str, *stacks: ProcessStack) -> Seen:
    """What rank.stack saw on a node."""
    return Seen(f"{node}/rank.stack", node, "rank.stack", "ok", "", Stacks(stacks, 0, "py-spy"), ())


def gpus(node: str, *some: tuple[int, float], pids: Sequence[int] = ()) -> Seen:
    """What gpu.state saw on a node: utilisation and power of each GPU, and the process on each."""
    rows = tuple(
        Gpu(f"0000:{at + 1:02x}:00.0", at, utilisation_percent=load, power_w=watts, pids=tuple(pids[at : at + 1]))
        for at, (load, watts) in enumerate(some)
    )
    return Seen(f"{node}/gpu.state", node, "gpu.state", "ok", "", GpuState("590.1", rows), ())
