"""Logs of ranks and of launchers among the files, and what their lines say of who is who.

Shape    log_file(item) -> LogFile, None when it is no log
Errors   none
"""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from probes.catalog.logs.events import LogEvent, RankLog
from probes.catalog.logs.lines import Line, Zone, pieces
from probes.catalog.logs.python import step_of
from probes.catalog.logs.runs import later
from probes.catalog.logs.stream import Chooser
from probes.catalog.rank_log import of_file
from probes.core import clean, lines_of
from probes.intake.items import HEAD, Item
from probes.intake.names import Named, named
from probes.intake.rank_prefixes import marked

FIRST_BYTES, LAST_BYTES = 4_194_304, 8_388_608  # of one log that are in memory whole
LOOKED_AT = 4_194_304  # characters in which marks and pids are searched
STEPS = 8  # judgement: lines that count steps; prose holds one or two
WEAK = frozenset(("progress", "nan", "checkpoint"))  # kinds of which any prose may hold the words
STAMPS = 5  # judgement: so many lines that begin with a time are no prose either
LEAST_STEPS = 3  # judgement: so many steps with their times are no prose
_TRAINER = re.compile(r"^\{'(?:train_|eval_)?loss': ", re.M)  # what transformers' Trainer prints for each step it logs
_GUARD = re.compile(
    r"\b(?:systemd-oomd|earlyoom|nohang|slurmstepd|slurmd)(?:\[\d{1,9}\])?: [^\n]{0,400}"
    r"(?:oom|OOM|due to memory|sending SIG|memory limit)"
    r"|\bsystemd(?:\[\d{1,9}\])?: [^\n]{0,300}(?:systemd-oomd killed|OOM killer|oom-kill)"
)
_MARK = re.compile(r"\[rank(\d{1,7})\]")
_OWN_PID = re.compile(r"\[rank(\d{1,7})\][^\n]{0,80}?\bpid[=: ]{1,2}(\d{2,8})\b")
_NCCL = re.compile(r"^(?:\[?\d{4}-[^\n]{10,30}\]? )?([A-Za-z][\w.-]{0,62}):(\d{1,8}):\d{1,8} \[\d{1,3}\] NCCL ", re.M)
_NCCL_RANK = re.compile(r"comm 0x[0-9a-f]{1,16} rank (\d{1,7}) n[rR]anks (\d{1,7}) [^\n]{0,200}Init COMPLETE")
# A log that was rotated: its name, a number or a date, perhaps packed. train.log is newer than train.log.1.
_ROTATED = re.compile(
    r"(.{0,180}?(?:\.log|\.out|\.err|\.txt|messages|syslog|kern|dmesg))"
    r"(?:[.-](\d{1,3}|\d{8}(?:-\d{1,10})?))?(?:\.(?:gz|bz2|xz))?"
)
_NCCL_WRITER = re.compile(
    r"^(?P<host>[\w.-]{1,80}):(?P<pid>\d{1,10}):\d{1,10} \[\d{1,3}\] NCCL INFO [^\n]{0,60}comm 0x[0-9a-f]{1,16} "
    r"rank (?P<rank>\d{1,7}) n[rR]anks (?P<size>\d{1,7}) ",
    re.M,
)
NOBODY = ("localhost", "localhost.localdomain", "")


@dataclass(frozen=True, slots=True)
class LogFile:
    """`pids`: pid -> rank that its lines tell. `hosts`: rank -> node. `world`: how many ranks there are."""

    ref: str
    inside: PurePosixPath
    log: RankLog
    marked: bool  # its rank stands in its lines, not only in its name
    pids: dict[int, int] = field(default_factory=dict)
    hosts: dict[int, str] = field(default_factory=dict)
    world: int | None = None
    named: frozenset[str] = frozenset()  # nodes that NCCL's lines begin with, or where the ranks are to meet
    written_at: float | None = None  # when the file was last written, as far as its folder or archive says


def whole_text(item: Item, text: str) -> str:
    """A log with everything that tells, whatever its length: of a long one the first and the last megabytes, and of
    what lies between the lines that Chooser takes. `text`: what was read of it."""
    first, last, held = [text], deque[bytes](), 0
    size = len(text)
    between = Chooser()
    for block in item.blocks():
        if size < FIRST_BYTES:
            first.append(_decoded(block))
            size += len(block)
            continue
        last.append(block)
        held += len(block)
        while held - len(last[0]) > LAST_BYTES:
            held -= len(last[0])
            between.feed(last.popleft())
    told = [f"{line.text}\n" for line in between.lines()[0]]
    return "".join((*first, *told, *(_decoded(block) for block in last)))


def _decoded(block: bytes) -> str:
    return block.decode("utf-8", "replace").replace("\r\n", "\n")


