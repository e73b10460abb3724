"""Threads share a few CPUs and wait for them. Masks that overlap prove nothing by themselves: nearly all do."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.cpus import NodeCpu, Runner, cpu_set, decides

CAUSE = "cpu.affinity_collision"
FEW = 0.25  # of the node's CPUs; judgement
PREEMPTED = 100.0  # involuntary switches a second; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for here in evidence.cpus.values():
        yield from _on(evidence, here)


def _on(evidence: Evidence, here: NodeCpu) -> Iterator[Hypothesis]:
    masked = [(one, cpu_set(one.mask)) for one in here.runners.values() if one.mask]
    if not masked:
        return
    widest = max(len(cpus) for _, cpus in masked)
    whole = here.cpus or widest
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
    because = [Reason(f"{who} may use {len(cpus)} of {whole} CPUs only ({job[0].mask})", job[0].ref)]
    for one in late[:3]:
        waited = (
            f"waited for a CPU for {one.delay:g} % of the time"
            if one.waits
            else f"lost its CPU {one.preempted:.0f} times a second"
        )
        because.append(Reason(f"{one.called} {waited}", one.ref))
    pressed = here.pressure is not None and (here.pressure.some_avg10 or 0.0) > 20
    if pressed and not late:
        because += here.waiting[:1]
    signal = "masks_collide" if late else "mask_narrow" if narrow and pressed else "mask_narrow_unproven"
    if not decides(evidence, here):
        signal = "mask_narrow_unproven"
    strong = signal != "mask_narrow_unproven"
    ranks = frozenset(one.rank for one in job if one.rank is not None and one.rank >= 0)
    yield Hypothesis(
        CAUSE, {"node": here.node} if here.node else {},
        f"{_crowd(some)} threads on {here.node or 'a node'} share {len(cpus)} of {whole} CPUs ({job[0].mask})"
        + (" and wait for them" if late else ""),
        tuple(because), (signal,),
        would_change=("run delay and involuntary switches of these threads: none",),
        ranks=ranks if strong else frozenset(), nodes=frozenset({here.node}) if strong and here.node else frozenset(),
    )  # fmt: skip


def _crowd(some: list[Runner]) -> int:
    """Processes that share these CPUs; threads that run beside each other where their use shows it."""
    return max(len(some), round(sum(one.cpu or 0.0 for one in some) / 100))


RULE = Rule((CAUSE,), judge)
