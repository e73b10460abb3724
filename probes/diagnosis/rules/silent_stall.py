"""A GPU that does not come to what all others run, or is odd beside them, without any error: found by exclusion.

Source   torch's flight recorder: "scheduled" until the kernel starts on the device, where starts are recorded; a GPU in
         a collective that waits is fully utilised at little power, so the odd one is told by its peers, not by a number
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from probes.catalog._gpu_facts import Gpu
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import RankView
from probes.diagnosis.stalls import Stall
from probes.diagnosis.suspects import ranks_said, shared

CAUSE = "gpu.silent_stall"
LEAST = 4  # GPUs that are compared
APART = 50.0  # points of utilisation; judgement
ALIKE = 15.0  # points within which the others lie; judgement
LESS, MORE = 0.6, 1.6  # of the others' median power; judgement
EXCLUDES = ("kernel.xid", "kernel.sxid", "kernel.gpu_off_bus", "gpu.lost", "gpu.no_answer", "gpu.driver_problem",
    "gpu.driver_no_answer")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Odd:
    gpu: Gpu
    seen: Seen
    says: str


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
        yield _only_odd(evidence, odd, stands)


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
        because.append(Reason(odd.says, odd.seen.ref))
        signals.append("gpu_odd_among_peers")
        subject = {**subject, "gpu": odd.gpu.index or 0, "bus_id": odd.gpu.bus_id}
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


def _only_odd(evidence: Evidence, odd: Odd, stands: bool) -> Hypothesis:
    view = next((view for view in evidence.job.ranks.values() if _is_of(odd, view)), None)
    subject: dict[str, str | int] = {"node": odd.seen.node, "bus_id": odd.gpu.bus_id}
    if odd.gpu.index is not None:
        subject["gpu"] = odd.gpu.index
    if view is not None:
        subject["rank"] = view.rank
    return Hypothesis(
        CAUSE,
        subject,
        f"GPU {odd.gpu.index} of {odd.seen.node or 'a node'} is unlike all others, without any error: {odd.says}",
        (Reason(odd.says, odd.seen.ref),),
        ("gpu_odd_among_peers", *(("launched_everywhere",) if stands else ())),
        would_change=("the same GPU like its peers at a second look", "an error of that GPU in the kernel log"),
        ranks=frozenset({view.rank}) if view is not None else frozenset(),
        nodes=frozenset({odd.seen.node}),
    )


def _all_wait(evidence: Evidence) -> bool:
    """Whether the stacks show every rank in communication or in its device."""
    kinds = [waits.kind for view in evidence.job.ranks.values() if (waits := view.waits) is not None]
    return len(kinds) > 1 and all(kind in ("collective", "backward", "device sync", "barrier", "p2p") for kind in kinds)


def _is_of(odd: Odd, view: RankView) -> bool:
    """Whether a rank uses that GPU: by its process, else by its local rank where nothing renumbers devices."""
    if view.node != odd.seen.node:
        return False
    if odd.gpu.pids and view.pid is not None:
        return view.pid in odd.gpu.pids
    place = view.place
    return place is not None and not place.visible and place.local_rank == odd.gpu.index


def _odd(evidence: Evidence) -> Odd | None:
    """The one GPU that is unlike all others of the job's nodes."""
    found = [(gpu, seen) for seen in evidence.of("gpu.state") for gpu in seen.facts.gpus if gpu.answered]
    used = [(gpu, seen) for gpu, seen in found if gpu.pids] or found
    return _by_load(used) or _by_power(used)


def _by_load(gpus: list[tuple[Gpu, Seen]]) -> Odd | None:
    known = sorted(
        ((gpu.utilisation_percent, at) for at, (gpu, _) in enumerate(gpus) if gpu.utilisation_percent is not None)
    )
    if len(known) < max(LEAST, len(gpus)):
        return None
    for (number, at), others in ((known[0], known[1:]), (known[-1], known[:-1])):
        alike = others[-1][0] - others[0][0] <= ALIKE
        if alike and min(abs(number - others[0][0]), abs(number - others[-1][0])) >= APART:
            gpu, seen = gpus[at]
            middle = statistics.median(one for one, _ in others)
            return Odd(gpu, seen, f"GPU {gpu.index} is {number} % utilised, the {len(others)} others {middle:.0f} %")
    return None


def _by_power(gpus: list[tuple[Gpu, Seen]]) -> Odd | None:
    known = sorted(((gpu.power_w, at) for at, (gpu, _) in enumerate(gpus) if gpu.power_w is not None))
    if len(known) < max(LEAST, len(gpus)):
        return None
    for (watts, at), others in ((known[0], known[1:]), (known[-1], known[:-1])):
        middle = statistics.median(one for one, _ in others)
        alike = all(0.8 * middle <= one <= 1.2 * middle for one, _ in others)
        if middle > 0 and alike and not LESS * middle < watts < MORE * middle:
            gpu, seen = gpus[at]
            return Odd(gpu, seen, f"GPU {gpu.index} draws {watts:.0f} W, the {len(others)} others about {middle:.0f} W")
    return None


RULE = Rule((CAUSE,), judge)
