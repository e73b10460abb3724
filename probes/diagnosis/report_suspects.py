"""Ranks that a printed analysis of flight recorders leaves to blame, see printed.py."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Reason
from probes.diagnosis.printed import printed
from probes.diagnosis.suspects import Suspect, ranks_said

FEW = 8  # judgement, as in collectives.py: where more than one in so many dumps is missing, nobody collected them


def by_report(evidence: Evidence) -> Iterator[Suspect]:
    found = printed(evidence)
    if found.seen is None:
        return
    ref = found.seen.ref
    together = len(found.free)
    for rank, place in found.free.items():
        view = evidence.job.view(rank)
        at = f", where they are at {place.where}" if place.where else ""
        by = "a table of ranks" if place.told == "table" else "torchfrtrace"
        says = f"{by}: {ranks_said(list(place.missing))} missing in {place.called}{at}"
        others = Reason("the other ranks that it calls missing wait in another group", ref)
        because = (Reason(says, ref), others) if _bystanders(found.waiting, place.missing) else (Reason(says, ref),)
        signal = "missing_in_report" if together == 1 else "missing_in_report_with_others"
        if place.told == "table":  # without a state nothing tells that the others wait
            signal = "missing_in_table" if place.state else "behind_in_table"
        yield Suspect(view, f"never entered {place.called}", because, (signal,), waiting=found.waiting)
    world = evidence.job.world_size or 0
    if not found.free and not found.odd and not found.cycle and 0 < len(found.undumped) <= max(1, world // FEW):
        for rank in found.undumped:
            yield Suspect(
                evidence.job.view(rank),
                "has left no flight-recorder dump",
                (Reason(f"torchfrtrace had no dump of {ranks_said(list(found.undumped))}", ref),),
                ("undumped_in_report",),
                against=(Reason("a dump that nobody collected looks the same", ref),),
            )


def _bystanders(waiting: frozenset[int], missing: tuple[int, ...]) -> bool:
    return bool(waiting & set(missing))
