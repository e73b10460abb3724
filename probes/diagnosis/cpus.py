"""The CPU of each node: how many, who uses it, who waits for it, and what holds the ranks back.

Shape    cpus_of(evidence) -> {node: NodeCpu}
Units    percent of one CPU for processes; of the last 10 s for pressure
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from probes.catalog._load_facts import CpuUse, Load, Pressure, Process, Quota
from probes.catalog._net_facts import Mask
from probes.diagnosis.collectives import LONG_S
from probes.diagnosis.core import Evidence, Reason, Seen
from probes.diagnosis.looks import order_of

JOB = ("python", "pt_", "torchrun", "ray::", "deepspeed", "accelerate")
SLEEPY = (
    "watchdog/",
    "kworker",
    "ksoftirqd",
    "migration/",
    "rcu_",
    "kswapd",
    "swapper",
    "irq/",
    "top",
    "ps",
    "pidstat",
    "mpstat",
)
WAIT_PRESSURE, WAIT_DELAY, IDLE = 20.0, 10.0, 10.0  # judgement: field rows Load and PSI, as host.load warns
_RANKED = re.compile(r"--(?:local[-_])?rank\b|torchrun|deepspeed|accelerate launch|spawn_main|multiprocessing")
WAIT_WANTED = 50.0  # percent: it waits longer than it runs; judgement
RUNNABLE = 1.5  # tasks that want to run, per CPU; judgement


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
    args: str = ""
    lifetime: bool = False
    ref: str = ""
    of_wanted: bool = False  # the delay is of the time that it wanted to run: what it slept is not in it

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
            return (
                f"{self.comm} ({self.pid}), a worker of rank {self.rank}"
                if self.worker
                else f"rank {self.rank} ({self.pid})"
            )
        return f"{self.comm} ({self.pid})" if self.comm else f"thread {self.pid}"


@dataclass(slots=True)
class NodeCpu:
    node: str
    cpus: int | None = None
    pressure: Pressure | None = None
    use: CpuUse | None = None
    runnable: int | None = None
    load1: float | None = None
    runners: dict[int, Runner] = field(default_factory=dict)
    quotas: list[tuple[Quota, str]] = field(default_factory=list)
    refs: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] | None = None
    named: bool = False  # the ranks' processes are known by number

    @property
    def waiting(self) -> list[Reason]:
        """What shows that somebody waits for a CPU here: measured, not guessed from a high load."""
        found = []
        if self.pressure is not None and (self.pressure.some_avg10 or 0.0) > WAIT_PRESSURE:
            says = f"for {self.pressure.some_avg10:g} % of the last 10 s a task waited for a CPU"
            found.append(Reason(says, self.refs.get("pressure", "")))
        late = sorted(
            (one for one in self.runners.values() if one.waits and one.rank is not None),
            key=lambda one: -(one.delay or 0),
        )
        found += [Reason(f"{one.called} {one.delayed}", one.ref) for one in late[:3]]
        if self.cpus and (self.runnable or 0) > RUNNABLE * self.cpus:
            found.append(
                Reason(f"{self.runnable} tasks want to run on {self.cpus} CPUs", self.refs.get("runnable", ""))
            )
        if (
            not found
            and self.cpus
            and self.use is not None
            and self.use.idle < IDLE
            and (self.load1 or 0.0) > RUNNABLE * self.cpus
        ):
            says = (
                f"CPUs are idle for {self.use.idle:g} % only, and {self.load1:g} tasks run or wait on {self.cpus} CPUs"
            )
            found.append(Reason(says, self.refs.get("use", "")))
        return found

    @property
    def late_ranks(self) -> frozenset[int]:
        """Ranks that were seen to wait for a CPU, they or their workers."""
        return frozenset(
            one.rank for one in self.runners.values() if one.rank is not None and one.rank >= 0 and one.waits
        )

    def is_job(self, one: Runner) -> bool:
        if one.rank is not None:
            return True
        name = one.comm.lower()
        if not name.startswith(JOB):
            return False
        if "train" in one.args or "torch" in one.args or _RANKED.search(one.args):
            return True
        # Where some say in their arguments that they are ranks, another program in Python is none of them.
        marked = one.args and any(_RANKED.search(other.args) for other in self.runners.values())
        return not self.named and not marked

    def others(self) -> Iterator[Runner]:
        """Processes that are none of the job's, with a share of the CPU."""
        for one in self.runners.values():
            plain = one.comm.strip("[]").lower()
            if one.cpu and not self.is_job(one) and plain not in SLEEPY and not plain.startswith(SLEEPY[:8]):
                yield one


