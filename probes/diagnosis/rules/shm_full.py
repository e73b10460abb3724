"""/dev/shm is full or too small: data-loader workers and NCCL's shared-memory transport fail on it."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted

CAUSE = "host.shm_full"
IN_TEXT = ("out of shared memory", "/dev/shm", "shared memory segment", "insufficient shared memory")
FULL = ("No space left", "Bus error", "SIGBUS", "insufficient", "out of shared memory", "Error while creating shared")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen, finding in evidence.findings("host.shm_full", "host.shm_small"):
        full = finding.code == "host.shm_full"
        if finding.severity == "info":
            continue
        yield Hypothesis(
            CAUSE,
            {"node": seen.node} if seen.node else {},
            f"Shared memory of {seen.node or 'a node'}: {finding.says}",
            (Reason(finding.says, seen.ref),),
            ("shm_full",) if full else ("shm_small",),
            would_change=("room in it at a second look",),
            nodes=frozenset({seen.node}) if full else frozenset(),
        )
    for event, log, seen in evidence.job.said("shm_full", "loader_killed", "traceback", "nccl_warn", "fatal_signal"):
        words = event.kind == "shm_full" or (
            any(part in event.text for part in IN_TEXT) and any(part in event.text for part in FULL)
        )
        if not words:
            continue
        rank = event.rank if event.rank is not None else next(iter(event.about), None)
        node = evidence.job.view(rank).node if rank is not None else seen.node
        yield Hypothesis(
            CAUSE,
            {"node": node} if node else {},
            f"A rank on {node or 'a node'} found /dev/shm full",
            (quoted(event, log, seen),),
            ("shm_full_in_log",),
            would_change=("room in /dev/shm of that container at the time",),
            ranks=frozenset({rank}) if rank is not None else frozenset(),
            nodes=frozenset({node}),
        )


RULE = Rule((CAUSE,), judge)
