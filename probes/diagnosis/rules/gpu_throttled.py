"""Clocks held down by heat or by the power brake. A software power cap alone is how a loaded GPU works.

A throttled GPU is slow and does not stop: what it explains is a late rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from probes.catalog.gpu.facts import Gpu
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.gpus import NodeGpus, gpus_of

CAUSE = "gpu.throttled"
HELD = ("hw_power_brake_slowdown", "hw_thermal_slowdown", "hw_slowdown", "sw_thermal_slowdown")
WORDS = {
    "hw_power_brake_slowdown": "held back by the external power brake (power supply, rack or BMC)",
    "hw_thermal_slowdown": "slowed down by its hardware because it is too hot",
    "hw_slowdown": "slowed down by its hardware, which does not say why",
    "sw_thermal_slowdown": "slowed down by the driver because it is hot",
}
BUSY = 80  # percent of use, judgement: below it clocks may be low for want of work
HOT_C = 85  # judgement: makers' slowdown temperatures are 87 to 95 C
HOTTER_C = 15  # than its peers, judgement: GPUs of one chassis differ by a few degrees
CAPPED = 0.8  # of what it may draw by default, judgement: sites lower limits by a tenth to save power
LEAST = 3  # peers that are compared with, judgement
LOW = 0.75  # of the peers' clock, judgement: boards of one model differ by a few percent


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    nodes = gpus_of(evidence)
    every = [gpu for there in nodes.values() for gpu in there.gpus.values() if gpu.answered]
    clocks = _clocks(every)
    held = {node: [gpu for gpu in there.gpus.values() if _reason(gpu)] for node, there in nodes.items()}
    free = sum(gpu.reasons is not None for gpu in every) - sum(map(len, held.values()))
    for node, some in held.items():
        there = nodes[node]
        answered = [gpu for gpu in there.gpus.values() if gpu.answered]
        if some and len(some) > 1 and len(some) * 2 > len(answered):
            yield _of_node(node, some, there, free, clocks)
        else:
            for gpu in some:
                yield _of_gpu(node, gpu, there, free > 0, clocks.get(gpu.name))
    yield from _below_peers(nodes, every)
    yield from _hot(nodes, every)
    yield from _sampled(evidence)
    yield from _capped(nodes, every)


def _capped(nodes: dict[str, NodeGpus], every: list[Gpu]) -> Iterator[Hypothesis]:
    """Somebody, or the machine's controller, lets GPUs draw less than their makers and their peers do."""
    limits: dict[str | None, list[float]] = {}
    for gpu in every:
        if gpu.power_limit_w:
            limits.setdefault(gpu.name, []).append(gpu.power_limit_w)
    for node, there in nodes.items():
        low = {key: (gpu, full) for key, gpu in there.gpus.items() if (full := _lowered(gpu, limits.get(gpu.name, [])))}
        others = {limit for name in {gpu.name for gpu, _ in low.values()} for limit in limits.get(name, [])}
        alike = others <= {gpu.power_limit_w for gpu, _ in low.values()}
        if not low or (alike and len(nodes) > 1):  # what is so on all nodes is how the site runs them
            continue
        key, (gpu, full) = next(iter(low.items()))
        says = f"may draw only {gpu.power_limit_w:g} W of {full:g} W"
        whole = len(low) > 1
        yield Hypothesis(
            CAUSE,
            ({"node": node} if node else {}) if whole else _subject(node, gpu),
            f"{len(low)} GPUs of {node or 'a node'}: {_named(gpu)} {says}"
            if whole
            else f"On {node or 'a node'} {_named(gpu)} {says}",
            (Reason(f"{_named(gpu)} {says}", there.refs[key]),),
            ("power_limit_low",),
            against=(
                Reason("a lower limit may be meant, and costs speed only where the limit is reached", there.refs[key]),
            ),
            would_change=("the same limit on all nodes of the job",),
            nodes=frozenset(),
        )


def _lowered(gpu: Gpu, limits: list[float]) -> float | None:
    """What it might draw, where it may draw much less."""
    if not gpu.power_limit_w:
        return None
    full = gpu.power_default_w or (max(limits) if len(limits) > LEAST else None)
    return full if full and gpu.power_limit_w < CAPPED * full else None


def _reason(gpu: Gpu) -> str:
    return next((reason for reason in HELD if reason in (gpu.reasons or ())), "")


def _down(gpu: Gpu, peers: float | None) -> bool:
    """Half of its clock, or less: nvml.h on HW Slowdown. Where nothing tells its highest clock, its peers do."""
    full = gpu.sm_max_mhz or peers
    return bool(gpu.sm_mhz is not None and full and gpu.sm_mhz <= full / 2)


