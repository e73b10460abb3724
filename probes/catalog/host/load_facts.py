"""Facts and findings of host.load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from probes.core import Finding, Severity

# These thresholds are our own judgement (field notes, rows 39 to 41 and 48), not taken from a standard.
CPU_SOME_WARN, CPU_SOME_BAD = 20.0, 50.0
IO_FULL_WARN, MEMORY_FULL_BAD = 10.0, 5.0
THROTTLED_WARN, THROTTLED_BAD = 5.0, 25.0
FEW_PERIODS = 5  # fewer than half a second of periods is too little to judge a quota by
RUNNABLE_PER_CPU = 2.0
MEMORY_LOW_PERCENT = 2.0
SWAP_HEAVY_BYTES, SWAP_HEAVY_PERCENT = 2**30, 50.0


@dataclass(frozen=True, slots=True)
class Pressure:
    """Percent of the last 10 and 60 s in which some (all: full) of the tasks waited. psi.rst."""

    some_avg10: float | None
    some_avg60: float | None
    full_avg10: float | None
    full_avg60: float | None


@dataclass(frozen=True, slots=True)
class CpuUse:
    """Percent of all CPUs' time between the two samples."""

    user: float
    system: float
    iowait: float
    steal: float
    idle: float


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    ppid: int
    comm: str
    state: str
    cpu_percent: float | None  # 100 is one CPU
    run_delay_percent: float | None  # of wall time its main thread was runnable and waited for a CPU
    rank: bool  # holds /dev/nvidia*, or is a busy Python
    args: str = ""  # its command line, where a tool printed it
    threads: int | None = None
    lifetime: bool = False  # cpu_percent is an average since it started, as ps prints it
    preempted: float | None = None  # involuntary switches a second
    user: str = ""
    of_wanted: bool = False  # run_delay_percent is of the time that it wanted to run, since it started
    seen_on: tuple[int, ...] = ()  # CPUs that its threads were last on
    running: int | None = None  # of its threads, where a table has a row for each
    mask: str = ""  # CPUs that it may use, as ranges
    ran_ns: int | None = None  # since it started, as waited_ns: of its main thread, or the thread that it is
    waited_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    cgroup: str
    cpus: float  # the limit; 0 where it was not told
    pids: tuple[int, ...]  # ranks under it
    own: bool  # the probe itself is under it
    periods: int | None  # between the samples
    throttled: int | None
    throttled_percent: float | None
    total_periods: int | None = None  # since the cgroup was made
    total_throttled: int | None = None
    using: float | None = None  # CPUs that it uses, where only that is told beside its limit


@dataclass(frozen=True, slots=True)
class Waits:
    """What the kernel measured of one control group alone. `pids`: ranks in it."""

    cgroup: str
    pids: tuple[int, ...]
    cpu: Pressure | None
    memory: Pressure | None
    io: Pressure | None


@dataclass(frozen=True, slots=True)
class PackageHeat:
    """A CPU package that its own sensor held down. `percent`: of the time between the samples; None where the kernel
    counts events alone (before 5.8)."""

    package: int
    more: int  # events between the samples
    since_boot: int
    percent: float | None


@dataclass(frozen=True, slots=True)
class Load:
    load1: float | None  # None: the text that was brought does not tell it
    load5: float | None
    load15: float | None
    cpus: int | None
    physical_cores: int | None
    runnable: int | None  # the smaller of the two samples
    blocked: int | None  # in state D; the smaller of the two samples
    boot_at: int | None  # seconds since the epoch
    interval_s: float | None
    cpu: CpuUse | None
    cpu_pressure: Pressure | None  # None: this kernel does not measure it
    io_pressure: Pressure | None
    memory_pressure: Pressure | None
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    swap_total_bytes: int | None
    swap_used_bytes: int | None
    processes: tuple[Process, ...]  # the five busiest, then the other ranks
    quotas: tuple[Quota, ...]
    source: str  # "proc", or "psutil x.y.z" when cpu, physical_cores and swap are psutil's
    cpus_full: str = ""  # CPUs without idle time, as ranges, where a tool tells each
    cpus_free: str = ""  # those that are nearly always idle
    late_waits_percent: float | None = None  # of all waits for a CPU those of 4 ms or more, where a tracer counted them
    heat: tuple[PackageHeat, ...] = ()
    waits: tuple[Waits, ...] = ()  # of the ranks' control groups
    hung_tasks: int | None = None  # that the kernel has found in state D for too long, since boot; Linux 6.13 and later
    hung_tasks_more: int | None = None  # between the two samples


