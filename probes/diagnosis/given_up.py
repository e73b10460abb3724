"""Collectives that gloo counts as ended though they cannot have: their limit ran out, or a connection broke.

Source   torch's recorder retires a gloo entry when its work ends, also with an error (measured with torch 2.13:
         a limit of 15 s ran out on five ranks, and two of the dumps at exit showed the failed call as retired)
Shape    given_up(key, groups, dumps, tells) -> {rank: the entry}
Errors   none

What every member must enter cannot have ended while a member has not entered it. It counts for a rank's newest
operation only: a rank that went on is not held there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from probes.catalog.recorder.facts import Dump, Entry, Group
from probes.diagnosis.comparing import operation

# Nobody leaves these before everybody has come. A broadcast's root may, and who sends to the root of a reduce.
NEEDS_ALL = ("all_reduce", "all_gather", "all_gather_base", "reduce_scatter", "reduce_scatter_base", "all_to_all",
    "all_to_all_base", "barrier", "all_reduce_coalesced")  # fmt: skip


def given_up(
    groups: Mapping[int, Group], dumps: Mapping[int, Dump], tells: Callable[[int, float | None], bool]
) -> dict[int, Entry]:
    """`tells`: whether the dump of a rank can prove that it had not entered what others entered at this time."""
    found: dict[int, Entry] = {}
    reached = {rank: group.enqueued or 0 for rank, group in groups.items()}
    lowest = min(reached.values(), default=0)
    for rank, group in groups.items():
        if group.backend != "gloo" or group.pending or reached[rank] == lowest or not group.last:
            continue
        entry = max(group.last, key=lambda one: (_order(one), one.seq or 0))
        if entry.seq != reached[rank] or operation(dumps[rank].signatures[entry.signature].op) not in NEEDS_ALL:
            continue
        newest = all(
            _order(entry) >= _order(one) for other in dumps[rank].groups for one in (*other.last, *other.pending)
        )
        late = any(seq < reached[rank] and tells(one, entry.created_at) for one, seq in reached.items())
        if newest and late:
            found[rank] = entry
    return found


def _order(entry: Entry) -> tuple[float, int]:
    return entry.created_at or 0.0, entry.record or 0
