"""Threads share a few CPUs and wait for them. Masks that overlap prove nothing by themselves: nearly all do."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.host.load_facts import cpu_set, ranges_of
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.cpus import NodeCpu, Runner, decides

CAUSE = "cpu.affinity_collision"
FEW = 0.25  # of the node's CPUs; judgement
FULL = 0.85  # of the CPUs of a mask: then whoever wants one waits; judgement
PREEMPTED = 100.0  # involuntary switches a second; judgement


QUEUE = 4  # of a rank's or thread's for each CPU; judgement
MANY = 8  # running threads, where their CPUs are told and no mask; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    masks = [cpus for here in evidence.cpus.values() for one in here.runners.values() if (cpus := cpu_set(one.mask))]
    top = 1 + max((max(cpus) for cpus in masks), default=0)  # the nodes of a job are mostly of one kind
    for here in evidence.cpus.values():
        yield from _on(evidence, here, top)


def _masked(here: NodeCpu) -> list[tuple[Runner, frozenset[int]]]:
    """Who may run where, by masks. A thread or child whose own is not told has that of its process: it inherits it."""
    found = []
    for one in here.runners.values():
        above = here.runners.get(one.ppid)
        mask = one.mask or (above.mask if above is not None else "")
        if mask:
            found.append((one, cpu_set(mask)))
    return found + [(one, cpu_set(one.mask)) for one in here.pinned]


def _seen(here: NodeCpu) -> list[tuple[Runner, frozenset[int]]]:
    """Where no mask is told: running threads of the job that were all last on few CPUs of many: no chance."""
    job = [one for one in here.runners.values() if one.running and one.seen_on and here.is_job(one)]
    cpus = frozenset().union(*(one.seen_on for one in job))
    running = sum(one.running for one in job)
    if not here.cpus or running < MANY or running < 2 * len(cpus) or len(cpus) > FEW * here.cpus:
        return []
    return [(one, cpus) for one in job]


def _on(evidence: Evidence, here: NodeCpu, top: int) -> Iterator[Hypothesis]:
    masked = _masked(here) or _seen(here)
    if not masked:
        return
    widest = max(len(cpus) for _, cpus in masked)
    whole = here.cpus or max(widest, top)
    groups: dict[frozenset[int], list[Runner]] = {}
    for one, cpus in masked:
        if cpus and len(cpus) <= max(1, FEW * whole) and len(cpus) < whole:
            groups.setdefault(cpus, []).append(one)
    crowded = [(cpus, some) for cpus, some in groups.items() if _crowd(some) > len(cpus)]
    if not crowded:
        return
    cpus, some = max(crowded, key=lambda one: _crowd(one[1]) / len(one[0]))
    late = [one for one in some if one.waits or (one.preempted or 0.0) > PREEMPTED]
    job = [one for one in some if one.rank is not None or here.is_job(one)]
    if not job:
        return
    narrow = all(one.worker or one.comm.startswith("pt_data") for one in job) and widest > 4 * len(cpus)
    who = ", ".join(one.called for one in job[:3]) + (f" and {len(job) - 3} more" if len(job) > 3 else "")
    spans = ranges_of(cpus)
    how = "may use" if any(one.mask for one in here.runners.values()) else "were all last on"
    because = [Reason(f"{who} {how} {len(cpus)} of {whole} CPUs only ({spans})", job[0].ref)]
    for one in late[:3]:
        waited = one.delayed if one.waits else f"lost its CPU {one.preempted:.0f} times a second"
        because.append(Reason(f"{one.called} {waited}", one.ref))
    pressed = here.pressure is not None and (here.pressure.some_avg10 or 0.0) > 20
    used = sum(one.cpu or 0.0 for one in some)
    busy = used >= FULL * 100 * len(cpus) and whole > 2 * len(cpus)  # on few CPUs of many, and those have no time left
    # Others that are told hardly do anything: as many as these, or all of some.
    full = cpus <= here.full and (len(here.free) >= len(cpus) or (len(here.free) > 1 and here.full == cpus))
    if full:
        because.append(
            Reason(f"CPUs {spans} have no idle time, and {ranges_of(here.free)} hardly do anything", some[0].ref)
        )
    if busy and pressed:
        because.append(Reason(f"together they use {used / 100:.1f} of these {len(cpus)} CPUs", some[0].ref))
    if pressed and not late:
        because += here.waiting[:1]
    runnable = sum(one.running for one in some)
    queued = runnable >= QUEUE * len(cpus)
    if queued:
        because.append(Reason(f"{runnable} of them want to run at once", some[0].ref))
    want = max(here.runnable or 0, here.load1 or 0.0)
    # The job fills what it may use, and far more tasks want to run than find room there; others take less.
    lined_up = busy and want >= QUEUE * len(cpus) and sum(one.cpu or 0.0 for one in here.others()) < used
    if lined_up:
        says = f"they use {used / 100:.1f} of these {len(cpus)} CPUs, and {want:g} tasks of the node run or wait"
        because.append(Reason(says, here.refs.get("load1", here.refs.get("runnable", some[0].ref))))
    heaped = not used and len(job) >= QUEUE * len(cpus)  # what each uses is not told
    held = full or queued or lined_up or ((narrow or busy or heaped) and pressed)
    signal = "masks_collide" if late else "mask_narrow" if held else "mask_narrow_unproven"
    if not decides(evidence, here):
        signal = "mask_narrow_unproven"
    strong = signal != "mask_narrow_unproven"
    ranks = frozenset(one.rank for one in job if one.rank is not None and one.rank >= 0)
    yield Hypothesis(
        CAUSE, {"node": here.node} if here.node else {},
        f"{_crowd(some)} threads on {here.node or 'a node'} share {len(cpus)} of {whole} CPUs ({spans})"
        + (" and wait for them" if late else ""),
        tuple(because), (signal,),
        would_change=("run delay and involuntary switches of these threads: none",),
        ranks=ranks if strong else frozenset(), nodes=frozenset({here.node}) if strong and here.node else frozenset(),
    )  # fmt: skip


def _crowd(some: list[Runner]) -> int:
    """Processes that share these CPUs; threads that run beside each other where their use shows it."""
    return max(len(some), sum(one.running for one in some), round(sum(one.cpu or 0.0 for one in some) / 100))


RULE = Rule((CAUSE,), judge)
