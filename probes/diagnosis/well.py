"""What speaks for it that nothing is wrong: training goes on, GPUs compute, or the scheduler says that all ended well.

Shape    signs(evidence, found, advances) -> (signals, the readings on which they stand); (), () where nothing does
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probes.catalog.gpu.facts import Gpu
from probes.catalog.logs.events import QUIET
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Seen
from probes.diagnosis.going_on import AT_THE_END, ended_its_work, steps_past_what_is_told, steps_to_the_look
from probes.diagnosis.gpus import gpu_states
from probes.diagnosis.ranking import strength

# What a job that goes on shows when it is slow: that it goes on is then no sign that nothing is wrong.
SLOW = frozenset({"last_by_duration", "last_by_call", "in_device_sync_twice", "sync_in_profile", "lock_held_twice",
    "callbacks_in_profile", "hotspot", "throttled_much", "threads_over_cores", "masks_collide", "link_slow",
    "waits_to_send_many", "packets_lost"})  # fmt: skip
ODD = 5.0  # judgement: what is more likely than this to be its cause is no mere oddity
FULL, EMPTY = 90, 5  # percent of use; judgement
EMPTY_MIB = 2048  # judgement: what the driver and a display keep
# Of the power limit. A collective that waits keeps a GPU at full use too, but at 120 to 200 W of an H100's 700 W; at
# work it draws over 500 W (recorded). Judgement: between the two.
WORKS = 0.6


def signs(
    evidence: Evidence, found: Sequence[Hypothesis], advances: bool
) -> tuple[tuple[str, ...], tuple[Reason, ...]]:
    """`advances`: the flight recorders show that no rank waits."""
    if found and all(one.signals[:1] == ("abort_at_exit",) for one in found):
        signals: tuple[str, ...] = ("ended_after_work",)
    else:
        signals = ()
    if any(signal in SLOW for one in found for signal in one.signals):
        return signals, ()
    on: tuple[Reason, ...] = ()
    if advances:
        signals, on = ("training_advances", *signals), _going_on(evidence)
    if ended := _ended_well(evidence):
        signals, on = (*signals, "completed_by_scheduler"), (*on, *ended)
    if done := ended_its_work(evidence):
        signals, on = (*signals, "ended_by_its_log"), (*on, *done)
    if not signals and all(strength(one.signals) < ODD for one in found):
        if steps := steps_to_the_look(evidence):
            signals, on = ("steps_until_looked",), steps
        elif steps := steps_past_what_is_told(evidence):
            signals, on = ("steps_past_what_is_told",), steps
        if not found and (computing := _computing(evidence)):
            signals, on = (*signals, "gpus_compute"), (*on, *computing)
    return signals, on


def _going_on(evidence: Evidence) -> tuple[Reason, ...]:
    """On what it stands that training goes on: the dumps in which nobody waits."""
    if stepped := evidence.stalls.stepped:
        return (Reason("the log tells of further steps after the ranks were asked for their dumps", stepped),)
    dumps = [one for one in evidence.of("rank.flight_recorder") if one.facts.dumps]
    says = "work of the ranks ended a moment before this dump, and nobody waits"
    return tuple(Reason(says, one.ref) for one in dumps[:4])


def _ended_well(evidence: Evidence) -> tuple[Reason, ...]:
    """What the scheduler says, where no log tells of a failure."""
    told = list(evidence.of("job.state"))
    if not told or any(event.kind not in AT_THE_END for event, _, _ in evidence.job.events):
        return ()
    return tuple(Reason(_said(one.facts.jobs), one.ref) for one in told[:4])


def _said(jobs: dict[str, str]) -> str:
    first = next(iter(jobs))
    return f"{first} and {len(jobs) - 1} more ended well" if len(jobs) > 1 else f"{first} ended well"


def _computing(evidence: Evidence) -> tuple[Reason, ...]:
    """All GPUs work, or have nothing on them, on every node, and no log tells of a failure."""
    if any(event.kind not in QUIET for event, _, _ in evidence.job.events):
        return ()
    because = []
    nodes = set()
    for seen, gpus in _gpus(evidence):
        at_work = [gpu for gpu in gpus if _works(gpu)]
        if not all(gpu in at_work or _empty(gpu) for gpu in gpus):
            return ()
        nodes.add(seen.node)
        if at_work:
            watts = sorted(gpu.power_w or 0.0 for gpu in at_work)
            says = f"{len(at_work)} of {len(gpus)} GPUs compute: full use, {watts[0]:.0f} to {watts[-1]:.0f} W"
            because.append(Reason(says, seen.ref))
    return tuple(because[:4]) if nodes >= set(evidence.nodes) else ()


def _gpus(evidence: Evidence) -> Iterator[tuple[Seen, list[Gpu]]]:
    """Readings that tell use and power; of one without power (a list of links) nothing follows."""
    for seen in gpu_states(evidence):
        gpus = [gpu for gpu in seen.facts.gpus if gpu.power_w is not None or gpu.utilisation_percent is not None]
        if gpus:
            yield seen, gpus


def _works(gpu: Gpu) -> bool:
    limit = gpu.power_limit_w or gpu.power_default_w or _limit_of(gpu.name or "")
    return bool((gpu.utilisation_percent or 0) >= FULL and limit and (gpu.power_w or 0.0) >= WORKS * limit)


def _empty(gpu: Gpu) -> bool:
    return (
        gpu.utilisation_percent is not None
        and gpu.utilisation_percent <= EMPTY
        and (gpu.memory_used_mib or 0) < EMPTY_MIB
    )


# Watts by the makers' data sheets; of two that one name may mean, the higher.
_LIMITS = (
    ("GB200", 1200), ("B200", 1000), ("H200 NVL", 600), ("H200", 700), ("H100 PCIe", 350), ("H100 NVL", 400),
    ("H100", 700), ("H800", 700), ("H20", 400), ("A100-PCIE", 300), ("A100 80GB PCIe", 300), ("A100", 400),
    ("A800", 400), ("L40S", 350), ("V100", 300), ("MI325X", 1000), ("MI300X", 750), ("MI250X", 560),
)  # fmt: skip


def _limit_of(name: str) -> float:
    return next((float(watts) for word, watts in _LIMITS if word in name), 0.0)
