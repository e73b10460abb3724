"""A GPU that does not come to what all others run, or is odd beside them, without any error: found by exclusion.

Source   torch's flight recorder: "scheduled" until the kernel starts on the device, where starts are recorded; a GPU in
         a collective that waits is fully utilised at little power, so the odd one is told by its peers, not by a number
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from probes.catalog._gpu_facts import Gpu
from probes.catalog._host_facts import Sampled
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.gpus import gpus_of
from probes.diagnosis.job import RankView
from probes.diagnosis.stalls import Stall
from probes.diagnosis.suspects import ranks_said, shared

CAUSE = "gpu.silent_stall"
MISSING = "fw.rank_missing_collective"
At = tuple[Gpu, str, str]  # with its node and its reading
LEAST = 4  # GPUs that are compared
APART = 50.0  # points of utilisation; judgement
ALIKE = 15.0  # points within which the others lie; judgement
LESS, MORE = 0.6, 1.6  # of the others' median power; judgement
PEERS = 7  # others that all spin; judgement: of a whole node at least
IDLE, FULL = 5, 95  # percent of use; judgement
SPIN = 2.5  # of an idle GPU's power; recorded H100: 120 to 200 W in a collective, 70 to 85 W idle, over 500 W at work
EXCLUDES = ("kernel.xid", "kernel.sxid", "kernel.gpu_off_bus", "gpu.lost", "gpu.no_answer", "gpu.driver_problem",
    "gpu.driver_no_answer")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Odd:
    gpu: Gpu
    node: str
    ref: str
    says: str
    spun_at: bool = False  # the others are fully used at little power, as who waits in a collective


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    if evidence.suspects or evidence.stalls.cycle or next(evidence.job.said("traceback", "cuda_error"), None):
        return
    if evidence.findings(*EXCLUDES):
        return  # a GPU that says what is wrong is no silent one
    odd = _odd(evidence)
    behind: dict[int, tuple[Stall, list[int]]] = {}
    for rank, stall in evidence.stalls.behind.items():
        behind.setdefault(id(stall), (stall, []))[1].append(rank)
    for stall, ranks in behind.values():
        yield _behind(evidence, stall, ranks, odd)
    stands = any(stall.complete for stall in evidence.stalls.all)
    if odd is not None and not behind and (stands or _all_wait(evidence)):
        yield _only_odd(evidence, odd, ("gpu_odd_among_peers", *(("launched_everywhere",) if stands else ())))
    elif odd is not None and odd.spun_at and not behind and not _seen_otherwise(evidence):
        yield _only_odd(evidence, odd, ("gpu_idle_among_spinning",))
        yield _its_rank(odd)


def _behind(evidence: Evidence, stall: Stall, ranks: list[int], odd: Odd | None) -> Hypothesis:
    views = [evidence.job.view(rank) for rank in sorted(ranks)]
    runs = [rank for rank in stall.waiting if rank not in stall.behind]
    because = [
        Reason(f"{ranks_said(runs)} run {stall.called}", evidence.job.view(min(runs)).ref("rank.flight_recorder")),
        Reason(
            f"{ranks_said(ranks)} {'has' if len(ranks) == 1 else 'have'} enqueued it, and it has not started there",
            views[0].ref("rank.flight_recorder"),
        ),
    ]
    subject, called = shared(views)
    signals = ["not_started_on_device"]
    if odd is not None and any(_is_of(odd, view) for view in views):
        because.append(Reason(odd.says, odd.ref))
        signals.append("gpu_odd_among_peers")
        subject = {**subject, **_place(odd.gpu)}
    return Hypothesis(
        CAUSE,
        subject,
        f"{called}: the device has not come to {stall.called}, which the others run",
        tuple(because),
        tuple(signals),
        against=(Reason("work that the program enqueued before it may take long", because[1].reading),),
        would_change=("a later dump in which it has started there", "an error of that GPU in the kernel log"),
        ranks=frozenset(ranks),
        nodes=frozenset(view.node for view in views),
    )


def _place(gpu: Gpu) -> dict[str, str | int]:
    place: dict[str, str | int] = {"bus_id": gpu.bus_id} if gpu.bus_id else {}
    return place if gpu.index is None else {**place, "gpu": gpu.index}


def _its_rank(odd: Odd) -> Hypothesis:
    """What else makes one GPU idle while all others wait: its process gives it no work."""
    return Hypothesis(
        MISSING,
        {"node": odd.node} if odd.node else {},
        f"The rank on GPU {odd.gpu.index} of {odd.node or 'a node'} may not have come to what the others wait in",
        (Reason(odd.says, odd.ref),),
        ("its_gpu_idle_among_spinning",),
        would_change=("a stack of that rank, which shows whether it waits for its GPU or is elsewhere",),
        nodes=frozenset({odd.node}),
    )


def _only_odd(evidence: Evidence, odd: Odd, signals: tuple[str, ...]) -> Hypothesis:
    view = next((view for view in evidence.job.ranks.values() if _is_of(odd, view)), None)
    subject: dict[str, str | int] = {"node": odd.node, **_place(odd.gpu)} if odd.node else _place(odd.gpu)
    if view is not None:
        subject["rank"] = view.rank
    return Hypothesis(
        CAUSE,
        subject,
        f"GPU {odd.gpu.index} of {odd.node or 'a node'} is unlike all others, without any error: {odd.says}",
        (Reason(odd.says, odd.ref),),
        signals,
        would_change=("the same GPU like its peers at a second look", "an error of that GPU in the kernel log"),
        ranks=frozenset({view.rank}) if view is not None else frozenset(),
        nodes=frozenset({odd.node}),
    )


def _seen_otherwise(evidence: Evidence) -> bool:
    """Whether recorders, stacks or steps tell more of whether the job stands than its GPUs' load does."""
    seen = any(view.dump is not None or view.waits is not None for view in evidence.job.ranks.values())
    return seen or next(evidence.job.said("progress"), None) is not None