def joined(parts: Sequence[LogFile]) -> LogFile:
    """The parts of a log that was rotated, the oldest first, as one: it is called like the last one."""
    last = parts[-1]
    events: list[LogEvent] = []
    before, lines = 0, 0
    for part in parts:
        events += later([_later(event, lines, before) for event in part.log.events], events)
        before += part.log.size_bytes or 0
        lines += max((event.line or 0 for event in part.log.events), default=0)
    log = dataclasses.replace(
        last.log,
        events=tuple(events),
        rank=next((part.log.rank for part in reversed(parts) if part.log.rank is not None), None),
        left_off=sum(part.log.left_off for part in parts),
        size_bytes=before,
        read_bytes=sum(part.log.read_bytes or 0 for part in parts),
        skipped_lines=sum(part.log.skipped_lines for part in parts),
    )
    pids = {pid: rank for part in parts for pid, rank in part.pids.items()}
    hosts = {rank: host for part in parts for rank, host in part.hosts.items()}
    world = max((part.world or 0 for part in parts), default=0) or None
    marked = any(part.marked for part in parts)
    return dataclasses.replace(last, log=log, marked=marked, pids=pids, hosts=hosts, world=world)


def _later(event: LogEvent, lines: int, offset: int) -> LogEvent:
    line = event.line + lines if event.line is not None else None
    return dataclasses.replace(event, line=line, offset=event.offset + offset if event.offset is not None else None)


_MAP = re.compile(r"^ {0,8}Data for node: ", re.M)  # Open MPI 4 and 5
_BOUND = re.compile(r"^\[([A-Za-z][\w.-]{0,80}):\d{1,8}\] (?:MCW rank|Rank) (\d{1,6}) (?:is )?(?:not )?bound", re.M)


def guards_in(text: str) -> str:
    """Lines of a journal in which a guard of memory other than the kernel tells whom it ended."""
    return "\n".join(line for line in lines_of(text, 1000) if _GUARD.search(line))[:LOOKED_AT]


def log_file(item: Item, text: str, sure: bool = False) -> LogFile | None:
    """Read a log. `sure`: its form already says that it is one."""
    place = named(item.inside)
    text, placed = marked(text)
    head = text[:LOOKED_AT]
    placed = _mapped(head) | placed
    marks = {int(number) for number in _MARK.findall(head)}
    of_all = _of_several(head)
    # One that alone marks its lines, in a file of several processes, is not who wrote the lines without a mark.
    alone = len(marks) == 1 and len(set(_NCCL.findall(head))) < 2
    rank = next(iter(marks)) if alone else None if marks or of_all else _by_name(place)
    log = of_file(item.ref, text, rank)
    if not sure and not marks and not _is_log(log, head, place):
        return None
    if placed:
        log = dataclasses.replace(log, events=tuple(_on(event, placed) for event in log.events))
    pids = {int(pid): int(number) for number, pid in _OWN_PID.findall(head)}
    hosts: dict[int, str] = dict(placed)
    for event in log.events:
        pid = event.more.get("pid")
        if event.kind == "torchrun_failure" and len(event.about) == 1:
            if isinstance(pid, int):
                pids.setdefault(pid, event.about[0])
            if event.peer not in NOBODY:
                hosts[event.about[0]] = clean(event.peer)[:80]
        if event.kind == "step_times" and event.rank is not None and event.peer not in NOBODY:
            hosts.setdefault(event.rank, event.peer)
    world = _nccl(head, rank, pids, hosts)
    for mine, (host, number) in of_all.items():
        pids.setdefault(number, mine)
        if host not in NOBODY:
            hosts.setdefault(mine, host)
    writers = frozenset(host for host, _ in _NCCL.findall(head) if host not in NOBODY) | _meeting_places(log)
    writers |= {str(event.more["host"]) for event in log.events if event.more.get("host", "") not in NOBODY}
    return LogFile(item.ref, item.inside, log, bool(marks), pids, hosts, world, writers, item.mtime)


def _mapped(head: str) -> dict[int, str]:
    """Where mpirun says that it put each rank: by --display-map, or by --report-bindings."""
    found = {int(number): host for host, number in _BOUND.findall(head)}
    for block in _MAP.split(head)[1:]:
        host = re.match(r"[\w.-]{1,80}", block)
        for number in re.findall(r"\bProcess rank: (\d{1,6})\b", block) if host else ():
            found.setdefault(int(number), host[0] if host else "")
    return found


def _on(event: LogEvent, placed: Mapping[int, str]) -> LogEvent:
    """With the node that stood in front of its rank's lines."""
    host = placed.get(event.rank, "") if event.rank is not None else ""
    return dataclasses.replace(event, more={**event.more, "host": host}) if host and "host" not in event.more else event