def ranges_of(cpus: Iterable[int]) -> str:
    """0, 1, 2 and 8 are 0-2,8."""
    parts: list[list[int]] = []
    for cpu in sorted(set(cpus))[:8192]:
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def cpu_set(ranges: str) -> frozenset[int]:
    """`0-3,8` is five CPUs. What is none is the empty set."""
    found: set[int] = set()
    for part in ranges.split(",")[:512]:
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()) and int(last or first) < 65_536:
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def findings(load: Load) -> Iterator[Finding]:
    """Waiting that the kernel measured, throttling by quota, too many runnable tasks, memory gone."""
    yield from _pressures(load)
    for waits in load.waits:
        yield from _of_group(waits, load)
    for quota in load.quotas:
        if quota.throttled_percent is not None and (quota.periods or 0) >= FEW_PERIODS:
            yield from _throttled(quota)
    if load.runnable is not None and load.cpus and load.runnable > RUNNABLE_PER_CPU * load.cpus:
        says = f"{load.runnable} tasks want to run on {load.cpus} CPUs: more than {RUNNABLE_PER_CPU:g} each"
        yield Finding("host.runqueue", "warn", says)
    if load.hung_tasks:
        more = load.hung_tasks_more or 0
        now = f", {more} of them within a second just now" if more else ""
        says = f"the kernel has found {load.hung_tasks} tasks hung in state D since boot{now}: its log names the first"
        yield Finding("host.hung_tasks", "warn" if more else "info", says)
    for hot in load.heat:
        if hot.more:
            how = f"for {hot.percent:g} % of the time between two samples" if hot.percent is not None else "now"
            says = f"CPU package {hot.package} is too hot and held down by its hardware {how} ({hot.more} events)"
            yield Finding("host.cpu_hot", "warn", says, {"package": hot.package})
    if load.memory_total_bytes and load.memory_available_bytes is not None:
        left = 100 * load.memory_available_bytes / load.memory_total_bytes
        if left < MEMORY_LOW_PERCENT:
            says = f"only {load.memory_available_bytes / 2**30:.1f} GiB of memory ({left:.1f} %) are available"
            yield Finding("host.memory_low", "bad", f"{says}: the kernel will kill a process next")
    if load.swap_total_bytes and load.swap_used_bytes and load.swap_used_bytes >= SWAP_HEAVY_BYTES:
        used = 100 * load.swap_used_bytes / load.swap_total_bytes
        if used >= SWAP_HEAVY_PERCENT:
            says = f"{load.swap_used_bytes / 2**30:.1f} GiB are swapped out ({used:.0f} % of the swap)"
            yield Finding("host.swap", "warn", says)


def _pressures(load: Load) -> Iterator[Finding]:
    cpu, io, memory = load.cpu_pressure, load.io_pressure, load.memory_pressure
    if cpu and cpu.some_avg10 is not None and cpu.some_avg10 > CPU_SOME_WARN:
        severity: Severity = "bad" if cpu.some_avg10 > CPU_SOME_BAD else "warn"
        says = f"for {cpu.some_avg10:g} % of the last 10 s a task waited for a CPU"
        yield Finding("host.cpu_pressure", severity, says)
    if io and io.full_avg10 is not None and io.full_avg10 > IO_FULL_WARN:
        yield Finding("host.io_pressure", "warn", f"for {io.full_avg10:g} % of the last 10 s every task waited for I/O")
    if memory and memory.full_avg10 is not None and memory.full_avg10 > MEMORY_FULL_BAD:
        says = f"for {memory.full_avg10:g} % of the last 10 s every task waited for memory"
        yield Finding("host.memory_pressure", "bad", says)


def _of_group(waits: Waits, load: Load) -> Iterator[Finding]:
    """Ranks that wait in their own group alone: where the whole node waits it says so itself."""
    who = f"ranks {', '.join(map(str, waits.pids[:8]))}"
    both: tuple[tuple[str, Pressure | None, Pressure | None, float, Severity], ...] = (
        ("memory", waits.memory, load.memory_pressure, MEMORY_FULL_BAD, "bad"),
        ("I/O", waits.io, load.io_pressure, IO_FULL_WARN, "warn"),
    )
    for what, mine, node, limit, severity in both:
        share, of_node = (one.full_avg10 if one else None for one in (mine, node))
        if share is not None and share > limit and (of_node or 0.0) <= limit:
            says = f"for {share:g} % of the last 10 s every task of the control group of {who} waited for {what}"
            beside = f", of the whole node for {of_node:g} %" if of_node is not None else ""
            code = "host.rank_memory_pressure" if what == "memory" else "host.rank_io_pressure"
            yield Finding(code, severity, f"{says}{beside} ({waits.cgroup})", {"cgroup": waits.cgroup})


def _throttled(quota: Quota) -> Iterator[Finding]:
    share = quota.throttled_percent or 0.0
    if share > THROTTLED_WARN:
        who = f"ranks {', '.join(map(str, quota.pids[:8]))}" if quota.pids else "its processes"
        of = f" of {quota.cpus:g} CPUs" if quota.cpus else ""
        says = f"a quota{of} stopped {who} in {share:g} % of the periods ({quota.cgroup or 'cgroup not told'})"
        yield Finding("host.cpu_throttled", "bad" if share > THROTTLED_BAD else "warn", says, {"cgroup": quota.cgroup})
