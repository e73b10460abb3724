"""The CPU of each node: how many, who uses it, who waits for it, and what holds the ranks back.

Shape    cpus_of(evidence) -> {node: NodeCpu}
Units    percent of one CPU for processes; of the last 10 s for pressure
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from probes.catalog.host.load_facts import CpuUse, Load, Pressure, Process, Quota, cpu_set
from probes.catalog.network.net_facts import Mask
from probes.diagnosis.collectives import LONG_S
from probes.diagnosis.core import Evidence, Reason, Seen
from probes.diagnosis.cpu_waits import waits_of
from probes.diagnosis.joined_cpus import join
from probes.diagnosis.looks import order_of
from probes.diagnosis.quotas import together
from probes.diagnosis.runners import Runner as Runner
from probes.diagnosis.runners import count

JOB = ("python", "pt_", "gloo_", "torchrun", "ray::", "deepspeed", "accelerate")
TORCH = ("pt_", "gloo_", "torchrun", "nccl ")  # names that only torch and NCCL give
LAUNCHERS = ("torchrun", "deepspeed", "accelerate")
SLEEPY = ("watchdog/", "kworker", "ksoftirqd", "migration/", "rcu_", "kswapd", "swapper", "irq/",
    "top", "ps", "pidstat", "mpstat")  # fmt: skip
THREAD_NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
CALM, LEFT = 5.0, 40.0  # percent of the last 10 s that somebody waited, and of all CPUs' time; judgement
_RANKED = re.compile(r"--(?:local[-_])?rank\b|torchrun|deepspeed|accelerate launch|spawn_main|multiprocessing")
WIDE = 32  # CPUs; judgement
ALIKE = 2.0  # times the CPU of a rank that is known; judgement


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
    asked: dict[int, dict[str, str]] = field(default_factory=dict)  # rank -> THREAD_NAMES that its environment sets
    named: bool = False  # the ranks' processes are known by number
    full: frozenset[int] = frozenset()  # CPUs without idle time, where they are told one by one
    late_waits: float | None = None  # percent of all waits for a CPU that took long
    free: frozenset[int] = frozenset()  # those that hardly do anything
    pinned: list[Runner] = field(default_factory=list)  # threads that may run on fewer CPUs than their process

    @property
    def waiting(self) -> list[Reason]:
        """What shows that somebody waits for a CPU here: measured, not guessed from a high load."""
        return waits_of(self)

    @property
    def has_room(self) -> bool:
        """CPUs are left over, as was measured: then nobody who may use them waits for one."""
        calm = self.pressure is not None and (self.pressure.some_avg10 or 0.0) < CALM
        idle = self.use is not None and self.use.idle > LEFT
        return (calm or idle) and not self.waiting

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
        if name.startswith(TORCH) or self._below_the_job(one):
            return True
        if not name.startswith(JOB):
            return False
        if _trains(one):
            return True
        if self._like_a_rank(one):
            return True
        # Where some say in their arguments that they are ranks or train, another program in Python is none of them.
        marked = one.args and any(
            _trains(other) and other.comm.lower() not in LAUNCHERS for other in self.runners.values()
        )
        return not self.named and not marked

    def _below_the_job(self, one: Runner) -> bool:
        """Whether a rank, a launcher or a loader's parent started it."""
        for _ in range(4):
            above = self.runners.get(one.ppid) if one.ppid else None
            if above is None:
                break
            if (above.rank is not None and above.rank >= 0) or above.comm.lower() in LAUNCHERS:
                return True
            one = above
        return False

    def _like_a_rank(self, one: Runner) -> bool:
        """Called as a rank is, of its user or parent, and busy as it: the numbers of some ranks only may be known."""
        for other in self.runners.values():
            if other.comm != one.comm or not (_thread_of(one, other) or _twins(one, other)):
                continue
            if one.cpu is not None and other.cpu and one.cpu < ALIKE * other.cpu:
                return True
        return False

    def others(self) -> Iterator[Runner]:
        """Processes that are none of the job's, with a share of the CPU."""
        for one in self.runners.values():
            plain = one.comm.strip("[]").lower()
            if one.cpu and not self.is_job(one) and plain not in SLEEPY and not plain.startswith(SLEEPY[:8]):
                yield one


def _twins(one: Runner, other: Runner) -> bool:
    """Whether one is started as a rank is: by its user or parent, or, where a table tells neither, with its threads."""
    if other.rank is None or other.worker or one.args != other.args:
        return False
    if (one.user or one.ppid) and (other.user or other.ppid):
        return bool((one.user and one.user == other.user) or (one.ppid and one.ppid == other.ppid))
    many, most = sorted((one.threads or 0, other.threads or 0))
    return 2 < most < ALIKE * many and bool(other.cpu and one.cpu and other.cpu < ALIKE * one.cpu)


def _thread_of(one: Runner, other: Runner) -> bool:
    """Whether a row of top -H, which names the program alone, is a thread of a process of many, which is the job's."""
    of_job = other.rank is not None or _trains(other)
    row = one.threads == 1 and one.args in ("", one.comm) and bool(one.user) and one.user == other.user
    return row and of_job and (other.threads or 0) > 1


