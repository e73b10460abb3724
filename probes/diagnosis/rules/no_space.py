"""A rank or a program was told that there is no room, or that a file system is read-only: what writes to it fails."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.rules._merge import as_one
from probes.diagnosis.times import Times, times_of

CAUSE = "host.disk_full"
SIGNALS = {
    "host.fs_readonly": "fs_readonly",
    "kernel.fs_readonly": "fs_readonly",
    "kernel.no_space": "no_space_in_system_log",
}
IN_LOG = ("No space left on device", "Errno 28", "Disk quota exceeded", "Errno 122",
    "Read-only file system", "Errno 30",
    "not enough disk space")  # fmt: skip
SHARED = ("/dev/shm", "shm", "shared memory")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    times = times_of(evidence)
    for seen, finding in evidence.findings(*SIGNALS):
        if finding.severity != "bad" or (finding.code.startswith("kernel.") and _old(seen, finding.code, times)):
            continue
        if any(words in finding.says for words in SHARED):
            continue
        yield Hypothesis(
            CAUSE,
            {"node": seen.node} if seen.node else {},
            f"A file system of {seen.node or 'a node'} is full or read-only: {finding.says}",
            (Reason(finding.says, seen.ref),),
            (SIGNALS[finding.code],),
            would_change=("room on it at a second look",),
        )
    yield from as_one(_in_logs(evidence), (), "%d more such lines")


def _old(seen: object, code: str, times: Times) -> bool:
    facts, node = getattr(seen, "facts", None), getattr(seen, "node", "")
    if facts is None:
        return False
    events = facts.no_space if code == "kernel.no_space" else facts.read_only
    return bool(events) and all(times.old(node, event.last_at, event.last) == "yes" for event in events)


def _in_logs(evidence: Evidence) -> Iterator[Hypothesis]:
    """A rank was told so itself: on which node its file system is, that node's own readings say."""
    for event, log, seen in evidence.job.events:
        if event.kind == "shm_full" or not any(words in event.text for words in IN_LOG):
            continue
        if any(words in event.text for words in SHARED):
            continue
        rank = event.rank if event.rank is not None else next(iter(event.about), None)
        node = evidence.job.view(rank).node if rank is not None else seen.node
        yield Hypothesis(
            CAUSE,
            {"node": node} if node else {},
            f"A rank on {node or 'a node'} could not write: {event.text[:120]}",
            (quoted(event, log, seen),),
            ("no_space_in_log",),
            would_change=("room on the file system that it wrote to, at the time",),
            ranks=frozenset({rank}) if rank is not None else frozenset(),
            nodes=frozenset({node}),
        )


RULE = Rule((CAUSE,), judge)
