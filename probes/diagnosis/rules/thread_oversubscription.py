"""The ranks themselves have far more running threads than the node has CPUs: OMP_NUM_THREADS is unset, or too high."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from probes.catalog.host.load_facts import cpu_set
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.cpus import THREAD_NAMES as NAMES
from probes.diagnosis.cpus import NodeCpu, Runner, busiest, decides
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import node_of

CAUSE = "cpu.thread_oversubscription"
RUNNING, THREADS = 1.5, 2.0  # tasks that want to run, and threads of ranks, per CPU; judgement
BESIDE = 25.0  # percent of each CPU that another program takes: then that is the cause; judgement
FILLS = 40.0  # percent of each CPU that the job's own threads take where they are why it is crowded; judgement
SLICE = 8  # CPUs: what a scheduler gives to a rank, and no mistake of a mask; judgement
SPINS = 25.0  # percent of the samples in an OpenMP runtime itself; judgement
WANTED = ("run delay of the ranks: none", "OMP_NUM_THREADS set to CPUs per rank, and the same load")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    spins = {seen.node: seen for seen in evidence.of("rank.perf_shares") if seen.facts.openmp >= SPINS}
    for here in evidence.cpus.values():
        for one in _on(evidence, here, here.cpus) if here.cpus else ():
            seen = spins.pop(here.node, None)
            if seen is None:
                yield one
                continue
            signals = (*one.signals, "openmp_waits")
            yield dataclasses.replace(one, because=(*one.because, _spinning(seen)), signals=signals)
    yield from _refused(evidence)
    for node, seen in spins.items():
        if not (node in evidence.cpus and evidence.cpus[node].has_room):
            says = _spinning(seen)
            subject = {"node": node} if node else {}
            yield Hypothesis(CAUSE, subject, says.says, (says,), ("openmp_waits",), would_change=WANTED)


def _refused(evidence: Evidence) -> Iterator[Hypothesis]:
    """The system gave a thread pool of the job no more threads, and the program did not go on after it."""
    steps: dict[int, int] = {}
    for event, log, _ in evidence.job.said("progress"):
        steps[id(log)] = max(steps.get(id(log), 0), event.last_place)
    said = [
        one for one in evidence.job.said("threads_refused") if one[0].last_place >= steps.get(id(one[1]), 0)
    ]  # fmt: skip
    if not said:
        return
    nodes = {node for one in said if (node := node_of(evidence, one))}
    ranks = frozenset(one[0].rank for one in said if one[0].rank is not None)
    where = next(iter(nodes)) if len(nodes) == 1 else ""
    yield Hypothesis(
        CAUSE, {"node": where} if where else {},
        f"The system{f' of {where}' if where else ''} gives the ranks no more threads: "
        "each starts one for every CPU, as far as its limit goes",
        tuple(quoted(*one) for one in said[:3]), ("threads_refused",),
        would_change=("OMP_NUM_THREADS set to CPUs per rank, and no such message",),
        ranks=ranks, nodes=frozenset(nodes),
    )  # fmt: skip


def _spinning(seen: Seen) -> Reason:
    facts = seen.facts
    return Reason(
        f"{facts.openmp:.0f} % of the samples are OpenMP threads that wait, most in {facts.openmp_at}", seen.ref
    )


def _on(evidence: Evidence, here: NodeCpu, cpus: int) -> Iterator[Hypothesis]:
    mine = [one for one in here.runners.values() if here.is_job(one)]
    given = _given(here, mine)
    held = bool(given) and 2 * len(given) <= cpus
    cpus = len(given) if held else cpus
    threads = sum(one.threads or 0 for one in mine)
    used = sum(one.cpu or 0.0 for one in mine)
    others = busiest(here.others())
    told = [*(here.env or {}).items(), *(pair for env in here.asked.values() for pair in env.items())]
    asked = [int(value) for key, value in told if key in NAMES and value.isdecimal()]
    ranks = len({one.rank for one in mine if one.rank is not None and one.rank >= 0}) or sum(
        not one.worker for one in mine
    )
    wanted = max(asked, default=0) * ranks
    many = threads > THREADS * cpus or wanted > THREADS * cpus
    # Nobody told the threads, but far more want to run than there are processes of the job.
    many = many or (not threads and (here.runnable or 0) > max(THREADS * cpus, 2 * len(mine)))
    crowded = max(here.runnable or 0, here.load1 or 0.0) > RUNNING * cpus
    if not mine and not others and crowded and max(asked, default=0) >= cpus:
        yield _by_setting(here, cpus, max(asked))
    if not mine or not (many or (crowded and used > 50 * cpus)) or (others and others[0][1] > BESIDE * cpus):
        return
    if sum(cpu for _, cpu, _ in others) > used:  # the cores are others': the job's own threads do not fill them
        return
    if here.has_room:
        return
    unset = (here.env is not None or bool(here.asked)) and not asked
    because = []
    if threads:
        because.append(Reason(f"{len(mine)} processes of the job have {threads} threads on {cpus} CPUs", mine[0].ref))
    if wanted > THREADS * cpus:
        because.append(Reason(f"{ranks} ranks may start {max(asked)} threads each, on {cpus} CPUs", mine[0].ref))
    if crowded:
        says = f"{max(here.runnable or 0, here.load1 or 0.0):g} tasks run or wait on {cpus} CPUs"
        because.append(Reason(says, here.refs.get("runnable", here.refs.get("load1", mine[0].ref))))
    waiting = here.waiting
    proven = bool(waiting) and crowded_or_late(here, crowded) and decides(evidence, here)
    # Masks keep the job off half of the CPUs or more: then they are why its threads fight, unless each process has or
    # asks for far more threads than that by itself.
    each = max((one.threads or 0 for one in mine), default=0)
    own = max(asked, default=0) >= 2 * cpus or (cpus >= SLICE and each > 4 * cpus)
    # Threads that fill few of the CPUs crowd nobody: whoever does is not seen here, as from within a container.
    # Where the use of some is not told, as of a table that was cut, it may be these.
    told_all = all(one.cpu is not None for one in mine if (one.threads or 0) > 1)
    each_row = 2 * sum(one.threads == 1 for one in mine) >= len(mine)  # of top -H, which ends where the screen does
    told_all = told_all and not (each_row and (here.runnable or 0) > len(here.runners))
    elsewhere = 0 < used < FILLS * cpus and told_all and max(asked, default=0) < cpus
    if (not many and not unset) or (held and not own) or elsewhere:
        proven = False
    signals = ["threads_over_cores" if proven else "threads_over_cores_unproven"]
    if unset:
        signals.append("omp_unset")
        because.append(Reason("no rank sets OMP_NUM_THREADS: each starts a thread per CPU", mine[0].ref))
    yield Hypothesis(
        CAUSE, {"node": here.node} if here.node else {},
        f"The ranks on {here.node or 'a node'} run far more threads than its {cpus} CPUs",
        tuple(dict.fromkeys((*because, *waiting[:3]))), tuple(signals),
        would_change=WANTED,
        ranks=here.late_ranks if proven else frozenset(),
        nodes=frozenset({here.node}) if proven and here.node else frozenset(),
    )  # fmt: skip


def _by_setting(here: NodeCpu, cpus: int, asked: int) -> Hypothesis:
    """No process is told; but one rank alone asks for all CPUs, and far more tasks run or wait than there are."""
    crowd = Reason(
        f"{max(here.runnable or 0, here.load1 or 0.0):g} tasks run or wait on {cpus} CPUs",
        here.refs.get("runnable", here.refs.get("load1", "")),
    )
    return Hypothesis(
        CAUSE, {"node": here.node} if here.node else {},
        f"Each rank on {here.node or 'a node'} may start {asked} threads, and the node has {cpus} CPUs",
        (crowd,), ("threads_by_setting",), would_change=WANTED,
    )  # fmt: skip


def _given(here: NodeCpu, mine: list[Runner]) -> frozenset[int]:
    """The CPUs that the job may use, where masks of half of its processes are told. Children inherit theirs."""
    parents = [here.runners.get(one.ppid) for one in mine]
    masks = [one.mask or (above.mask if above else "") for one, above in zip(mine, parents, strict=True)]
    told = [cpu_set(mask) for mask in masks if mask]
    return frozenset().union(*told) if 2 * len(told) >= len(mine) else frozenset()


def crowded_or_late(here: NodeCpu, crowded: bool) -> bool:
    return crowded or bool(here.late_ranks) or (here.pressure is not None and (here.pressure.some_avg10 or 0) > 40)


RULE = Rule((CAUSE,), judge)
