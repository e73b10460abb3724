"""Processes and threads as far as their CPU is told: what they use, where they may run, and how long they wait for it.

Units    percent of one CPU; ns
"""

from __future__ import annotations

from dataclasses import dataclass

from probes.catalog.host.load_facts import Process

WAIT_DELAY = 10.0  # percent of the time; judgement: field rows Load and PSI, as host.load warns
WAIT_WANTED = 50.0  # percent: it waits longer than it runs; judgement
LEAST_NS = 10**9  # of waiting: less is no burden, whatever its share; judgement


@dataclass(slots=True)
class Runner:
    """One process or thread as far as its CPU is told. `rank`: whose it is, -1 for the job's without a number."""

    pid: int
    comm: str
    cpu: float | None = None
    delay: float | None = None
    preempted: float | None = None  # involuntary switches a second
    threads: int | None = None
    mask: str = ""
    rank: int | None = None
    worker: bool = False
    thread: bool = False  # of the process `ppid`, told by itself
    args: str = ""
    lifetime: bool = False
    ref: str = ""
    of_wanted: bool = False  # the delay is of the time that it wanted to run: what it slept is not in it
    user: str = ""
    ppid: int = 0
    seen_on: frozenset[int] = frozenset()  # CPUs that its threads were last on
    running: int = 0  # of its threads, at that look
    counted: tuple[int, int] | None = None  # ns that it ran, and waited for a CPU, at the first look

    @property
    def waits(self) -> bool:
        return (self.delay or 0.0) > (WAIT_WANTED if self.of_wanted else WAIT_DELAY)

    @property
    def delayed(self) -> str:
        of = "of the time that it wanted to run" if self.of_wanted else "of the time"
        return f"waited for a CPU for {self.delay:g} % {of}"

    @property
    def called(self) -> str:
        if self.rank is not None and self.rank >= 0:
            if self.thread:
                return f"{self.comm} ({self.pid}), a thread of rank {self.rank}"
            return (
                f"{self.comm} ({self.pid}), a worker of rank {self.rank}"
                if self.worker
                else f"rank {self.rank} ({self.pid})"
            )
        if self.pid < 0:  # known by its name only
            return self.comm
        return f"{self.comm} ({self.pid})" if self.comm else f"thread {self.pid}"


def count(there: Runner, one: Process) -> None:
    """Time that it ran and waited since it started; of two looks what came between them."""
    if one.ran_ns is None or one.waited_ns is None:
        return
    ran, waited = one.ran_ns, one.waited_ns
    if there.counted is not None and ran >= there.counted[0] and waited >= there.counted[1]:
        ran, waited = ran - there.counted[0], waited - there.counted[1]
    elif there.counted is None:
        there.counted = (ran, waited)
    if ran + waited > 0 and (there.delay is None or there.of_wanted):
        there.delay = round(100 * waited / (ran + waited), 1) if waited >= LEAST_NS else 0.0
        there.of_wanted = True
