"""What names and contents of files tell of whose they are, each by itself: who.py puts it together.

Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from probes.catalog.stacks.facts import ProcessStack
from probes.intake.brought import StackFile
from probes.intake.hosts import node_of_name
from probes.intake.logs import LogFile
from probes.intake.names import Named, named

MOST_THREADS = 4096  # of a dump's entries that are looked at


def told_of(folders: Mapping[PurePosixPath, str], hosts: set[str]) -> dict[PurePosixPath, str]:
    """Whose a folder is in which a file tells the node's name. What lies beside the folders of several nodes, or where
    files name other nodes, is not settled by it: the name may be that of whoever collected them."""
    told = set(folders.values())
    short = {name.partition(".")[0] for name in told}
    if len(short) == 1 and {host.partition(".")[0] for host in hosts} <= short:
        return {PurePosixPath("."): min(told, key=len), PurePosixPath("/"): min(told, key=len)}
    return {folder: host for folder, host in folders.items() if folder.name}


def of_many(files: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    """Folders whose files name two nodes or more: whatever such a folder is called, it is none of one node."""
    named_in: dict[PurePosixPath, set[str]] = {}
    for inside in files:
        if name := node_of_name(PurePosixPath(inside.name), ()):
            named_in.setdefault(inside.parent, set()).add(name)
    return {folder for folder, names in named_in.items() if len(names - {folder.name}) > 1}


def of_one(file: StackFile) -> bool:
    """Whether it shows one process, perhaps at several looks."""
    return len(file.processes) == 1 or (len({one.pid for one in file.processes}) == 1 and bool(file.processes[0].pid))


def looks_like_a_worker(process: ProcessStack) -> bool:
    """A data-loader worker has the worker's loop of torch below everything it does."""
    main = process.main
    return main is not None and any(
        frame.function.rpartition(".")[2] == "_worker_loop" and "torch/utils/data" in frame.file
        for frame in main.frames
    )


def in_blocks(known: dict[int, str], world: int) -> dict[int, str]:
    """The nodes of ranks of which no file tells: where all that is known lies in blocks of equal size, one per node,
    as torchrun and Slurm place ranks, the others do too. {rank: node}"""
    nodes = set(known.values())
    if not nodes or not world or world % len(nodes) or world > 131_072:
        return {}
    size = world // len(nodes)
    block: dict[int, str] = {}
    for rank, node in known.items():
        if block.setdefault(rank // size, node) != node:
            return {}
    if len(set(block.values())) != len(block) or len(known) * 2 < world:
        return {}
    return {rank: block[rank // size] for rank in range(world) if rank not in known and rank // size in block}


def counted_nodes(logs: Iterable[LogFile], nodes: Iterable[PurePosixPath]) -> set[PurePosixPath]:
    """Folders of nodes called worker-3 or the like, whose numbers count nodes: the lines of one of them are marked with
    other ranks only."""
    families: dict[tuple[PurePosixPath, str], dict[PurePosixPath, int]] = {}
    for folder in nodes:
        if (number := named(PurePosixPath(folder.name)).rank) is not None:
            families.setdefault((folder.parent, re.sub(r"\d+", "#", folder.name)), {})[folder] = number
    marked: dict[PurePosixPath, set[int]] = {}
    for log in logs:
        ranks = {event.rank for event in log.log.events if event.rank is not None} if log.marked else set()
        for folder in log.inside.parents if ranks else ():
            marked.setdefault(folder, set()).update(ranks)
    return {
        folder
        for family in families.values()
        if any(one in marked and number not in marked[one] for one, number in family.items())
        for folder in family
    }


def world_of(reduced: dict[str, Any]) -> int | None:
    """The number of ranks of the default group, where a dump lists them."""
    for group in reduced.get("groups", ()):
        if group["desc"] == "default_pg" and group["ranks"]:
            spans: list[list[int]] = group["ranks"]
            return sum((last - first) // step + 1 for first, last, step in spans)
    return None


def threads_of(reduced: dict[str, Any]) -> set[int]:
    """pthread ids of the threads that enqueued what a dump tells in full (a row's last column but one)."""
    rows = [row for group in reduced.get("groups", ()) for row in (*group["pending"], *group["last"])]
    return {row[-2] for row in rows[:MOST_THREADS] if row[-2]}


def earlier_attempts(names: dict[PurePosixPath, Named]) -> set[PurePosixPath]:
    """Files of attempts before the last one of a run folder of torchrun: they are of a job that was started again."""
    last: dict[PurePosixPath, int] = {}
    at: dict[PurePosixPath, tuple[PurePosixPath, int]] = {}
    for inside, name in names.items():
        folder = next((one for one in inside.parents if one.name.startswith("attempt_")), None)
        if folder is not None and name.attempt is not None:
            at[inside] = (folder.parent, name.attempt)
            last[folder.parent] = max(last.get(folder.parent, 0), name.attempt)
    return {inside for inside, (run, attempt) in at.items() if attempt < last[run]}
