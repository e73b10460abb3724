"""The log of a rank into events: whole files, or the lines that a node chose from one.

Source   see torch.py, nccl.py, python.py, _log_blocks.py
Units    seconds since the epoch
Shape    read_log(text) -> (events, events left off)
Errors   none: what no shape fits is no event
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import deque
from collections.abc import Iterable, Mapping

from probes.catalog.logs import nccl, python, torch
from probes.catalog.logs.blocks import Blamed, Chain, Failures, Tracebacks, bare, of_error_file
from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.exits import Exits
from probes.catalog.logs.labels import within
from probes.catalog.logs.lines import Line, Zone, log_lines
from probes.catalog.logs.runs import Runs
from probes.catalog.logs.tally import Tally
from probes.catalog.logs.timings import Timings

# Who raises an exception of these only waited: it is the consequence of what the event tells.
WAITS = (
    "watchdog_timeout",
    "gloo_timeout",
    "blocking_wait",
    "store_timeout",
    "barrier_missed",
    "setup_missed",
    "collective_mismatch",
)
MOST_RANKS = 131_072
_OWN = ("traceback", "cuda_error")
_AN_ERROR = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Exception|exception)\b")
# Ray: where each worker of a job began, and of which worker it tells an exception.
_PLACED = re.compile(r"\bpid=(\d{1,10})\) world_rank=(\d{1,7})\b")
_JOINS = re.compile(r"Setting up process group for: .{0,200}?\[rank=(\d{1,7}), world_size=\d")
# The environment that a program prints of itself. A launcher's has no LOCAL_RANK: there RANK may count nodes.
_OWN_RANK = re.compile(r"(?<![\w-])RANK[=:] ?(\d{1,7})\b")
_REMOTE = re.compile(r"\bray::[\w.:<>-]{1,160}\(\) \(pid=(\d{1,10}), ip=([0-9a-f.:]{1,45})")
_SAID = re.compile(r"(?<!communicator was aborted on )\b(?i:rank)[ =:#]{0,2}(\d{1,7})\b")
_GPU = re.compile(r"[( ]GPU (\d{1,3})[; ]")


def _spoken(event: LogEvent) -> LogEvent:
    """With the one rank that a line names which no writer marked: "CUDA out of memory on rank 5"."""
    ranks = set(_SAID.findall(event.text)) if event.rank is None and event.kind == "cuda_error" else set()
    return dataclasses.replace(event, rank=int(ranks.pop())) if len(ranks) == 1 else event


def _written_by(event: LogEvent, line: Line) -> LogEvent:
    """With node and process, where the launcher writes them in front of each line."""
    if not line.host or "host" in event.more:
        return event
    pid = {} if line.pid is None else {"of_pid": line.pid}
    return dataclasses.replace(event, more={**event.more, "host": line.host, **pid})


def _waited(event: LogEvent) -> bool:
    """Whether an exception with this in its message is a consequence of somebody else's fault."""
    return event.secondary or event.kind in WAITS


