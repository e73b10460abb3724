"""Process groups as their ranks recorded them: the same group of several dumps.

Shape    recorded_groups(evidence) -> groups that at least two ranks recorded
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from probes.catalog.recorder.facts import Group
from probes.diagnosis.core import Evidence
from probes.diagnosis.job import RankView


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """`name` is what people call it; `members` its global ranks, None where no dump says them."""

    name: str
    members: tuple[int, ...] | None
    ranks: Mapping[int, tuple[RankView, Group]]


def recorded_groups(evidence: Evidence) -> list[RecordedGroup]:
    """Of one name there may be many groups, as of the tensor-parallel ones: their members tell them apart."""
    found: dict[tuple[str, object], dict[int, tuple[RankView, Group]]] = {}
    for rank, view in evidence.job.ranks.items():
        for group in view.dump.groups if view.dump is not None else ():
            found.setdefault((group.desc or group.name, group.spans), {})[rank] = (view, group)
    return [
        RecordedGroup(name, next(iter(ranks.values()))[1].ranks, ranks)
        for (name, _), ranks in found.items()
        if len(ranks) > 1
    ]