def _softly(gpu: Gpu, peers: float | None) -> str:
    """Where its clock does not tell how far it is held down."""
    told = HOT_C if gpu.sm_mhz is None else 0  # lines that were grep-ed tell the reason alone
    hot = "hw_thermal_slowdown" in (gpu.reasons or ()) and (gpu.temperature_c or told) >= HOT_C
    known = gpu.sm_mhz is not None and (gpu.sm_max_mhz or peers)
    return "slowed_and_hot" if hot and not known and not _at_rest(gpu) else "throttled_a_little"


def _at_rest(gpu: Gpu) -> bool:
    return "gpu_idle" in (gpu.reasons or ()) or (gpu.utilisation_percent is not None and gpu.utilisation_percent < 5)


def _busy(gpu: Gpu) -> bool:
    """By its use; where that is not told, by the driver's word that it is not idle, in its highest state."""
    if gpu.utilisation_percent is not None:
        return gpu.utilisation_percent >= BUSY
    return gpu.pstate == "P0" and gpu.reasons is not None and "gpu_idle" not in gpu.reasons


def _clocks(every: list[Gpu]) -> dict[str | None, float]:
    """The usual clock of the GPUs of a model that nothing holds down."""
    free: dict[str | None, list[int]] = {}
    for gpu in every:
        if gpu.sm_mhz and not _reason(gpu) and "gpu_idle" not in (gpu.reasons or ()):
            free.setdefault(gpu.name, []).append(gpu.sm_mhz)
    return {name: median(some) for name, some in free.items() if len(some) >= LEAST}


def _says(gpu: Gpu, peers: float | None) -> str:
    clock = ""
    if gpu.sm_mhz is not None:
        clock = f": SM clock {gpu.sm_mhz}"
        clock += (
            f" of {gpu.sm_max_mhz} MHz" if gpu.sm_max_mhz else f" MHz, its peers {peers:.0f} MHz" if peers else " MHz"
        )
    heat = f", {gpu.temperature_c} C" if gpu.temperature_c is not None else ""
    return f"{_named(gpu)} is {WORDS[_reason(gpu)]}{clock}{heat}"


def _named(gpu: Gpu) -> str:
    return f"GPU {gpu.index}" if gpu.index is not None else f"GPU {gpu.bus_id}" if gpu.bus_id else "a GPU"


def _of_node(node: str, some: list[Gpu], there: NodeGpus, free: int, clocks: dict[str | None, float]) -> Hypothesis:
    worst = next((gpu for gpu in some if _down(gpu, clocks.get(gpu.name))), some[0])
    strong = _down(worst, clocks.get(worst.name))
    signals: tuple[str, ...] = ("throttled_hard",) if strong else (_softly(worst, clocks.get(worst.name)),)
    braked = [gpu for gpu in some if "hw_power_brake_slowdown" in (gpu.reasons or ()) and not _at_rest(gpu)]
    signals += ("brake_on_all",) if len(braked) > 1 else ()
    signals += ("peers_not_throttled",) if free else ()
    return Hypothesis(
        CAUSE,
        {"node": node} if node else {},
        f"{len(some)} GPUs of {node or 'a node'} are held down: {_says(worst, clocks.get(worst.name))}",
        tuple(Reason(_says(gpu, clocks.get(gpu.name)), there.refs[_key(there, gpu)]) for gpu in some[:8]),
        signals,
        against=(Reason("a throttled GPU is slow: by itself it stops no collective", there.refs[_key(there, worst)]),),
        would_change=("a second look in which the clocks are up",),
        nodes=frozenset({node}) if strong else frozenset(),
    )


def _of_gpu(node: str, gpu: Gpu, there: NodeGpus, others: bool, peers: float | None) -> Hypothesis:
    strong = _down(gpu, peers)
    signals: tuple[str, ...] = ("throttled_hard",) if strong else (_softly(gpu, peers),)
    signals += ("peers_not_throttled",) if others else ()
    return Hypothesis(
        CAUSE,
        _subject(node, gpu),
        f"On {node or 'a node'} {_says(gpu, peers)}",
        (Reason(_says(gpu, peers), there.refs[_key(there, gpu)]),),
        signals,
        would_change=("a second look in which its clock is up",),
        nodes=frozenset({node}) if strong else frozenset(),
    )


