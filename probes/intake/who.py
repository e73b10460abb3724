"""Whose is each file: ranks, their children and their nodes, from what names and contents say together.

Content counts before names where it is certain: a line marked [rank3], a pid that another file gives to a rank, a
thread that a stack and a flight recorder share. Numbers in names may be local ranks: where files of one node carry
their rank in their content as well, the difference is applied to all of that node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from probes.catalog.ranks.process_extract import Extract
from probes.catalog.stacks.facts import ProcessStack
from probes.intake.brought import Brought, DumpFile, StackFile
from probes.intake.clues import (
    in_blocks,
    looks_like_a_worker,
    of_one,
)
from probes.intake.hosts import lone_node
from probes.intake.names import Named, after_prefix, named, without_rank
from probes.intake.places import Places
from probes.intake.rank_pids import placed


class Who(Places):
    """Built once from everything that was read."""

    def __init__(self, brought: Brought) -> None:
        super().__init__(brought)
        self.names: dict[PurePosixPath, Named] = {inside: named(inside) for inside in brought.insides}
        self.pids: dict[tuple[str, int], int | None] = {}
        self.parents: dict[tuple[str, int], int] = {}
        self.workers: set[tuple[str, int]] = set()
        self.threads: dict[int, int | None] = {}
        self.ras: dict[int, str] = {}
        self._from_content()
        self.shift: dict[str, int] = {}
        self.shift = self._shifts()
        self._from_names()
        self.world = self._world()
        self.node_of_rank = self._rank_nodes()
        self.pids_of: dict[int, list[int]] = {}
        for (_, pid), rank in self.pids.items():
            if rank is not None:
                self.pids_of.setdefault(rank, []).append(pid)

    def node(self, rank: int | None, inside: PurePosixPath) -> str:
        """The node of a rank's file: that of its folder, or where other files place the rank, or that of its name."""
        placed = self.node_of_rank.get(rank, "") if rank is not None else ""
        return self._pods_node(inside) or self.folder_node(inside) or placed or self.name_node(inside)

    def whole_node(self, inside: PurePosixPath) -> str:
        """The node of what is of a node as a whole."""
        near = self._own_folder(inside) or self.name_node(inside) or self.folder_node(inside) or self.beside(inside)
        return near or self.job_node() or lone_node(inside)

    def job_node(self) -> str:
        """The node on which the whole job runs, "" where there are several or that is not known."""
        places = self.node_of_rank
        alone = set(places.values()) if self.world and len(places) == self.world else set()
        return next(iter(alone)) if len(alone) == 1 else ""

    def of_name(self, inside: PurePosixPath, pid: int | None = None) -> int | None:
        """The rank that a name says. A number that is the process's own pid is none."""
        if self._counts_nodes(inside):
            return None
        found, where = self._number(inside, pid), self._counted_in(inside)
        if found is None or where in self.shift:
            return None if found is None else found + self.shift[where]
        launch = next((one for one in inside.parents if one in self.launches), None)
        if launch is None or self._named(inside).rank is not None or self._named(inside).local is None:
            return found
        first = self.launches[launch]
        return None if first is None else found + first

    def _counts_nodes(self, inside: PurePosixPath) -> bool:
        """Whether the number in a name is that of the node's folder, and counts nodes."""
        return not self.counted.isdisjoint(inside.parents) and named(PurePosixPath(inside.name)).rank is None

    def _named(self, inside: PurePosixPath) -> Named:
        return self.names.get(inside) or named(inside)

    def _number(self, inside: PurePosixPath, pid: int | None) -> int | None:
        """The number in a name, be it a rank's or a local one."""
        name = self._named(inside)
        found = name.rank if name.rank is not None else name.local if name.local is not None else name.maybe
        if found is None or found == pid:
            return None
        node = self.folder_node(inside)
        if name.rank is None and name.local is None and node and pid and self.pids.get((node, pid), 0) is None:
            return None  # files of one process with several numbers: looks, not ranks
        return found

    def _counted_in(self, inside: PurePosixPath) -> str:
        """Where numbers in names count alike: on a node, or in a folder whose files are called after local ranks."""
        name = self.names.get(inside)
        alike = f"{inside.parent}/" if name and name.local is not None and inside.parent.name else ""
        return self.folder_node(inside) or alike or self._family(inside)

    def _family(self, inside: PurePosixPath) -> str:
        """Files beside each other whose names differ in the rank only: worker-0.log may be that of rank 1."""
        own = named(PurePosixPath(inside.name)).rank is not None
        return f"{inside.parent}/{without_rank(inside.name)}" if own else ""

    def only_local(self, inside: PurePosixPath) -> bool:
        """Whether the number in a file's name is known to be no rank of the job's."""
        return self._number(inside, None) is not None and self.of_name(inside) is None

    def of_pid(self, inside: PurePosixPath, pid: int | None) -> int | None:
        """The rank whose process this is, by what some file says."""
        return None if not pid else self.pids.get((self.folder_node(inside), pid))

    def above(self, inside: PurePosixPath, pid: int | None) -> int | None:
        """The pid of the rank that a process is a child of, through at most four parents."""
        node = self.folder_node(inside)
        one = self.parents.get((node, pid)) if pid else None
        for _ in range(4):
            if one is None or self.pids.get((node, one)) is not None:
                return one
            one = self.parents.get((node, one))
        return None

    def is_worker(self, inside: PurePosixPath, pid: int | None, looks: bool) -> bool:
        """Whether a process is a child of a rank. `looks`: by its own name or stack it is a data-loader worker."""
        if self.of_pid(inside, pid) is not None:
            return False
        return looks or self.names[inside].child is not None or self.above(inside, pid) is not None

    def of_stack(self, file: StackFile, process: ProcessStack) -> tuple[int | None, bool]:
        """(rank, whether it is a worker of it)."""
        worker = self.is_worker(file.inside, process.pid, looks_like_a_worker(process))
        above = self.above(file.inside, process.pid) if worker else process.pid
        rank = self.of_pid(file.inside, above)
        if rank is None and not worker:
            rank = process.rank  # which its command line tells
        if rank is None and (of_one(file) or self._only_new(file, process)):
            rank = self.of_name(file.inside, process.pid)
        if rank is None and not worker:
            rank = next(
                (r for t in process.threads if t.thread_id and (r := self.threads.get(t.thread_id)) is not None), None
            )
        return rank, worker

    def _only_new(self, file: StackFile, process: ProcessStack) -> bool:
        """Whether it is the one process of a file whose rank no other file tells: later looks at others stand below."""
        others = [one for one in file.processes if one.pid != process.pid]
        return bool(process.pid) and all(self.of_pid(file.inside, one.pid) is not None for one in others)

    def of_extract(self, inside: PurePosixPath, one: Extract, alone: bool) -> tuple[int | None, int | None, bool]:
        """(rank, pid of the rank that it is a child of, whether it is one)."""
        worker = self.is_worker(inside, one.pid, one.is_worker)
        above = self.above(inside, one.pid) if worker else None
        rank = self.of_pid(inside, above if worker else one.pid)
        if rank is None:
            rank = one.rank if one.rank is not None else self.of_name(inside, one.pid) if alone else None
        return rank, above if above is not None else one.ppid if worker else None, worker

    def of_dump(self, dump: DumpFile) -> int | None:
        """By its name; where that says nothing, by a thread that the stack of a rank has too."""
        rank = self.of_name(dump.inside)
        if rank is not None:
            return rank
        shared = {self.threads.get(thread) for thread in dump.threads} - {None}
        if len(shared) == 1:
            return shared.pop()
        last = after_prefix(dump.inside)
        return None if last is None else last + self.shift.get(self.folder_node(dump.inside), 0)

    # What is learned -------------------------------------------------------------------------------------------------

    def _learn(self, inside: PurePosixPath, pid: int | None, rank: int | None) -> None:
        if pid and rank is not None:
            key = (self.folder_node(inside), pid)
            if self.pids.setdefault(key, rank) != rank:
                self.pids[key] = None  # two files disagree: then it says nothing

    def _from_content(self) -> None:
        for log in self.brought.logs:
            for pid, rank in log.pids.items():
                self._learn(log.inside, pid, rank)
        for file in self.brought.processes:
            for one in file.extracts:
                if one.ppid and one.pid:
                    self.parents.setdefault((self.folder_node(file.inside), one.pid), one.ppid)
                if not one.is_worker:
                    self._learn(file.inside, one.pid, one.rank)
        for node in self.brought.nodes:
            if node.probe == "nccl.ras":
                self._from_ras(node.reading.facts)
        for where, pid, rank in placed(self.brought.told_pids, self._shown(), self._near):
            self._learn(where, pid, rank)

    def _shown(self) -> dict[int, dict[str, list[PurePosixPath]]]:
        """pid -> node -> the files that show that process."""
        found: dict[int, dict[str, list[PurePosixPath]]] = {}
        pids = [(one.pid, file.inside) for file in self.brought.stacks for one in file.processes]
        pids += [(one.pid, file.inside) for file in self.brought.processes for one in file.extracts]
        for pid, inside in pids:
            if pid:
                found.setdefault(pid, {}).setdefault(self._near(inside), []).append(inside)
        return found

    def _from_ras(self, facts: Any) -> None:
        """The largest communicator is taken for the job's; pids are only looked up where folders are nodes."""
        comms = sorted(facts.report.communicators, key=lambda one: -len(one.members))
        self.ras = {member.rank: member.host for member in comms[0].members if member.host} if comms else {}
        for member in comms[0].members if comms else ():
            if member.pid:
                for node in {member.host, ""} & ({folder.name for folder in self.nodes} | {""}):
                    self._learn(PurePosixPath(node, "ras"), member.pid, member.rank)

    def _claims(self) -> Iterator[tuple[PurePosixPath, int | None, int | None]]:
        """(file, pid, rank that its content gives) of all that is one rank's."""
        for log in self.brought.logs:
            yield log.inside, None, log.log.rank if log.marked else None
        for file in self.brought.stacks:
            if of_one(file) and not looks_like_a_worker(file.processes[0]):
                yield file.inside, file.processes[0].pid, self.of_pid(file.inside, file.processes[0].pid)
        for some in self.brought.processes:
            if len(some.extracts) == 1 and not some.extracts[0].is_worker:
                yield some.inside, some.extracts[0].pid, self.of_pid(some.inside, some.extracts[0].pid)

    def _shifts(self) -> dict[str, int]:
        """Node or folder -> what must be added to numbers in its files' names, where all that can be compared agree."""
        found: dict[str, list[int]] = {}
        families = set()
        for inside, pid, rank in self._claims():
            where, said = self._counted_in(inside), self._number(inside, pid)
            if where and rank is not None and said is not None and self.names[inside].child is None:
                found.setdefault(where, []).append(rank - said)
                families |= {where} & {self._family(inside)}
        # One file of a family may hold a line of another rank alone; two that are apart alike are no chance.
        return {
            where: shifts[0]
            for where, shifts in found.items()
            if len(set(shifts)) == 1 and (len(shifts) > 1 or where not in families)
        }

    def _from_names(self) -> None:
        for inside, pid, rank in list(self._claims()):
            if rank is None and pid and self.names[inside].child is None:
                above = self.parents.get((self.folder_node(inside), pid))
                if above is None or self.pids.get((self.folder_node(inside), above)) is None:
                    self._learn(inside, pid, self.of_name(inside, pid))
        for file in self.brought.stacks:
            for process in file.processes:
                rank, worker = self.of_stack(file, process)
                for thread in process.threads if rank is not None and not worker else ():
                    if thread.thread_id and self.threads.setdefault(thread.thread_id, rank) != rank:
                        self.threads[thread.thread_id] = None
        for dump in self.brought.dumps:  # and the other way round: a bare dump of faulthandler has no name and no pid
            rank = self.of_name(dump.inside)
            for number in dump.threads if rank is not None else ():
                if self.threads.setdefault(number, rank) not in (rank, None):
                    self.threads[number] = None

    def _rank_nodes(self) -> dict[int, str]:
        said: dict[int, Counter[str]] = {}
        for log in self.brought.logs:
            for rank, host in log.hosts.items():
                said.setdefault(rank, Counter())[host] += 1
        for rank, host in self.ras.items():
            said.setdefault(rank, Counter())[host] += 1
        for inside, pid, told in self._claims():
            claimed = told if told is not None else self.of_name(inside, pid)
            if claimed is not None and (node := self.folder_node(inside)):
                said.setdefault(claimed, Counter())[node] += 2
        for dump in self.brought.dumps:
            claimed, node = self.of_dump(dump), self.folder_node(dump.inside)
            if claimed is not None and node:
                said.setdefault(claimed, Counter())[node] += 2
        found = {rank: counts.most_common(1)[0][0] for rank, counts in said.items()}
        return found | in_blocks(found, self.world or 0)

    def _world(self) -> int | None:
        told = [log.world for log in self.brought.logs] + [dump.world for dump in self.brought.dumps]
        return max([size for size in told if size], default=None)
