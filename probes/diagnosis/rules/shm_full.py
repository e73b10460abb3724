"""/dev/shm is full or too small: data-loader workers and NCCL's shared-memory transport fail on it."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.logs.events import LogEvent
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, node_of
from probes.diagnosis.rules._no_room import of_shared_memory, told

CAUSE = "host.shm_full"
SIGNALS = {"host.shm_full": "shm_full", "host.shm_small": "shm_small"}
KINDS = ("loader_killed", "traceback", "nccl_warn", "fatal_signal")
FULL = ("No space left", "Bus error", "SIGBUS", "insufficient", "out of shared memory", "Error while creating shared")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen, finding in evidence.findings(*SIGNALS):
        if finding.severity == "info":
            continue
        ended = _bus_errors(evidence, seen.node)
        yield Hypothesis(
            CAUSE,
            {"node": seen.node} if seen.node else {},
            f"Shared memory of {seen.node or 'a node'}: {finding.says}",
            (Reason(finding.says, seen.ref), *(quoted(*one) for one in ended[:2])),
            (SIGNALS[finding.code], "bus_error_beside") if ended else (SIGNALS[finding.code],),
            would_change=("room in it at a second look",),
            ranks=frozenset(rank for one in ended if (rank := one[0].rank) is not None),
            nodes=frozenset({seen.node, *(node_of(evidence, one) for one in ended)}),
        )
    yield from told(evidence, _says, CAUSE, "/dev/shm has no room", "shm_full_told")


def _bus_errors(evidence: Evidence, node: str) -> list[Said]:
    """Processes there, or of no known node, that ended by SIGBUS: as who touches a page of it that finds no room."""
    ends = evidence.job.said("torchrun_failure", "fatal_signal", "scheduler_kill", "loader_killed")
    return [
        one
        for one in ends
        if (one[0].code in (-7, 135) or "signal: Bus error" in one[0].text) and node_of(evidence, one) in (node, "")
    ]


def _says(event: LogEvent) -> bool:
    if event.kind == "shm_full":
        return True
    return event.kind in KINDS and of_shared_memory(event.text) and any(words in event.text for words in FULL)


RULE = Rule((CAUSE,), judge)