def cpus_of(evidence: Evidence) -> dict[str, NodeCpu]:
    found: dict[str, NodeCpu] = {}

    def of(node: str) -> NodeCpu:
        return found.setdefault(node, NodeCpu(node))

    _ranks(evidence, of)
    for seen in sorted(evidence.of("host.load"), key=lambda one: order_of(one.ref)):
        _load(of(seen.node), seen, seen.facts)
    for seen in evidence.of("host.settings"):
        here, facts = of(seen.node), seen.facts
        here.cpus = facts.cpus or here.cpus
        if facts.env:
            here.env = (here.env or {}) | dict(facts.env)
        for mask in facts.masks:
            _mask(here, mask, seen.ref)
    for seen in evidence.of("rank.env"):
        for job in seen.facts.jobs:
            told = dict(job.shared) | {"": "told"}
            of(seen.node).env = (of(seen.node).env or {}) | told
    for here in found.values():
        _total(here)
    return found


def _ranks(evidence: Evidence, of: object) -> None:
    for rank, places in evidence.job.processes.items():
        for (node, pid), ref in places.items():
            here: NodeCpu = of(node)  # type: ignore[operator]
            here.named = True
            here.runners.setdefault(pid, Runner(pid, "rank", rank=rank, ref=ref))
    for seen in evidence.of("rank.process"):
        here = of(seen.node)  # type: ignore[operator]
        seconds = seen.facts.interval_s or 1.0
        for one in seen.facts.processes:
            here.named = True
            worst = max((t.run_delay_percent or 0.0 for t in one.threads), default=0.0)
            pushed = sum(t.involuntary or 0 for t in one.threads)
            masks: set[str] = {t.cpus_allowed for t in one.threads if t.cpus_allowed} | {
                g.cpus_allowed for g in one.other_threads if g.cpus_allowed
            }
            here.runners[one.pid] = Runner(
                one.pid, one.comm, one.cpu_percent, max(one.run_delay_percent or 0.0, worst),
                pushed / seconds if one.threads else None, one.threads_total,
                max(masks, key=lambda mask: len(cpu_set(mask)), default="") or one.cpus_allowed,
                one.rank, one.worker_of is not None, ref=seen.ref,
            )  # fmt: skip
        for group in seen.facts.cgroups:
            if group.cpus is not None:
                counts = group.periods, group.throttled, group.throttled_percent
                here.quotas.append((Quota(group.folder, group.cpus, group.pids, False, *counts), seen.ref))


def _load(here: NodeCpu, seen: Seen, load: Load) -> None:
    here.cpus = load.cpus or here.cpus
    for name, value in (
        ("pressure", load.cpu_pressure),
        ("use", load.cpu),
        ("runnable", load.runnable),
        ("load1", load.load1),
    ):
        if value is not None:
            setattr(here, name, value)
            here.refs[name] = seen.ref
    for one in load.processes:
        _process(here, one, seen.ref)
    for quota in load.quotas:
        here.quotas.append((quota, seen.ref))