def _trains(one: Runner) -> bool:
    """Whether its arguments say so."""
    return "train" in one.args or "torch" in one.args or _RANKED.search(one.args) is not None


def cpus_of(evidence: Evidence) -> dict[str, NodeCpu]:
    found: dict[str, NodeCpu] = {}

    def of(node: str) -> NodeCpu:
        return found.setdefault(node, NodeCpu(node))

    _ranks(evidence, of)
    for seen in sorted(evidence.of("host.load"), key=lambda one: order_of(one.ref)):
        _load(of(seen.node), seen, seen.facts)
    for seen in evidence.of("host.settings"):
        here, facts = of(seen.node), seen.facts
        if facts.cpus and not (here.cpus and here.cpus < facts.cpus):
            here.cpus = facts.cpus  # nproc says OMP_NUM_THREADS where that is set; what tools of the load count is so
        if facts.env:
            here.env = (here.env or {}) | dict(facts.env)
        for owner, env in facts.envs.items():
            if owner.startswith("rank ") and owner[5:].isdecimal():
                here.asked[int(owner[5:])] = {key: value for key, value in env.items() if key in THREAD_NAMES}
        for mask in facts.masks:
            _mask(here, mask, seen.ref)
    for seen in evidence.of("rank.env"):
        for job in seen.facts.jobs:
            told = dict(job.shared) | {"": "told"}
            of(seen.node).env = (of(seen.node).env or {}) | told
    nowhere, named = found.get(""), [here for node, here in found.items() if node]
    if nowhere is not None and len(named) == 1:  # settings of no known node are of the only one
        named[0].asked = named[0].asked or nowhere.asked
        named[0].cpus = named[0].cpus or nowhere.cpus
        if set(evidence.nodes) <= {"", named[0].node}:
            join(named[0], found.pop(""))
    for here in found.values():
        here.quotas = together(here.quotas)
        here.cpus = here.cpus or _by_masks(here)
    return found


def _by_masks(here: NodeCpu) -> int | None:
    """How many CPUs a node has that nobody counted: all processes may use the same ones from the first on, and these
    are as many as no launcher gives to one rank."""
    masks = [cpus for one in here.runners.values() if (cpus := cpu_set(one.mask))]
    whole = masks[0] if len(masks) > 1 and len(set(masks)) == 1 else frozenset()
    return len(whole) if len(whole) >= WIDE and whole == frozenset(range(len(whole))) else None


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
            widest = max(masks, key=lambda mask: len(cpu_set(mask)), default="") or one.cpus_allowed
            here.pinned += [
                Runner(
                    t.tid, t.comm, t.cpu_percent, t.run_delay_percent,
                    None if t.involuntary is None else t.involuntary / seconds, 1, t.cpus_allowed, one.rank,
                    one.worker_of is not None, ref=seen.ref, ppid=one.pid, seen_on=frozenset({t.last_cpu}),
                    running=int(t.state == "R" == t.state_before), thread=True,
                )
                for t in one.threads
                if t.tid != one.pid and t.cpus_allowed and cpu_set(t.cpus_allowed) < cpu_set(widest)
            ]  # fmt: skip
            here.runners[one.pid] = Runner(
                one.pid, one.comm, one.cpu_percent, max(one.run_delay_percent or 0.0, worst),
                pushed / seconds if one.threads else None, one.threads_total,
                widest, one.rank, one.worker_of is not None, ref=seen.ref,
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
        ("late_waits", load.late_waits_percent),
    ):
        if value is not None:
            setattr(here, name, value)
            here.refs[name] = seen.ref
    for one in load.processes:
        _process(here, one, seen.ref)
    for quota in load.quotas:
        here.quotas.append((quota, seen.ref))
    here.full |= cpu_set(load.cpus_full)
    here.free |= cpu_set(load.cpus_free)


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
    count(there, one)
    there.user, there.ppid = one.user or there.user, one.ppid or there.ppid
    there.seen_on |= frozenset(one.seen_on)
    there.running = one.running or there.running
    there.mask = one.mask or there.mask
    there.preempted = one.preempted if one.preempted is not None else there.preempted
    if (one.threads or 0) > 1 or not there.threads:  # a row of top -H is one thread, of however many
        there.threads = one.threads or there.threads
    there.args = one.args or there.args
    if there.rank is None and one.rank:
        there.rank = -1


def _mask(here: NodeCpu, mask: Mask, ref: str) -> None:
    there = here.runners.setdefault(mask.pid, Runner(mask.pid, mask.comm or "process", ref=ref))
    there.mask, there.comm = mask.cpus, there.comm or mask.comm


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


def busiest(runners: Iterable[Runner]) -> list[tuple[str, float, list[Runner]]]:
    """By name: what processes of one name take together, most first."""
    by_name: dict[str, list[Runner]] = {}
    for one in runners:
        by_name.setdefault(one.comm, []).append(one)
    sums = [(name, sum(one.cpu or 0.0 for one in some), some) for name, some in by_name.items()]
    return sorted(sums, key=lambda one: -one[1])