class LogReader:
    """Takes the lines of one file in their order. `rank` is who writes what has no other writer's mark."""

    def __init__(self, zone: Zone, rank: int | None = None) -> None:
        self.tally = Tally()
        self.tail: deque[str] = deque(maxlen=3)
        self._rank = rank
        self._tracebacks = Tracebacks()
        self._chain = Chain()
        self._failures = Failures(zone)
        self._exits = Exits()
        self._timings = Timings()
        self._runs = Runs()
        self._blamed = Blamed()
        self._times: dict[int | None, float] = {}
        self._stamps: dict[int | None, str] = {}
        self._raises: int | None = None  # who logged an error just now: the traceback under it is of the same rank
        self._ranks: dict[int, int | None] = {}  # pid -> rank, None where lines differ
        self._remote: tuple[int, str] | None = None  # whose exception Ray tells: pid and node
        self._says: set[int] = set()  # which rank it is itself, by its environment
        self._because = ""  # the event inside the failure that torchrun is telling, when it is only a consequence

    def take(self, line: Line) -> None:
        if line.rank is None:
            line.rank = self._rank
        self._logged(line)
        self._learn(line)
        self._add_failure(self._failures.take(line))
        told = self._failures.rank
        if told is not None:
            line.rank = told
        event = self._blamed.mark(torch.read(line) or nccl.read(line) or python.read(line))
        # Inside torchrun's list the exception belongs to the failure that is being told.
        raised = self._tracebacks.take(line) if told is None else None
        if raised is None and event is None and told is None:
            quoted = bool(self.tail) and self.tail[-1][:1].isspace()  # the end of a traceback that was none of a fault
            event = self._exits.take(line) or (None if quoted else bare(line))
        if told is not None and event and _waited(event):
            self._because = event.kind
        if raised and event:
            more, secondary = {**raised.more, "because": event.kind}, raised.secondary or _waited(event)
            raised = dataclasses.replace(raised, secondary=secondary, more=more)
        event = _written_by(_spoken(event), line) if event else None
        for one in self._chain.take(line, _written_by(raised, line) if raised else None):
            self._add(one)
        if event and line.piece and event.kind in ("progress", "nan"):
            event = dataclasses.replace(event, more={**event.more, "piece": line.piece})
        if event and not (told is not None and event.kind in ("progress", "nan", "checkpoint")):
            self._add(event)
        if event is None or event.kind in ("progress", "phase_time"):
            self._timings.take(line)
        if line.at is not None:
            self._times[line.rank] = line.at
        elif line.stamp:
            self._stamps[line.rank] = line.stamp
        if line.text.strip():
            self.tail.append(line.text)

    def _logged(self, line: Line) -> None:
        """Python's logging.exception() writes its own line with time and rank, and the traceback under it bare."""
        if line.rank is None and line.stamp:
            line.rank = within(line.text)
        if line.rank is not None or line.stamp:
            self._raises = line.rank if line.stamp and _AN_ERROR.search(line.text[:200]) else None
        elif self._raises is not None:
            line.rank = self._raises

    def _learn(self, line: Line) -> None:
        """Which process is which rank, wherever a line tells both."""
        placed = _PLACED.search(line.text) if "world_rank=" in line.text else None
        joins = _JOINS.search(line.text) if "world_size=" in line.text else None
        own = int(joins[1]) if joins and line.rank is None else line.rank
        pid, rank = (int(placed[1]), int(placed[2])) if placed else (line.pid, own)
        if pid is not None and rank is not None and (pid in self._ranks or len(self._ranks) < MOST_RANKS):
            self._ranks[pid] = rank if self._ranks.get(pid, rank) == rank else None
        if "LOCAL_RANK" in line.text and len(self._says) < 2 and (says := _OWN_RANK.search(line.text)):
            self._says.add(int(says[1]))
        if remote := _REMOTE.search(line.text) if "ray::" in line.text else None:
            self._remote = int(remote[1]), remote[2]
        elif line.stamp or line.writer:
            self._remote = None

    def _of_remote(self, event: LogEvent) -> LogEvent:
        if self._remote is None or event.rank is not None or event.kind not in _OWN or "of_pid" in event.more:
            return event
        pid, host = self._remote
        return dataclasses.replace(event, more={**event.more, "of_pid": pid, "host": host})

    def _add(self, event: LogEvent) -> None:
        # Where the rank has written no time, whatever stands before it in the file was written before.
        event = self._of_remote(event)
        at = self._times.get(event.rank, self._times.get(None))
        stamp = self._stamps.get(event.rank, self._stamps.get(None, max(self._stamps.values(), default=None)))
        if event.at is None and at is not None:
            event = dataclasses.replace(event, after=at)
        elif event.at is None and not event.stamp and stamp is not None:
            event = dataclasses.replace(event, more={**event.more, "after_stamp": stamp})
        self.tally.add(self._runs.placed(event))

    def _add_failure(self, failed: LogEvent | None) -> None:
        if failed and self._because:
            failed = dataclasses.replace(failed, secondary=True, more={**failed.more, "because": self._because})
        if failed:
            self.tally.add(self._runs.placed(failed))
            self._because = ""

    def end(self) -> tuple[LogEvent, ...]:
        self._add_failure(self._failures.end())
        for event in self._chain.end():
            self._add(event)
        for event in self._timings.end():
            self.tally.add(event)
        events = self.tally.events()
        if len(self._says) == 1 and all(event.rank is None for event in events):
            events = tuple(dataclasses.replace(event, rank=min(self._says)) for event in events)
        return owned(by_pids(with_ranks(events), self._ranks))


