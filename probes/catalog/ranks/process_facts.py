"""Facts of rank.process."""

from __future__ import annotations

from dataclasses import dataclass

from probes.catalog.ranks.rank_facts import Unread


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread between two looks. `stuck`: in state D, in the same function, and it had not run in between.

    `cpu_percent` and `run_delay_percent` (runnable, but waiting for a CPU) are of the time between the looks; 100 is
    one CPU. Switches are counts between the looks: voluntary when it waited, involuntary when it lost its CPU.
    """

    tid: int
    comm: str
    state: str
    state_before: str
    wchan: str  # "" when it is not in the kernel, or the node does not show it
    wchan_before: str
    stuck: bool
    cpu_percent: float
    run_delay_percent: float | None
    voluntary: int | None
    involuntary: int | None
    cpus_allowed: str  # ranges such as 0-3,8
    last_cpu: int


@dataclass(frozen=True, slots=True)
class ThreadGroup:
    """Threads that were not told one by one: nearly all slept through both looks."""

    comm: str
    state: str
    wchan: str
    cpus_allowed: str
    count: int


@dataclass(frozen=True, slots=True)
class Process:
    """A rank, or a child of one (`worker_of`). What is None was not there to be read. `gone`: it ended meanwhile."""

    pid: int
    rank: int
    world_size: int | None
    run_id: str | None
    worker_of: int | None
    comm: str
    state: str
    state_before: str
    gone: bool = False
    wchan: str = ""
    stuck: bool = False
    cpu_percent: float | None = None
    user_percent: float | None = None
    run_delay_percent: float | None = None  # of the main thread
    major_faults: int | None = None  # between the looks: pages that had to come from a disk
    rss_bytes: int | None = None
    locked_bytes: int | None = None  # VmLck, mlock(2)
    pinned_bytes: int | None = None  # VmPin, RDMA registrations
    swap_bytes: int | None = None
    tracer_pid: int | None = None  # None: nobody
    tracer_before: int | None = None
    tracer: str = ""
    kill_pending: bool = False  # SIGKILL was sent and could not take effect yet
    oom_score: int | None = None
    threads_total: int | None = None
    threads: tuple[Thread, ...] = ()
    other_threads: tuple[ThreadGroup, ...] = ()
    threads_unread: int = 0
    cpus_allowed: str = ""  # of its main thread, where one look tells no threads


@dataclass(frozen=True, slots=True)
class Cgroup:
    """Limits of one cgroup. Kills are since it was made, `oom_kills_now` and the periods between the two looks."""

    folder: str
    pids: tuple[int, ...]  # ranks and children under it
    memory_limit_bytes: int | None
    memory_used_bytes: int | None
    oom_kills: int | None
    oom_kills_now: int | None
    cpus: float | None
    periods: int | None
    throttled: int | None
    throttled_percent: float | None


@dataclass(frozen=True, slots=True)
class RankProcesses:
    interval_s: float | None  # the shortest between two looks at one process
    processes: tuple[Process, ...]  # ranks, then children
    unread: tuple[Unread, ...]  # zombies of the ranks' launcher, and processes that hide
    cgroups: tuple[Cgroup, ...]
    denied: int
    left_out: int  # processes over the limit of what is looked at
