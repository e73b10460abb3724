"""Whether the scheduler itself says that the job ended well, and nothing in a log says otherwise."""

from __future__ import annotations

from probes.catalog._log_events import QUIET
from probes.diagnosis.core import Evidence, Reason

# The end of a process closes its connections; those that end a moment later write of it.
AT_THE_END = QUIET | {"peer_closed", "store_closed", "nccl_warn", "unwaited", "bootstrap"}


def ended_well(evidence: Evidence) -> tuple[Reason, ...]:
    """The readings that say so; () where none does, or a log tells of a failure."""
    told = list(evidence.of("job.state"))
    if not told or any(event.kind not in AT_THE_END for event, _, _ in evidence.job.events):
        return ()
    return tuple(Reason(_said(one.facts.jobs), one.ref) for one in told[:4])


def _said(jobs: dict[str, str]) -> str:
    first = next(iter(jobs))
    return f"{first} and {len(jobs) - 1} more ended well" if len(jobs) > 1 else f"{first} ended well"
