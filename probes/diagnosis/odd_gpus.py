"""The one GPU that is unlike all others of the job, and which rank uses it.

Source   a GPU in a collective that waits is fully utilised at little power, so the odd one is told by its peers, not by
         a number (nccl#968, nccl#1063)
Shape    odd_gpu(evidence) -> Odd; its_rank(evidence, odd) -> rank
Units    percent, W; `seen_at` seconds, by the node's own clock
Errors   none
"""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass

from probes.catalog.gpu.facts import Gpu
from probes.catalog.host.facts import Sampled
from probes.diagnosis.core import Evidence
from probes.diagnosis.gpus import gpu_states, gpus_of
from probes.diagnosis.job import RankView

At = tuple[Gpu, str, str]  # with its node and its reading
LEAST = 4  # GPUs that are compared
APART = 50.0  # points of utilisation; judgement
ALIKE = 15.0  # points within which the others lie; judgement
LESS, MORE = 0.6, 1.6  # of the others' median power; judgement
PEERS = 7  # others that all spin; judgement: of a whole node at least
IDLE, FULL = 5, 95  # percent of use; judgement
NOTHING = 10  # of the usual memory a tenth: a driver's own needs hundreds of MiB at most; judgement
SPIN = 2.5  # of an idle GPU's power; recorded H100: 120 to 200 W in a collective, 70 to 85 W idle, over 500 W at work


@dataclass(frozen=True, slots=True)
class Odd:
    gpu: Gpu
    node: str
    ref: str
    says: str
    spun_at: bool = False  # the others are fully used at little power, as who waits in a collective
    seen_at: float | None = None  # the last look at its node


def odd_gpu(evidence: Evidence) -> Odd | None:
    """The one GPU that is unlike all others of the job's nodes."""
    sampled = {(seen.node, one.gpu): (one, seen.ref) for seen in evidence.of("gpu.dmon") for one in seen.facts.gpus}
    found: list[At] = []
    for node, there in gpus_of(evidence).items():
        whole = sum(name == node for name, _ in sampled)  # dmon tells every GPU of its node
        for key, gpu in there.gpus.items():
            if gpu.index is None and (whole > len(there.gpus) or not gpu.bus_id):
                continue  # it is one of those that are told with their number, and nothing tells which
            at, ref = (node, -1 if gpu.index is None else gpu.index), there.refs[key]
            if gpu.utilisation_percent is None and at in sampled:
                one, ref = sampled[at]
                gpu = _with_samples(gpu, one)
            sampled.pop(at, None)
            if gpu.answered:
                found.append((gpu, node, ref))
    found += [(_with_samples(Gpu("", one.gpu), one), node, ref) for (node, _), (one, ref) in sampled.items()]
    used = [one for one in found if one[0].pids] or _holding(found)
    odd = _by_load(used) or _by_power(used)
    if odd is None:
        return None
    looks = (*gpu_states(evidence), *evidence.of("gpu.dmon"))
    times = [seen.at for seen in looks if seen.node == odd.node and seen.at is not None]
    return dataclasses.replace(odd, seen_at=max(times, default=None))


def _holding(found: list[At]) -> list[At]:
    """Without GPUs that hold next to nothing where the others hold a job's memory: no rank of it runs there."""
    memory = [gpu.memory_used_mib for gpu, _, _ in found if gpu.memory_used_mib is not None]
    least = statistics.median(memory) / NOTHING if memory else 0
    return [one for one in found if one[0].memory_used_mib is None or one[0].memory_used_mib >= least]


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


def its_rank(evidence: Evidence, odd: Odd) -> int | None:
    """By its process, else by its local rank where nothing renumbers devices, else by the order in which launchers give
    ranks to nodes."""
    view = next((view for view in evidence.job.ranks.values() if is_of(odd, view)), None)
    if view is not None or odd.gpu.index is None:
        return view.rank if view is not None else None
    if (seat := _by_ras(evidence, odd)) is not None:
        return seat
    there = gpus_of(evidence).get(odd.node)
    size = len(there.gpus) if there is not None else 0
    blocks: dict[str, set[int]] = {}
    for one in evidence.job.ranks.values():
        if one.node and size:
            blocks.setdefault(one.node, set()).add(one.rank // size)
            if one.place is not None and one.place.local_rank not in (None, one.rank % size):
                return None
    if odd.node not in blocks or any(len(some) > 1 for some in blocks.values()) or size < LEAST:
        return None
    if len({next(iter(some)) for some in blocks.values()}) < len(blocks):
        return None
    return next(iter(blocks[odd.node])) * size + odd.gpu.index


def _by_ras(evidence: Evidence, odd: Odd) -> int | None:
    """The rank that NCCL itself names with this GPU, in the largest communicator: that of the job."""
    for seen in evidence.of("nccl.ras"):
        largest = max(seen.facts.report.communicators, key=lambda one: one.size or len(one.members), default=None)
        for member in largest.members if largest is not None else ():
            gpu = member.nvml if member.nvml is not None else member.gpu
            if member.host == odd.node and gpu == odd.gpu.index:
                return int(member.rank)
    return None


def is_of(odd: Odd, view: RankView) -> bool:
    """Whether a rank uses that GPU: by its process, else by its local rank where nothing renumbers devices."""
    if view.node != odd.node:
        return False
    if odd.gpu.pids and view.pid is not None:
        return view.pid in odd.gpu.pids
    place = view.place
    return place is not None and not place.visible and place.local_rank == odd.gpu.index
