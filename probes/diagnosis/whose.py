"""Which rank a profile or a summary is of: by its file's name or folder, or by the process that they name.

Shape    rank_of(evidence, seen) -> rank, or None where nothing says it
Errors   none
"""

from __future__ import annotations

import re

from probes.catalog.stacks.profile import rank_named
from probes.diagnosis.core import Evidence, Seen


def rank_of(evidence: Evidence, seen: Seen) -> int | None:
    """A process counts where files place it with one rank only: pids repeat on other nodes."""
    said: int | None = getattr(seen.facts, "rank", None)
    if said is not None:
        return said
    if (rank := rank_named(seen.ref)) is not None:
        return rank
    numbers = {int(one) for one in re.findall(r"\d{3,8}", seen.ref.rpartition("/")[2][-200:])}
    if not numbers:
        return None
    found = {
        rank
        for rank, places in evidence.job.processes.items()
        for node, pid in places
        if pid in numbers and (not seen.node or not node or node == seen.node)
    }
    return found.pop() if len(found) == 1 else None
