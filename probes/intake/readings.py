"""The second pass: files that are known to be of a rank become readings of its probes, one per file.

Two files that tell the same (a stack as text and as JSON, a dump as pickle and as JSON) are one reading: the one that
tells more. Its `ref` is the file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from probes import catalog
from probes.catalog.rank_log import RankLogs
from probes.catalog.ranks.process_extract import Extract, process_of
from probes.catalog.ranks.process_facts import Process, RankProcesses
from probes.catalog.stacks.facts import ProcessStack, Stacks
from probes.catalog.stacks.profile import findings as profile_findings
from probes.core import Capture, ParseError, Reading
from probes.intake import nameless as nameless_stacks
from probes.intake.brought import Brought, NodeFile, StackFile
from probes.intake.dumps import dump_readings
from probes.intake.items import Unread
from probes.intake.who import Who

MOST_LOOKS = 8  # earlier dumps of a process that are kept
Found = tuple[str, Reading]  # (file, what it told)


def reading(node: str, probe: str, facts: Any) -> Reading:
    """Facts that were put together here, judged by their probe as if it had brought them. `facts_json` is left out."""
    found = tuple(catalog.load()[probe].findings(facts))
    return Reading(Capture(node, probe, "ok"), facts, None, found)


def readings(brought: Brought, who: Who) -> Iterator[Found | Unread]:
    """Everything, captures as they are."""
    yield from brought.captures
    yield from (_of_node(one, who) for one in brought.nodes)
    extracts = _Extracts(brought, who)
    yield from extracts.readings()
    yield from _stacks(brought, who, extracts)
    yield from dump_readings(brought, who, reading)
    for log in brought.logs:
        rank = log.log.rank if log.log.rank is not None else None
        if not log.marked and (said := who.of_name(log.inside)) is not None:
            rank = said
        elif not log.marked and who.only_local(log.inside):
            rank = None
        writers = tuple(sorted(set(log.log.writers) | ({rank} if rank is not None else set())))
        told = dataclasses.replace(
            log.log, rank=rank, writers=writers, events=_owned(log.log.events, log.log.rank, rank)
        )
        yield log.ref, reading(who.node(rank, log.inside), "rank.log", RankLogs((told,)))


def _owned(events: tuple[Any, ...], was: int | None, now: int | None) -> tuple[Any, ...]:
    """Events of the file's own rank, when that is another than its name seemed to say."""
    return (
        events
        if was == now
        else tuple(dataclasses.replace(one, rank=now) if one.rank == was else one for one in events)
    )


def _of_node(one: NodeFile, who: Who) -> Found:
    node = one.host or who.whole_node(one.inside)
    return one.ref, dataclasses.replace(one.reading, capture=dataclasses.replace(one.reading.capture, node=node))


# Processes -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Seen:
    """One process, in the file that tells most of it."""

    ref: str
    inside: PurePosixPath
    extract: Extract
    rank: int
    worker_of: int | None
    worker: bool
    again: str = ""  # the state that a second file shows
    again_in: str = ""  # the kernel function that it shows; ps cuts it


class _Extracts:
    """Looks at processes: an extract of /proc counts before a row of ps, which is then the second look."""

    def __init__(self, brought: Brought, who: Who) -> None:
        self.who = who
        self.seen: dict[tuple[str, int], _Seen] = {}
        self.unread: list[Unread] = []
        told = {one.ref for one in brought.nodes}  # such as the load that a table of processes tells
        for file in sorted(brought.processes, key=lambda one: one.table):
            known = [
                self._take(file.ref, file.inside, one, file.table, len(file.extracts) == 1) for one in file.extracts
            ]
            if not any(known) and file.ref not in told:
                why = (
                    "none of its processes is known to be a rank's"
                    if len(known) > 1
                    else "no file says which rank it is"
                )
                self.unread.append(Unread(file.ref, why))

    def _take(self, ref: str, inside: PurePosixPath, one: Extract, table: bool, alone: bool) -> bool:
        rank, above, worker = self.who.of_extract(inside, one, alone and not table)
        key = (self.who.folder_node(inside), one.pid)
        there = self.seen.get(key) if one.pid else None
        if there is not None and not (there.extract.state or there.extract.wchan or there.extract.kernel):
            one.variables = {**there.extract.variables, **one.variables}  # which told only whose it is
            there.ref, there.inside, there.extract = ref, inside, one
            return True
        if there is not None and table:
            there.again, there.again_in = one.state, one.wchan
            return True
        if there is not None and not (one.state or one.wchan or one.status or one.kernel or one.others):
            there.extract.variables.update(one.variables)  # its environment, which is no look at it
            return True
        if there is not None:  # of two moments, by the order of names
            there.again, there.again_in = there.extract.state, there.extract.wchan
            there.ref, there.inside, there.extract = ref, inside, one
            return True
        # A state may be told of a rank by its number alone.
        if rank is not None and not one.pid and (one.state or one.wchan):
            key = (key[0], -1 - rank)
        elif rank is None or not one.pid:
            return bool(one.rank is not None)
        self.seen[key] = _Seen(ref, inside, one, rank, above, worker)
        return True

    def of(self, inside: PurePosixPath, pid: int | None) -> Extract | None:
        """What is known of the process of a stack."""
        there = self.seen.get((self.who.folder_node(inside), pid)) if pid else None
        return there.extract if there else None

    def readings(self) -> Iterator[Found | Unread]:
        yield from self.unread
        files: dict[tuple[str, str], list[Process]] = {}
        for one in self.seen.values():
            try:
                process = process_of(one.extract, one.rank, one.worker_of, self.who.world, one.again)
            except ParseError as error:
                yield Unread(one.ref, str(error))
                continue
            if _still(process, one):
                process = dataclasses.replace(process, stuck=True)
            node = self.who.node(one.rank, one.inside) or self.who.job_node()
            files.setdefault((one.ref, node), []).append(process)
        for (ref, node), some in files.items():
            facts = RankProcesses(None, tuple(sorted(some, key=lambda p: p.worker_of is not None)), (), (), 0, 0)
            yield ref, reading(node, "rank.process", facts)


