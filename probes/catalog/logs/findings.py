"""Judges the logs of the ranks of one node: of each rank the worst event, in one plain sentence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from probes.catalog.logs.events import KINDS, QUIET, LogEvent, RankLog, RankLogs
from probes.catalog.logs.given_files import GIVEN
from probes.core import Finding, Severity

_ORDER = {kind: place for place, kind in enumerate(KINDS)}
# The line is about the ranks that it names, not about the one that wrote it.
_ABOUT = frozenset(("barrier_missed", "desync", "torchrun_failure", "scheduler_kill", "ddp_unused", "setup_missed"))
# Alone these do not stop a job, or do not say that they did.
_WARN = frozenset(("agent_signal", "nccl_warn", "nan", "remote_error", "ib_async", "gil_stuck", "nccl_error"))
TEXT = 200
EARLIER = "earlier attempt"
MANY_RANKS = 64  # findings of one node; a launcher's log may name every rank of the job


def findings(read: RankLogs) -> Iterator[Finding]:
    """The worst event per rank, then what NCCL's own lines show, then what could not be read or is kept by nobody."""
    by_rank: dict[tuple[str, int], list[LogEvent]] = {}
    nameless: list[tuple[RankLog, LogEvent]] = []
    elsewhere = _elsewhere(read)
    for log in read.logs:
        for event in log.events if log.how != EARLIER else ():  # what went wrong before the job was started again
            ranks = event.about if event.kind in _ABOUT and event.about else (event.rank,)
            for rank in ranks:
                if log.how == GIVEN and rank in elsewhere:
                    continue
                if rank is not None:
                    by_rank.setdefault((log.job, rank), []).append(event)
                elif event.kind not in QUIET and not event.secondary:
                    nameless.append((log, event))
    several = len({job for job, _ in by_rank}) > 1
    for job, rank in sorted(by_rank)[:MANY_RANKS]:
        yield from _of_rank(rank, job if several else "", by_rank[job, rank])
    if nameless and not any(_worst(events) for events in by_rank.values()):
        log, event = min(nameless, key=lambda pair: _badness(pair[1]))
        says = f"a rank that {log.file or 'the log'} does not name {KINDS[event.kind]}{_detail(event)}{_when(event)}"
        yield Finding(f"rank.{event.kind}", _severity(event), says, {"file": log.file})
    yield from _streams(read)
    yield from _given(read)
    for log in read.logs:
        if log.kept == "unread":
            who = f" of rank {log.rank}" if log.rank is not None else ""
            yield Finding(
                "rank.log_unread", "warn", f"log {log.file}{who} could not be read: {log.why}", {"file": log.file}
            )


def same_host(one: str, other: str) -> bool:
    """Whether two names are of one node: one may have a domain that the other lacks."""
    return bool(one) and one.partition(".")[0] == other.partition(".")[0]


def _elsewhere(read: RankLogs) -> set[int]:
    """Ranks of other nodes, whose logs lie on a file system that this node has too: their own node tells of them.

    By the host that torchrun prints, where it prints this node's as well: else its names are others than ours.
    """
    lists = [event for log in read.logs if log.how == GIVEN for event in log.events if event.kind == "torchrun_failure"]
    hosts = {rank: event.peer for event in lists for rank in event.about}
    if not any(same_host(host, read.host) for host in hosts.values()):
        return set()
    return {rank for rank, host in hosts.items() if host and not same_host(host, read.host)}


def _given(read: RankLogs) -> Iterator[Finding]:
    """Paths that people gave and that led to nothing."""
    for path in read.given:
        subject = {"path": path.pattern}
        if path.fits is None:
            yield Finding(
                "rank.log_path_unread", "warn", f"log path {path.pattern} was not looked through: {path.why}", subject
            )
        elif path.fits == 0:
            nothing: Severity = "info" if any(other.fits for other in read.given) else "warn"
            says = f"no file on this node fits log path {path.pattern}" + (f"; {path.why}" if path.why else "")
            yield Finding("rank.log_path_empty", nothing, says, subject)
        elif path.why:
            yield Finding("rank.log_path_unread", "info", f"log path {path.pattern}: {path.why}", subject)
    if read.given and read.left_off:
        says = f"{read.left_off} files that fit the log paths were not read: too many, or a day older than the newest"
        yield Finding("rank.log_paths_left_off", "info", says, {"files": read.left_off})


def _badness(event: LogEvent) -> tuple[bool, int, float]:
    return event.secondary, _ORDER[event.kind], event.at if event.at is not None else float("inf")


def _worst(events: list[LogEvent]) -> LogEvent | None:
    return min((event for event in events if event.kind not in QUIET), key=_badness, default=None)


def _severity(event: LogEvent) -> Severity:
    return "warn" if event.secondary or event.kind in _WARN else "bad"