def _meeting_places(log: RankLog) -> frozenset[str]:
    """Nodes that a launcher names as the place where all meet."""
    told = (str(event.more.get("value", "")) for event in log.events if event.kind == "launch")
    hosts = {value.partition(":")[0] for value in told if re.fullmatch(r"[A-Za-z][\w.-]{0,62}:\d{2,5}", value)}
    return frozenset(host for host in hosts - set(NOBODY) if any(one.isdigit() for one in host))


def below_a_tool(item: Item, text: str, told: tuple[str, ...] = ()) -> LogFile | None:
    """Lines of a job that stand beside a tool's output. What the tool tells itself (`told`) is not told twice."""
    log = log_file(item, text)
    events = tuple(event for event in log.log.events if event.kind not in told) if log is not None else ()
    if log is None or all(event.kind in WEAK for event in events):
        return None
    return dataclasses.replace(log, log=dataclasses.replace(log.log, events=events))


def _by_name(place: Named) -> int | None:
    return next((one for one in (place.rank, place.local, place.maybe) if one is not None), None)


def _of_several(head: str) -> dict[int, tuple[str, int]]:
    """{rank: (node, pid)} of a file that several ranks write to, whatever its name says: they call themselves by other
    numbers in the largest communicator."""
    told = [(int(one["size"]), int(one["rank"]), one["host"], int(one["pid"])) for one in _NCCL_WRITER.finditer(head)]
    world = max((size for size, *_ in told), default=0)
    found = {rank: (host, pid) for size, rank, host, pid in told if size == world}
    return found if len({pid for _, pid in found.values()}) > 1 else {}


def _nccl(head: str, rank: int | None, pids: dict[int, int], hosts: dict[int, str]) -> int | None:
    """NCCL's lines begin with the node and the pid; the largest communicator is taken for the job's."""
    writers = set(_NCCL.findall(head))
    if not writers:
        return None
    comms = [(int(size), int(mine)) for mine, size in _NCCL_RANK.findall(head)]
    if rank is None and len(writers) == 1 and comms:
        rank = max(comms)[1]
    if len(writers) == 1 and rank is not None:
        host, pid = next(iter(writers))
        pids.setdefault(int(pid), rank)
        if host not in NOBODY:
            hosts.setdefault(rank, host)
    return max(comms)[0] if comms else None


def _steps(lines: Sequence[Line]) -> bool:
    """Whether the lines tell of one step after another, with their times: a trainer's log, whoever wrote it."""
    steps = [step for line in lines if line.stamp and (step := step_of(line.text)) is not None]
    return len(steps) >= LEAST_STEPS and steps == sorted(steps) and steps[0] < steps[-1]


def _is_log(log: RankLog, head: str, place: Named) -> bool:
    if any(event.kind not in WEAK for event in log.events) or _NCCL.search(head):
        return True
    if any(one.kind == "progress" and "rate" in one.more for one in log.events):
        return True  # a bar, with its speed
    steps = (one.count for one in log.events if one.kind == "nan" or (one.kind == "progress" and one.seq is not None))
    if sum(steps) >= STEPS or len(_TRAINER.findall(head[:HEAD])) >= LEAST_STEPS:
        return True
    rows = [row for row in head[:HEAD].split("\n") if row][:200]
    lossy = (
        one.count
        for one in log.events
        if (one.kind == "progress" and one.seq is not None and "loss" in one.more)
        or (one.kind == "nan" and step_of(one.text) is not None)
    )
    if 2 <= len(rows) <= sum(lossy):  # the last lines of a log: each a step with its loss
        return True
    lines = [line for row in rows for line in pieces(row, Zone())]
    if any(line.source or line.writer for line in lines):
        return True
    if log.events and sum(bool(line.stamp) for line in lines) >= STAMPS:
        return True
    if _steps(lines):
        return True
    return place.rank is not None and (bool(log.events) or any(line.stamp for line in lines))


def unrotated(logs: list[LogFile]) -> list[LogFile]:
    """Parts of one log, which logrotate numbers from the newest, become one; where the newest is not there they may as
    well be logs of several ranks."""
    groups: dict[PurePosixPath, list[tuple[tuple[int, int], LogFile]]] = {}
    for log in logs:
        found = _ROTATED.fullmatch(log.inside.name)
        if found:
            number = found[2] or ""
            # Of numbers the highest is the oldest, of dates the lowest; the one without is the newest.
            age = (1, 0) if not number else (0, -int(number)) if len(number) <= 3 else (0, int(number[:8]))
            groups.setdefault(log.inside.parent / found[1], []).append((age, log))
    gone, made = set(), {}
    for parts in groups.values():
        ages = [age for age, _ in parts]
        if len(parts) > 1 and (1, 0) in ages and len(set(ages)) == len(ages):
            ordered = [log for _, log in sorted(parts, key=lambda one: one[0])]
            made[ordered[-1].ref] = joined(ordered)
            gone |= {log.ref for log in ordered[:-1]}
    return [made.get(log.ref, log) for log in logs if log.ref not in gone]
