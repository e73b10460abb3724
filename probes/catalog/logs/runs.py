"""Several runs in one log: what ended a job is over when it trains on below it in the same file.

Shape    Runs: fed one event after the other, gives it back with `more["run"]`; the first run, 0, is not written down
Errors   none

A launcher that starts a job again often writes to the same file, and so does an exception that was caught.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from probes.catalog.logs.events import LogEvent

# What a process does not survive. Errors of the network or of a disk may come and go while a job trains.
ENDS = frozenset(
    (
        *("cuda_error", "traceback", "fatal_signal", "torchrun_failure", "torchrun_signal", "scheduler_kill"),
        *("loader_killed", "collective_mismatch", "ddp_unused", "hook_order", "desync", "barrier_missed"),
        *("setup_missed", "watchdog_timeout", "watchdog_status", "watchdog_ended", "gloo_timeout", "blocking_wait"),
        *("heartbeat", "nccl_error", "store_timeout", "rendezvous", "peer_closed", "store_closed", "remote_error"),
        *("duplicate_gpu", "dump_signal", "agent_signal"),
    )
)
BY_PIPE = "through pipe"  # a dump that somebody asked for: the job trains on
ON = 8  # steps that one writer tells after it; judgement: less are others that had not come to it yet


class Runs:
    def __init__(self) -> None:
        self._run = 0
        self._since: dict[tuple[int | None, str], int] | None = None  # steps by writer since something ended a process

    def placed(self, event: LogEvent) -> LogEvent:
        """The event, with the run that it is of."""
        if ends(event):
            self._since = {}
        elif event.kind == "progress" and self._since is not None and event.seq is not None:
            writer = (event.rank, event.name)
            self._since[writer] = self._since.get(writer, 0) + 1
            if self._since[writer] >= ON:
                self._run, self._since = self._run + 1, None
        of_run = ends(event) or event.kind == "progress"
        return _of(event, self._run) if of_run and self._run else event


def ends(event: LogEvent) -> bool:
    """Whether it tells of the end of a process."""
    return event.kind in ENDS and event.name != BY_PIPE


def run_of(event: LogEvent) -> int:
    run = event.more.get("run", 0)
    return run if isinstance(run, int) else 0


def later(events: Iterable[LogEvent], before: list[LogEvent]) -> list[LogEvent]:
    """Events of the next part of a log, counted on from those of the parts before it."""
    some = list(events)
    ended = any(ends(event) for event in before)
    goes_on = any(one.kind == "progress" and one.seq is not None and one.count >= ON for one in some if not run_of(one))
    base = max(map(run_of, before), default=0) + (ended and goes_on)
    return [_of(one, run_of(one) + base) if base and (ends(one) or one.kind == "progress") else one for one in some]


def _of(event: LogEvent, run: int) -> LogEvent:
    return dataclasses.replace(event, more={**event.more, "run": run})
