"""When the job began, as far as its ranks or their logs tell: what ended before is none of its faults."""

from __future__ import annotations

from probes.diagnosis.core import Evidence

LONG_S = 6 * 3600.0  # judgement: what happened so long before the last sign of the job did not stop it
MARGIN_S = 60.0  # judgement: clocks of nodes differ, and a job's first lines come late


STARTS = ("nccl_version", "nccl_init_start", "nccl_init_done")


def job_began(evidence: Evidence) -> float | None:
    """Seconds since the epoch: when its first process was started, or NCCL began; None where neither is told. The first
    line of a log is no beginning: people bring its end."""
    times = [view.place.start_time for view in evidence.job.ranks.values() if view.place and view.place.start_time]
    times += [event.at for event, _, _ in evidence.job.said(*STARTS) if event.at is not None]
    return min(times, default=None)


def before_job(evidence: Evidence, at: float | None) -> bool:
    """Whether something that was seen last `at` this time was over before the job began."""
    if at is None:
        return False
    began = job_began(evidence)
    last = max((event.last_at or 0.0 for event, _, _ in evidence.job.events), default=0.0)
    return (began is not None and at < began - MARGIN_S) or at < last - LONG_S