def by_pids(events: tuple[LogEvent, ...], ranks: Mapping[int, int | None]) -> tuple[LogEvent, ...]:
    """Events of a process of which other lines tell the rank."""
    return tuple(
        dataclasses.replace(event, rank=rank)
        if event.rank is None
        and isinstance(pid := event.more.get("of_pid"), int)
        and (rank := ranks.get(pid)) is not None
        else event
        for event in events
    )


def with_ranks(events: tuple[LogEvent, ...]) -> tuple[LogEvent, ...]:
    """NCCL writes node and process in front of its lines: its own set-up lines tell which rank that is, by the largest
    communicator. Where one process is known by several numbers in such, none is taken."""
    known: dict[tuple[object, object], set[tuple[int, int]]] = {}
    for event in events:
        rank, of = event.more.get("comm_rank"), event.more.get("ranks")
        if isinstance(rank, int) and isinstance(of, int) and "of_pid" in event.more:
            known.setdefault((event.more["host"], event.more["of_pid"]), set()).add((of, rank))
    largest = max((size for told in known.values() for size, _ in told), default=0)
    ranks = {
        writer: next(rank for size, rank in told if size == largest)
        for writer, told in known.items()
        if sum(size == largest for size, _ in told) == 1
    }
    if len(set(ranks.values())) < len(ranks):  # two runs in one file, or several jobs
        return events
    return tuple(
        dataclasses.replace(event, rank=ranks[writer])
        if event.rank is None and (writer := (event.more.get("host"), event.more.get("of_pid"))) in ranks
        else event
        for event in events
    )


def owned(events: tuple[LogEvent, ...]) -> tuple[LogEvent, ...]:
    """An exception that nothing marks is of the one rank that torchrun says has failed by itself; of several, of the
    one whose local rank is the GPU that a full memory names."""
    failed = {
        event.about[0]: event.more.get("local_rank")
        for event in events
        if event.kind == "torchrun_failure" and len(event.about) == 1 and (event.code or 0) > 0
    }

    def whose(event: LogEvent) -> int | None:
        gpu = _GPU.search(event.text) if event.name.startswith(("CUDA out of", "HIP out of", "OutOfMemory")) else None
        fits = [rank for rank, local in failed.items() if gpu is None or len(failed) == 1 or local == int(gpu[1])]
        return fits[0] if len(fits) == 1 else None

    if not failed or any(event.rank is not None for event in events if event.kind in _OWN and not event.secondary):
        return events
    return tuple(
        dataclasses.replace(event, rank=whose(event)) if event.kind in _OWN and event.rank is None else event
        for event in events
    )


def read_log(text: str, zone: Zone | None = None, rank: int | None = None) -> tuple[tuple[LogEvent, ...], int]:
    """The events of a whole log and how many more there were. Linear in the text; an error.json is read as one."""
    zone = zone or Zone()
    reader = LogReader(zone, rank)
    if (raised := error_file(text, rank)) is not None:
        for event in raised:
            reader.tally.add(event)
    else:
        for line in log_lines(text, zone):
            reader.take(line)
    return reader.end(), reader.tally.left_off


def error_file(text: str, rank: int | None = None) -> list[LogEvent] | None:
    """The events of a torchelastic error.json: the exception, and what its message tells. None when it is not one."""
    if text.lstrip()[:1] != "{" or '"message"' not in text[:65536] or len(text) > 1_000_000:
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or set(said) != {"message"}:
        return None  # a line of a logger that writes JSON
    raised = of_error_file(said, Line("", rank))
    if raised is None:
        return None
    told = list(_message_events(said["message"], rank, raised))
    because = next((event for event in told if _waited(event)), None)
    if because:
        raised = dataclasses.replace(raised, secondary=True, more={**raised.more, "because": because.kind})
    return [raised, *told]


def _message_events(message: object, rank: int | None, raised: LogEvent) -> Iterable[LogEvent]:
    text = str(message.get("message", "")) if isinstance(message, dict) else str(message)
    blamed = Blamed()
    for row in text.split("\n")[:200]:
        line = Line(row[:8192], rank, raised.at, raised.clock, raised.stamp)
        event = blamed.mark(torch.read(line) or nccl.read(line) or python.read(line))
        if event and event.kind not in ("progress", "nan", "checkpoint"):
            yield event