def _still(process: Process, one: _Seen) -> bool:
    """In state D in two looks, in one function: what rank.process calls stuck."""
    same = bool(one.again_in) and process.wchan.startswith(one.again_in)
    return process.state == process.state_before == "D" and same


# Stacks --------------------------------------------------------------------------------------------------------------


def _stacks(brought: Brought, who: Who, extracts: _Extracts) -> Iterator[Found | Unread]:
    best: dict[tuple[object, ...], tuple[tuple[int, ...], StackFile, ProcessStack]] = {}
    looks: dict[tuple[object, ...], list[ProcessStack]] = {}
    unknown: list[tuple[str, str, ProcessStack]] = []
    for file in brought.stacks:
        nameless = 0
        for process in file.processes:
            rank, worker = who.of_stack(file, process)
            if rank is None:
                nameless += 1
                if not worker and file.form >= 0:
                    unknown.append((file.ref, who.whole_node(file.inside), process))
                continue
            told = _with_kernel(process, rank, worker, extracts.of(file.inside, process.pid))
            name = process.pid if process.pid is not None else f"child {who.names[file.inside].child}"
            key = (rank, name if worker else "main")
            score = _score(file, told)
            if told.main is not None and told.main.frames:
                looks.setdefault(key, []).append(told)
            if key not in best or score >= best[key][0]:  # of two moments the later, by the order of names
                best[key] = (score, file, told)
        if nameless == len(file.processes) and file.form >= 0:
            yield Unread(file.ref, "a stack, but no file says of which rank")
    for ref, node, profile in nameless_stacks.profiles(unknown):
        yield ref, Reading(Capture(node, "rank.profile", "ok"), profile, None, tuple(profile_findings(profile)))
    if not best or len(unknown) == 1:  # of which rank each is nothing tells, but they can be compared
        by_place: dict[tuple[str, str], list[ProcessStack]] = {}
        for ref, node, process in unknown:
            by_place.setdefault((ref, node), []).append(process)
        for (ref, node), some in by_place.items():
            yield ref, reading(node, "rank.stack", Stacks(tuple(some), 0, ""))
    whole = ((file, _with_looks(process, looks.get(key, []))) for key, (_, file, process) in best.items())
    yield from _stack_readings(who, whole)


def _with_looks(process: ProcessStack, looks: list[ProcessStack]) -> ProcessStack:
    """With what the other dumps of it showed: a tool that ran twice looked at two moments."""
    return dataclasses.replace(process, earlier=tuple(one.look for one in looks if one is not process)[-MOST_LOOKS:])


def _stack_readings(who: Who, found: Iterable[tuple[StackFile, ProcessStack]]) -> Iterator[Found]:
    files: dict[tuple[str, str], list[ProcessStack]] = {}
    for file, process in found:
        node = who.node(process.rank, file.inside) or who.job_node()
        files.setdefault((file.ref, node), []).append(process)
    for (ref, node), some in files.items():
        some.sort(key=lambda one: (one.rank, one.worker))
        yield ref, reading(node, "rank.stack", Stacks(tuple(some), 0, ""))


def _score(file: StackFile, process: ProcessStack) -> tuple[int, ...]:
    main = process.main
    return (int(main is not None and bool(main.frames)), len(process.threads) > 0, file.form)


def _with_kernel(process: ProcessStack, rank: int, worker: bool, extract: Extract | None) -> ProcessStack:
    """A stack with what /proc told of the same process, as the collector on a node has both."""
    told: Mapping[str, Any] = {}
    if extract is not None:
        told = {key: getattr(extract, key) for key in ("comm", "state", "wchan", "kernel")}
    return dataclasses.replace(process, rank=rank, worker=worker, **told)