def _process(here: NodeCpu, one: Process, ref: str) -> None:
    there = here.runners.get(one.pid)
    above = here.runners.get(one.ppid)
    if there is None:
        there = here.runners[one.pid] = Runner(one.pid, one.comm, ref=ref)
        if above is not None and above.rank is not None:
            there.rank, there.worker = above.rank, True
    there.comm = one.comm or there.comm
    if one.cpu_percent is not None and not (there.cpu is not None and one.lifetime):
        there.cpu, there.lifetime = one.cpu_percent, one.lifetime
        there.ref = ref
    if one.run_delay_percent is not None and not (one.of_wanted and there.delay is not None and not there.of_wanted):
        there.delay, there.of_wanted = one.run_delay_percent, one.of_wanted
    there.preempted = one.preempted if one.preempted is not None else there.preempted
    there.threads, there.args = one.threads or there.threads, one.args or there.args
    if there.rank is None and one.rank:
        there.rank = -1


def _mask(here: NodeCpu, mask: Mask, ref: str) -> None:
    there = here.runners.setdefault(mask.pid, Runner(mask.pid, mask.comm or "process", ref=ref))
    there.mask = mask.cpus


def _total(here: NodeCpu) -> None:
    """Quotas told twice: what happened between the two looks. A limit and its counts may come in two files."""
    grouped: dict[str, list[tuple[Quota, str]]] = {}
    for quota, ref in here.quotas:
        grouped.setdefault(quota.cgroup, []).append((quota, ref))
    found = []
    for some in grouped.values():
        quota, ref = some[-1]
        quota = replace(quota, cpus=next((one.cpus for one, _ in reversed(some) if one.cpus), 0.0))
        counted = [one for one, _ in some if one.total_periods is not None and one.total_throttled is not None]
        if quota.periods is None and (told := next((one for one, _ in some if one.periods), None)) is not None:
            quota = replace(
                quota, periods=told.periods, throttled=told.throttled, throttled_percent=told.throttled_percent
            )
        if quota.periods is None and len(counted) > 1:
            quota = _between(quota, counted[0], counted[-1])
        if quota.total_periods is None and counted:
            quota = replace(quota, total_periods=counted[-1].total_periods, total_throttled=counted[-1].total_throttled)
        found.append((quota, ref))
    here.quotas = found


def _between(quota: Quota, first: Quota, last: Quota) -> Quota:
    periods = (last.total_periods or 0) - (first.total_periods or 0)
    throttled = (last.total_throttled or 0) - (first.total_throttled or 0)
    if periods <= 0 or throttled < 0:
        return quota
    return replace(quota, periods=periods, throttled=throttled, throttled_percent=round(100 * throttled / periods, 1))


VERY_LATE = 60.0  # percent of the time that a thread waits for a CPU; judgement: below, a rank is slow, not gone


def decides(evidence: Evidence, here: NodeCpu) -> bool:
    """Whether a want of CPU on this node can be why the job stands: a rank that the others wait for is one that hardly
    gets a CPU here. A busy node beside a rank that sleeps, or is stopped, is not the reason. Without anybody who is
    waited for the job is slow, and this may be why; unless it stands in one collective for long."""
    suspects = set(evidence.suspects)
    if not suspects:
        stalls = evidence.stalls
        stands = any(one.age_s is None or one.age_s >= LONG_S for one in stalls.all)
        return stalls.moving is True or not stands
    late = {one.rank for one in here.runners.values() if (one.delay or 0.0) > VERY_LATE}
    here_too = any(evidence.job.view(rank).node == here.node for rank in suspects)
    return bool(suspects & late) or (here_too and not any(one.delay is not None for one in here.runners.values()))


def cpu_set(ranges: str) -> frozenset[int]:
    """`0-3,8` is five CPUs. What is none is the empty set."""
    found: set[int] = set()
    for part in ranges.split(",")[:512]:
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()) and int(last or first) < 65_536:
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def busiest(runners: Iterable[Runner]) -> list[tuple[str, float, list[Runner]]]:
    """By name: what processes of one name take together, most first."""
    by_name: dict[str, list[Runner]] = {}
    for one in runners:
        by_name.setdefault(one.comm, []).append(one)
    sums = [(name, sum(one.cpu or 0.0 for one in some), some) for name, some in by_name.items()]
    return sorted(sums, key=lambda one: -one[1])