def _below_peers(nodes: dict[str, NodeGpus], every: list[Gpu]) -> Iterator[Hypothesis]:
    """Busy as its peers of the same model, and clearly slower clocked, whatever the driver says of why."""
    busy: dict[str | None, list[Gpu]] = {}
    for one in every:
        if one.sm_mhz is not None and _busy(one):
            busy.setdefault(one.name, []).append(one)
    fastest = {name: max(one.sm_mhz or 0 for one in some) for name, some in busy.items()}
    for node, there in nodes.items():
        for key, gpu in there.gpus.items():
            if _reason(gpu) or gpu.sm_mhz is None or not _busy(gpu):
                continue
            if gpu.sm_mhz >= LOW * fastest[gpu.name]:  # nearly all: only few are compared with all others
                continue
            peers = [one.sm_mhz for one in busy[gpu.name] if one is not gpu and one.sm_mhz is not None]
            if len(peers) >= LEAST and gpu.sm_mhz < LOW * median(peers):
                says = f"{_named(gpu)} runs at {gpu.sm_mhz} MHz where busy peers run at {median(peers):.0f} MHz"
                yield Hypothesis(
                    CAUSE,
                    _subject(node, gpu),
                    f"On {node or 'a node'} {says}",
                    (Reason(says, there.refs[key]),),
                    ("clock_half_of_peers" if gpu.sm_mhz <= median(peers) / 2 else "clock_below_peers",),
                    would_change=("the same clock as its peers at a second look",),
                    nodes=frozenset({node}),
                )


def _hot(nodes: dict[str, NodeGpus], every: list[Gpu]) -> Iterator[Hypothesis]:
    """Busy as its peers, much hotter, and at much less power: what heat does to a clock that no tool here tells."""
    for node, there in nodes.items():
        for key, gpu in there.gpus.items():
            if not _busy(gpu) or _reason(gpu) or gpu.sm_mhz is not None or (gpu.temperature_c or 0) < HOT_C:
                continue
            peers = [one for one in every if one is not gpu and one.name == gpu.name and _busy(one) and one.power_w]
            if len(peers) < LEAST or not gpu.power_w or gpu.temperature_c is None:
                continue
            usual = median(one.power_w or 0.0 for one in peers)
            heat = median(one.temperature_c or gpu.temperature_c for one in peers)
            if gpu.power_w < LOW * usual and gpu.temperature_c >= heat + HOTTER_C:
                says = f"{_named(gpu)} draws {gpu.power_w:.0f} W at {gpu.temperature_c} C"
                says += f", busy peers {usual:.0f} W at {heat:.0f} C"
                yield Hypothesis(
                    CAUSE,
                    _subject(node, gpu),
                    f"On {node or 'a node'} {says}",
                    (Reason(says, there.refs[key]),),
                    ("slowed_and_hot", "peers_not_throttled"),
                    would_change=("its clock, which would be as high as its peers'",),
                    nodes=frozenset({node}),
                )


def _sampled(evidence: Evidence) -> Iterator[Hypothesis]:
    """nvidia-smi dmon over seconds, the same way."""
    every = [(seen, one) for seen in evidence.of("gpu.dmon") for one in seen.facts.gpus]
    for seen, one in every:
        if one.clock_mhz is None or (one.sm_percent or 0) < BUSY:
            continue
        peers = [o.clock_mhz for _, o in every if o is not one and o.clock_mhz and (o.sm_percent or 0) >= BUSY]
        if len(peers) >= LEAST and one.clock_mhz < LOW * median(peers):
            heat = f" at {one.temperature_c:.0f} C" if one.temperature_c is not None else ""
            says = (
                f"GPU {one.gpu} runs at {one.clock_mhz:.0f} MHz{heat} where busy peers run at {median(peers):.0f} MHz"
            )
            yield Hypothesis(
                CAUSE,
                {"node": seen.node, "gpu": one.gpu} if seen.node else {"gpu": one.gpu},
                f"On {seen.node or 'a node'} {says}",
                (Reason(f"{says} ({one.samples} samples)", seen.ref),),
                ("clock_below_peers",),
                would_change=("the same clock as its peers at a second look",),
                nodes=frozenset({seen.node}),
            )


def _subject(node: str, gpu: Gpu) -> dict[str, str | int]:
    subject: dict[str, str | int] = {"node": node} if node else {}
    if gpu.bus_id:
        subject["bus_id"] = gpu.bus_id
    return subject if gpu.index is None else subject | {"gpu": gpu.index}


def _key(there: NodeGpus, gpu: Gpu) -> str:
    return next(key for key, one in there.gpus.items() if one is gpu)


RULE = Rule((CAUSE,), judge)
