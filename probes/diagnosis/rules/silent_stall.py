"""A GPU that does not come to what all others run, or is odd beside them, without any error: found by exclusion.

Source   torch's flight recorder: "scheduled" until the kernel starts on the device, where starts are recorded; a GPU in
         a collective that waits is fully utilised at little power, so the odd one is told by its peers, not by a number
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.gpu.facts import Gpu
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.log_suspects import all_timed_out
from probes.diagnosis.odd_gpus import Odd, is_of, its_rank, odd_gpu
from probes.diagnosis.stalls import Stall
from probes.diagnosis.suspects import ranks_said, shared
from probes.diagnosis.times import STEP_S, ZONES_S, apart, times_of

CAUSE = "gpu.silent_stall"
MISSING = "fw.rank_missing_collective"
EXCLUDES = ("kernel.xid", "kernel.sxid", "kernel.gpu_off_bus", "gpu.lost", "gpu.no_answer", "gpu.driver_problem",
    "gpu.driver_no_answer")  # fmt: skip


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    if evidence.suspects or evidence.stalls.cycle or next(evidence.job.said("traceback", "cuda_error"), None):
        return
    if evidence.findings(*EXCLUDES):
        return  # a GPU that says what is wrong is no silent one
    odd = odd_gpu(evidence)
    behind: dict[int, tuple[Stall, list[int]]] = {}
    for rank, stall in evidence.stalls.behind.items():
        behind.setdefault(id(stall), (stall, []))[1].append(rank)
    for stall, ranks in behind.values():
        yield _behind(evidence, stall, ranks, odd)
    stands = any(stall.complete for stall in evidence.stalls.all) or all_timed_out(evidence)
    if odd is not None and not behind and (stands or _all_wait(evidence)):
        signals = ("gpu_odd_among_peers", *(("launched_everywhere",) if stands else ()))
        more = _of_its_stack(evidence, odd) if odd.spun_at else ""
        yield _only_odd(evidence, odd, (*signals, "gpu_idle_among_spinning", more) if more else signals)
    elif odd is not None and odd.spun_at and not behind and not _seen_otherwise(evidence, odd):
        more = _of_its_stack(evidence, odd)
        yield _only_odd(evidence, odd, ("gpu_idle_among_spinning", *((more,) if more else ())))
        if not more:
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
    if odd is not None and any(is_of(odd, view) for view in views):
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
    rank = its_rank(evidence, odd)
    subject: dict[str, str | int] = {"node": odd.node, **_place(odd.gpu)} if odd.node else _place(odd.gpu)
    if rank is not None:
        subject["rank"] = rank
    return Hypothesis(
        CAUSE,
        subject,
        f"GPU {odd.gpu.index} of {odd.node or 'a node'} is unlike all others, without any error: {odd.says}",
        (Reason(odd.says, odd.ref),),
        signals,
        would_change=("the same GPU like its peers at a second look", "an error of that GPU in the kernel log"),
        ranks=frozenset({rank}) if rank is not None else frozenset(),
        nodes=frozenset({odd.node}),
    )


def _seen_otherwise(evidence: Evidence, odd: Odd) -> bool:
    """Whether recorders, stacks or steps tell more of whether the job stands than its GPUs' load does."""
    views = list(evidence.job.ranks.values())
    if any(view.dump is not None for view in views):
        return True
    if _waits_for_it(evidence, odd):
        return False
    if any(view.waits is not None for view in views) and not _stack_as_the_others(evidence, odd):
        return True
    if next(evidence.job.said("watchdog_timeout"), None) is not None:
        return False  # steps that a log tells are those before
    return next(evidence.job.said("progress"), None) is not None and not _after_the_last_step(evidence, odd)


def _after_the_last_step(evidence: Evidence, odd: Odd) -> bool:
    """Whether the GPUs were looked at well after the last step that logs tell. Printed times may differ by a zone."""
    utc, printed = times_of(evidence).last
    last = utc if utc is not None else printed
    return odd.seen_at is not None and last is not None and STEP_S < apart(odd.seen_at, last) < ZONES_S


def _of_its_stack(evidence: Evidence, odd: Odd) -> str:
    if _stack_as_the_others(evidence, odd):
        return "its_stack_as_the_others"
    return "its_rank_waits_for_it" if _waits_for_it(evidence, odd) else ""


def _stack_as_the_others(evidence: Evidence, odd: Odd) -> bool:
    """Whether its rank is at the same line of the program as another one whose GPU runs: it waits for its own GPU."""
    rank = its_rank(evidence, odd)
    waits = evidence.job.ranks[rank].waits if rank in evidence.job.ranks else None
    if waits is None:
        return False
    others = [view.waits for view in evidence.job.ranks.values() if view.rank != rank and view.waits is not None]
    return bool(others) and all((one.kind, one.at) == (waits.kind, waits.at) for one in others)


def _waits_for_it(evidence: Evidence, odd: Odd) -> bool:
    """Whether the stack of its rank is in a wait for the device: it asks for work to end, and its GPU does none."""
    rank = its_rank(evidence, odd)
    waits = evidence.job.ranks[rank].waits if rank in evidence.job.ranks else None
    return waits is not None and waits.kind == "device sync"


def _all_wait(evidence: Evidence) -> bool:
    """Whether the stacks show every rank in communication or in its device."""
    kinds = [waits.kind for view in evidence.job.ranks.values() if (waits := view.waits) is not None]
    return len(kinds) > 1 and all(kind in ("collective", "backward", "device sync", "barrier", "p2p") for kind in kinds)


RULE = Rule((CAUSE, MISSING), judge)
