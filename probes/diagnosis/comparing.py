"""What the ranks of one group ran, place by place, and where they first differ.

Source   the operations' contracts in torch.distributed; NCCL compares counts of elements, never shapes
Shape    difference(groups, dumps, most) -> Difference or None
Errors   none: a place that a dump no longer holds is left out of the comparison

Ranks with the same history are compared once, so a thousand ranks cost little more than one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from probes.catalog.recorder.facts import Dump, Group, Signature

# One operation has had several names in torch: today's, and those of its C++ and of older versions.
ALIASES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    **dict.fromkeys(("allgather_base", "all_gather_into_tensor", "all_gather_single"), "all_gather_base"),
    **dict.fromkeys(("reduce_scatter_tensor", "reduce_scatter_single"), "reduce_scatter_base"),
    **dict.fromkeys(("alltoall_base", "all_to_all_single"), "all_to_all_base"),
    "allreduce_coalesced": "all_reduce_coalesced",
}
# Operations in which every rank of the group passes as many elements of one type; in the others a root differs, or each
# rank may.
SAME_SIZES = ("all_reduce", "broadcast", "all_gather_base", "reduce_scatter_base", "reduce", "barrier",
    "all_reduce_coalesced")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which ranks ran different things. `most`: what the majority ran, None where none is one."""

    seq: int
    ran: dict[int, Signature]
    most: Signature | None
    odd: dict[int, Signature]


def operation(name: str) -> str:
    """One name for each operation, whatever the version of torch calls it."""
    plain = name.lower().lstrip("_")
    return ALIASES.get(plain, plain)


def comparable(signature: Signature) -> Hashable:
    """What must be the same on every rank: always the operation, and where no rank is special also counts and types."""
    op = operation(signature.op)
    if op not in SAME_SIZES:
        return (op,)
    return (op, tuple(math.prod(size) for size in signature.input_sizes), signature.input_dtypes, signature.tensors)


def difference(groups: Mapping[int, Group], dumps: Mapping[int, Dump], last: int, members: int) -> Difference | None:
    """Where, up to collective `last`, the ranks of a group of so many `members` first ran different things."""
    alike = _alike(groups, dumps)
    if len(alike) < 2:
        return None
    places: dict[int, dict[int, list[tuple[int, ...]]]] = {}
    for (first, marks), ranks in alike.items():
        for seq, mark in enumerate(marks, first):
            if mark >= 0 and seq <= last:
                places.setdefault(seq, {}).setdefault(mark, []).append(ranks)
    differing = [seq for seq, by_mark in places.items() if len(by_mark) > 1]
    if not differing:
        return None
    seq = min(differing)
    sides = sorted(([r for ranks in some for r in ranks] for some in places[seq].values()), key=len, reverse=True)
    ran = {rank: _ran(groups[rank], dumps[rank], seq) for ranks in sides for rank in ranks}
    if len(sides[0]) == len(sides[1]) or 2 * len(ran) < members:  # a draw, or too few dumps to call it a majority
        return Difference(seq, ran, None, {})
    return Difference(seq, ran, ran[sides[0][0]], {rank: ran[rank] for ranks in sides[1:] for rank in ranks})


def _ran(group: Group, dump: Dump, seq: int) -> Signature:
    return dump.signatures[group.history[seq - (group.history_first or 0)][0]]


def _alike(
    groups: Mapping[int, Group], dumps: Mapping[int, Dump]
) -> dict[tuple[int, tuple[int, ...]], tuple[int, ...]]:
    """Ranks by their history: its first place, and a number for what was run at each; -1 where it is not known, or
    where several were coalesced, whose parts may come in any order."""
    known: dict[Hashable, int] = {}
    found: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for rank, group in groups.items():
        dump = dumps[rank]
        if group.history_first is None or not dump.signatures:
            continue
        used = {marks[0] for marks in group.history if len(marks) == 1}
        number = {at: known.setdefault(comparable(dump.signatures[at]), len(known)) for at in used}
        marks = tuple(number[one[0]] if len(one) == 1 else -1 for one in group.history)
        found.setdefault((group.history_first, marks), []).append(rank)
    return {key: tuple(ranks) for key, ranks in found.items()}
