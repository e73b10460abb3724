"""What was brought: every file that was read, with where it lies, before anybody knows whose it is.

Shape    Brought, and one class for each sort of file
Errors   none
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath

from probes.catalog.ranks.process_extract import Extract
from probes.catalog.stacks.facts import ProcessStack
from probes.core import Reading
from probes.intake.items import Unread
from probes.intake.logs import LogFile
from probes.intake.rank_pids import Told
from probes.topology import Topology


@dataclass(frozen=True, slots=True)
class StackFile:
    ref: str
    inside: PurePosixPath
    form: int  # how much such a file tells: py-spy's JSON 3, its text with native frames 2, without 1, faulthandler 0
    processes: tuple[ProcessStack, ...]


@dataclass(frozen=True, slots=True)
class ProcessFile:
    ref: str
    inside: PurePosixPath
    table: bool  # of ps, where most processes are none of the job's
    extracts: tuple[Extract, ...]


@dataclass(frozen=True, slots=True)
class DumpFile:
    """`packed` is the JSON of what the dump was reduced to, None when it is refused, and `why` says why: thousands of
    them wait until all files are read, and as objects each would take five times as much memory.

    `threads`: pthread ids of who enqueued; `world`: ranks of the default group.
    """

    ref: str
    inside: PurePosixPath
    size: int
    packed: bytes | None
    why: str = ""
    threads: frozenset[int] = frozenset()
    world: int | None = None


@dataclass(frozen=True, slots=True)
class NodeFile:
    """What is of a node as a whole. `host`: the node that its content names."""

    ref: str
    inside: PurePosixPath
    probe: str
    reading: Reading
    host: str = ""


@dataclass(slots=True)
class Brought:
    """All files, read and not yet put together. `captures` name their node themselves."""

    stacks: list[StackFile] = field(default_factory=list)
    processes: list[ProcessFile] = field(default_factory=list)
    dumps: list[DumpFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)
    nodes: list[NodeFile] = field(default_factory=list)
    captures: list[tuple[str, Reading]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    told_pids: list[Told] = field(default_factory=list)  # what texts say of which process each rank is
    named: set[str] = field(default_factory=set)  # nodes that headings and marks in files name
    pasted: set[PurePosixPath] = field(default_factory=set)  # folders that are files with several outputs in them
    told: dict[PurePosixPath, str] = field(default_factory=dict)  # folder: the node that a file in it tells
    expected: Topology | None = None

    @property
    def folders(self) -> set[PurePosixPath]:
        """Every folder that holds something which was read, and the folders around it."""
        return {folder for inside in self.insides for folder in inside.parents}

    @property
    def insides(self) -> list[PurePosixPath]:
        """Where each file that was read lies, below what was given."""
        return [one.inside for one in self._files]

    @property
    def _files(self) -> list[StackFile | ProcessFile | DumpFile | LogFile | NodeFile]:
        return [*self.stacks, *self.processes, *self.dumps, *self.logs, *self.nodes]

    def drop(self, insides: set[PurePosixPath], why: str) -> None:
        """Leave these files out."""
        gone = [one.ref for one in self._files if one.inside in insides]
        self.unread += [Unread(ref, why) for ref in gone]
        self.stacks = [one for one in self.stacks if one.inside not in insides]
        self.processes = [one for one in self.processes if one.inside not in insides]
        self.dumps = [one for one in self.dumps if one.inside not in insides]
        self.logs = [one for one in self.logs if one.inside not in insides]
        self.nodes = [one for one in self.nodes if one.inside not in insides]