def _all_wait(evidence: Evidence) -> bool:
    """Whether the stacks show every rank in communication or in its device."""
    kinds = [waits.kind for view in evidence.job.ranks.values() if (waits := view.waits) is not None]
    return len(kinds) > 1 and all(kind in ("collective", "backward", "device sync", "barrier", "p2p") for kind in kinds)


def _is_of(odd: Odd, view: RankView) -> bool:
    """Whether a rank uses that GPU: by its process, else by its local rank where nothing renumbers devices."""
    if view.node != odd.node:
        return False
    if odd.gpu.pids and view.pid is not None:
        return view.pid in odd.gpu.pids
    place = view.place
    return place is not None and not place.visible and place.local_rank == odd.gpu.index


def _odd(evidence: Evidence) -> Odd | None:
    """The one GPU that is unlike all others of the job's nodes."""
    sampled = {(seen.node, one.gpu): (one, seen.ref) for seen in evidence.of("gpu.dmon") for one in seen.facts.gpus}
    found: list[At] = []
    for node, there in gpus_of(evidence).items():
        for key, gpu in there.gpus.items():
            at, ref = (node, gpu.index if gpu.index is not None else -1), there.refs[key]
            if gpu.utilisation_percent is None and at in sampled:
                one, ref = sampled[at]
                gpu = _with_samples(gpu, one)
            sampled.pop(at, None)
            if gpu.answered:
                found.append((gpu, node, ref))
    found += [(_with_samples(Gpu("", one.gpu), one), node, ref) for (node, _), (one, ref) in sampled.items()]
    used = [one for one in found if one[0].pids] or found
    return _by_load(used) or _by_power(used)


def _with_samples(gpu: Gpu, one: Sampled) -> Gpu:
    used = None if one.sm_percent is None else round(one.sm_percent)
    return dataclasses.replace(gpu, utilisation_percent=used, power_w=one.power_w)


def _by_load(gpus: list[At]) -> Odd | None:
    known = sorted(
        (gpu.utilisation_percent, at) for at, (gpu, _, _) in enumerate(gpus) if gpu.utilisation_percent is not None
    )
    if len(known) < max(LEAST, len(gpus)):
        return None
    for (number, at), others in ((known[0], known[1:]), (known[-1], known[:-1])):
        alike = others[-1][0] - others[0][0] <= ALIKE
        if alike and min(abs(number - others[0][0]), abs(number - others[-1][0])) >= APART:
            gpu, node, ref = gpus[at]
            middle = statistics.median(one for one, _ in others)
            says = f"GPU {gpu.index} is {number} % utilised, the {len(others)} others {middle:.0f} %"
            spun = number <= IDLE and _spin([gpus[place][0] for _, place in others], gpu)
            if spun:
                watts = statistics.median(one.power_w or 0 for one, _, _ in gpus)
                says += f" at only {watts:.0f} W: they wait in a collective"
            return Odd(gpu, node, ref, says, spun)
    return None


def _spin(others: list[Gpu], odd: Gpu) -> bool:
    """Whether the others are busy with waiting only: fully used, at hardly more power than one that does nothing but
    has the job's memory."""
    watts = [one.power_w for one in others if one.power_w is not None]
    memory = [one.memory_used_mib for one in others if one.memory_used_mib is not None]
    if len(others) < PEERS or len(watts) < len(others) or not odd.power_w:
        return False
    if memory and (odd.memory_used_mib is None or odd.memory_used_mib * 2 < statistics.median(memory)):
        return False  # it is none of the job's
    full = all((one.utilisation_percent or 0) >= FULL for one in others)
    return full and statistics.median(watts) < SPIN * odd.power_w


def _by_power(gpus: list[At]) -> Odd | None:
    known = sorted((gpu.power_w, at) for at, (gpu, _, _) in enumerate(gpus) if gpu.power_w is not None)
    if len(known) < max(LEAST, len(gpus)):
        return None
    for (watts, at), others in ((known[0], known[1:]), (known[-1], known[:-1])):
        middle = statistics.median(one for one, _ in others)
        alike = all(0.8 * middle <= one <= 1.2 * middle for one, _ in others)
        if middle > 0 and alike and not LESS * middle < watts < MORE * middle:
            gpu, node, ref = gpus[at]
            says = f"GPU {gpu.index} draws {watts:.0f} W, the {len(others)} others about {middle:.0f} W"
            return Odd(gpu, node, ref, says)
    return None


RULE = Rule((CAUSE, MISSING), judge)
