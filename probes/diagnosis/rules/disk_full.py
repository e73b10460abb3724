"""A disk has no room, or a file system is read-only: the node shows it, or who wrote was told."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.logs.events import LogEvent
from probes.core import Finding
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.rules._no_room import of_shared_memory, told
from probes.diagnosis.times import Times, times_of

CAUSE = "host.disk_full"
SIGNALS = {
    "host.disk_full": "disk_full",
    "host.inodes_full": "disk_full",
    "host.fs_readonly": "fs_readonly",
    "kernel.fs_readonly": "fs_readonly",
    "kernel.no_space": "no_space_in_system_log",
}
NONE_LEFT = 99.0  # percent; judgement: df rounds up, and what is left may be too small for what is written
IN_LOG = ("No space left on device", "Errno 28", "Disk quota exceeded", "Errno 122", "Read-only file system",
    "Errno 30", "not enough disk space")  # fmt: skip
ROOM_BYTES = 5 << 30  # judgement: less is soon gone


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    times = times_of(evidence)
    for seen, finding in evidence.findings(*SIGNALS):
        if finding.severity != "bad" or of_shared_memory(finding.says) or _old(seen, finding.code, times):
            continue
        yield Hypothesis(
            CAUSE,
            {"node": seen.node} if seen.node else {},
            f"A file system of {seen.node or 'a node'} is full or read-only: {finding.says}",
            (Reason(finding.says, seen.ref),),
            ("disk_nearly_full" if _has_room(seen, finding) else SIGNALS[finding.code],),
            would_change=("room on it at a second look",),
        )
    yield from _quotas(evidence)
    full = _without_room(evidence)
    yield from told(evidence, _says, CAUSE, "a file system has no room", "disk_full_told", full)
    if not any(_says(event) for event, _, _ in evidence.job.events):
        signal = "write_cut_on_full" if full else "write_cut"
        yield from told(evidence, _cut, CAUSE, "a checkpoint was cut off while it was written", signal, full)


def _cut(event: LogEvent) -> bool:
    return event.kind == "write_cut"


def _quotas(evidence: Evidence) -> Iterator[Hypothesis]:
    """A quota is of a person and a file system, of no node. Who was told of it tells more."""
    for seen, finding in evidence.findings("host.quota_reached"):
        yield Hypothesis(
            CAUSE,
            {},
            f"Nothing more can be written: {finding.says}",
            (Reason(finding.says, seen.ref),),
            ("quota_reached",),
            would_change=("a write to it, by the job's user, that works",),
        )


def _without_room(evidence: Evidence) -> set[str]:
    """Nodes with a file system of their own that has no room at all."""
    found = set()
    for seen in evidence.of("host.storage"):
        used = (max(disk.used_percent or 0.0, disk.inodes_used_percent or 0.0) for disk in seen.facts.disks)
        if seen.node and max(used, default=0.0) >= NONE_LEFT:
            found.add(seen.node)
    return found


def _has_room(seen: Seen, finding: Finding) -> bool:
    """Whether much can still be written: 96 % of a large disk leave room for many a checkpoint."""
    if finding.code != "host.disk_full" or seen.facts is None:
        return False
    disks = [disk for disk in seen.facts.disks if disk.mount == finding.subject.get("mount")]
    return any((disk.free_bytes or 0) > ROOM_BYTES and (disk.used_percent or 0) < 99 for disk in disks)


def _says(event: LogEvent) -> bool:
    if event.kind == "shm_full" or of_shared_memory(event.text):
        return False
    return event.kind == "disk_full" or any(words in event.text for words in IN_LOG)


def _old(seen: Seen, code: str, times: Times) -> bool:
    """Whether all that the kernel log tells of it was before the job. How full a disk is, is of now."""
    if not code.startswith("kernel.") or seen.facts is None:
        return False
    events = seen.facts.no_space if code == "kernel.no_space" else seen.facts.read_only
    return bool(events) and all(times.over(seen.node, event.last_at, event.last) for event in events)


RULE = Rule((CAUSE,), judge)