def _of_rank(rank: int, job: str, events: list[LogEvent]) -> Iterator[Finding]:
    subject: dict[str, str | int] = {"rank": rank, "job": job} if job else {"rank": rank}
    worst = _worst(events)
    if worst is not None:
        says = f"rank {rank} {KINDS[worst.kind]}{_detail(worst)}{_status(worst, events)}{_when(worst)}"
        if worst.secondary:
            says += ". A consequence: the cause is elsewhere"
        yield Finding(f"rank.{worst.kind}", _severity(worst), says, subject)
    for event in events:
        counts = (event.more.get("enqueued"), event.more.get("completed"))
        if event.kind == "dump_signal" and counts[0] is not None and counts[0] == counts[1]:
            says = (
                f"rank {rank} had completed all it had enqueued ({counts[0]}) when it was asked for its flight recorder"
            )
            yield Finding(
                "rank.outside", "warn", f"{says}: it was not in a collective; others may wait for it", subject
            )
            break
    begun = {str(event.more.get("comm")) for event in events if event.kind == "nccl_init_start"}
    done = {str(event.more.get("comm")) for event in events if event.kind == "nccl_init_done"}
    if begun - done:
        says = f"rank {rank} began to set up {len(begun - done)} NCCL communicators and did not finish"
        yield Finding("rank.init_unfinished", "warn", says, subject)
    slow = [event for event in events if event.kind == "nccl_link" and event.name.startswith("NET/Socket")]
    fast = any(event.kind == "nccl_net" and event.name == "NET/IB" and _found(event) for event in events)
    if slow and fast:
        says = f"rank {rank} talks over NET/Socket on {sum(event.count for event in slow)} channels"
        yield Finding("rank.slow_link", "warn", f"{says} although NCCL found InfiniBand", subject)


def _found(event: LogEvent) -> bool:
    return "No device" not in str(event.more.get("devices", ""))


def _detail(event: LogEvent) -> str:
    """What the event adds to the words of its kind, with units."""
    more = event.more
    if event.kind == "watchdog_timeout":
        which = f" number {event.seq}" if event.seq is not None else ""
        group = f" of group {event.group}" if event.group else ""
        sizes = f" ({event.sizes[0]} elements in, {event.sizes[1]} out)" if len(event.sizes) == 2 else ""
        return f": {event.op}{which}{group}{sizes}, for {int(more.get('ran_ms', 0)) / 1000:.0f} s"
    if event.kind == "collective_mismatch" and event.op:
        number = f", number {event.seq} counted from 0" if event.seq is not None else ""
        mine, other = f"{event.op} {list(event.sizes)}", f"{more.get('peer_op')} [{more.get('peer_shape', '')}]"
        return f": {mine}, while rank {', '.join(map(str, event.about))} runs {other}{number}"
    if event.kind == "collective_mismatch" and "received" in more:
        return (
            f": it got {more['received']} bytes where it expected {more['expected']}; it or the sender is the odd one"
        )
    if event.kind == "fatal_signal" and event.name:
        return f": {event.name}" + (f" (process {more['pid']})" if "pid" in more else "")
    if event.kind == "barrier_missed":
        return f": rank {more.get('reporter')} waited {more.get('timeout_ms')} ms for it"
    if event.kind == "ib_completion":
        where = f" on {event.where}" if event.where else ""
        vendor = f", vendor error {more['vendor_err']}" if "vendor_err" in more else ""
        return f"{where}: {event.name} ({event.code}{vendor}), peer {event.peer or 'not printed'}"
    if event.kind == "torchrun_failure":
        what = f"{event.name}: {more.get('message')}" if more.get("message") else event.name
        return f": exit code {event.code}" + (f" ({what[:TEXT]})" if what else "")
    if event.kind == "traceback":
        where = f" at {event.where}" if event.where else ""
        message = str(more.get("message", ""))
        return f"{where}: {event.name}{': ' if message else ''}{message[:TEXT].rstrip('. ')}"
    for mark in ("NCCL WARN ", "NCCL INFO "):  # what stands before it are host, pid and thread
        if mark in event.text:
            return f": {event.text.partition(mark)[2][:TEXT].rstrip('. ')}"
    return f": {event.text[:TEXT].rstrip('. ')}"


def _status(event: LogEvent, events: list[LogEvent]) -> str:
    """What another line of the rank adds: how far it was in the group of its time-out, or which parameters."""
    for other in events:
        if event.kind == other.kind == "ddp_unused" and "parameters" not in event.more and "parameters" in other.more:
            return f"; without one: {other.more['parameters']}"
        if event.kind != "watchdog_timeout":
            continue
        if other.kind == "watchdog_status" and other.group == event.group and "enqueued" in other.more:
            return f"; last enqueued {other.more['enqueued']}, last completed {other.more['completed']}"
    return ""


def _when(event: LogEvent) -> str:
    times = f", {event.count} times" if event.count > 1 else ""
    if event.at is not None:
        return f"{times}, at {datetime.fromtimestamp(event.at, UTC).strftime('%Y-%m-%d %H:%M:%S UTC')}"
    return f"{times}, at {event.stamp} (local time)" if event.stamp else times


_LOST = {
    "pipe": "a pipe: nobody keeps the output",
    "terminal": "a terminal: nobody keeps the output",
    "socket": "a socket: nobody on this node keeps the output",
    "null": "/dev/null: the output is thrown away",
}


def _streams(read: RankLogs) -> Iterator[Finding]:
    """Ranks whose output is no file, and is not written to one by who reads it."""
    kept = {(rank, log.how) for log in read.logs if log.kept == "read" for rank in log.writers}
    lost: dict[tuple[str, str, str], list[int]] = {}
    for log in read.logs:
        passed_on = log.kept == "pipe" and any(rank == log.rank and "through a pipe" in how for rank, how in kept)
        if log.kept in _LOST and log.rank is not None and not passed_on:
            lost.setdefault((log.kept, log.how, log.why.partition(" (")[0]), []).append(log.rank)
    for (where, how, reader), ranks in lost.items():
        who = f"rank {ranks[0]} writes its" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} write their"
        by = f" (read by {reader})" if reader else ""
        subject = {"ranks": ",".join(map(str, ranks)), "stream": how}
        yield Finding("rank.output_lost", "info", f"{who} {how} to {_LOST[where]}{by}", subject)
