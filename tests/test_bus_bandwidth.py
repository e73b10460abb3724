"""Times of collectives as bus bandwidth. Right values: by hand from the factors of nccl-tests (doc/PERFORMANCE.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from probes.catalog.recorder.facts import Dump, Signature
from probes.diagnosis.bandwidth import Speed, bus_bandwidth, moved, speeds_of
from probes.diagnosis.core import Evidence
from tests.support.rank_facts import dump, recorders

MIB = 1 << 20
FLOATS = 64 * MIB // 4  # of all_reduce: 64 MiB


def timed(rank: int, groups: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> Dump:
    """A rank whose collectives of 64 MiB took so many ms. Per group: members and times."""
    one = dump(rank, {name: (ranks, [("all_reduce", FLOATS)] * len(ms), False) for name, (ranks, ms) in groups.items()})
    found = []
    for group, (_, ms) in zip(one.groups, groups.values(), strict=True):
        entries = tuple(replace(entry, duration_ms=took) for entry, took in zip(group.last, ms, strict=True))
        found.append(replace(group, last=entries))
    return replace(one, groups=tuple(found))


def speeds(*dumps: Dump) -> tuple[Speed, ...]:
    return speeds_of(Evidence([recorders(*dumps)]))


@pytest.mark.parametrize(
    ("op", "members", "expected"),
    [
        ("all_reduce", 8, 175.0),  # 1e9 / 0.01 s = 100 GB/s, 2 x 7/8
        ("all_gather_base", 8, 87.5),
        ("reduce_scatter_base", 4, 75.0),
        ("all_to_all_base", 2, 50.0),
        ("broadcast", 8, 100.0),
        ("reduce", 8, 100.0),
    ],
)
def test_each_operation_has_the_factor_of_nccl_tests(op: str, members: int, expected: float) -> None:
    assert bus_bandwidth(op, 10**9, members, 0.01) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("op", "sizes", "expected"),
    [
        ("all_reduce", (((1024, 4),), ((1024, 4),)), 8192),
        ("_allgather_base", (((1024,),), ((8192,),)), 16384),  # what each of 8 ranks has in the end
        ("all_gather", (((1024,),), ((1024,),) * 8), 16384),
        ("_reduce_scatter_base", (((8192,),), ((1024,),)), 16384),  # what each has at first
        ("reduce_scatter", (((1024,),) * 8, ((1024,),)), 16384),
        ("barrier", (((1,),), ((1,),)), None),
    ],
)
def test_bytes_are_counted_as_nccl_tests_does(
    op: str, sizes: tuple[tuple[tuple[int, ...], ...], ...], expected: int | None
) -> None:
    inputs, outputs = sizes
    signature = Signature("nccl", op, inputs, ("BFloat16",), outputs, ("BFloat16",), 1, "x")
    assert moved(signature, 8) == expected


def test_of_more_tensors_than_the_recorder_keeps_nothing_is_said() -> None:
    eight = ((1024,),) * 8
    signature = Signature("nccl", "allreduce_coalesced", eight, ("Float",) * 8, eight, ("Float",) * 8, 8, "x")
    assert moved(signature, 4) == 8 * 4096
    assert moved(replace(signature, tensors=200), 4) is None
    assert moved(replace(signature, input_dtypes=("Fancy",) * 8), 4) is None


def test_the_time_of_a_transfer_is_that_of_the_rank_which_waited_for_nobody() -> None:
    ranks = [0, 1]
    found = speeds(timed(0, {"dp": (ranks, [2.0, 2.0, 52.0])}), timed(1, {"dp": (ranks, [40.0, 2.0, 2.0])}))
    (one,) = found
    assert one.seconds == pytest.approx(0.002) and one.whole
    assert one.gbs == pytest.approx(64 * MIB / 0.002 / 1e9)  # 2 x 1/2 = 1
    assert one.last is None, "they take turns"
    assert "all_reduce of 64 MiB among 2 ranks of dp: 33.6 GB/s of bus bandwidth, 2 ms, 3 times" in one.says


def test_the_rank_that_came_last_again_and_again_is_named() -> None:
    late = [timed(rank, {"dp": (range(4), [2.0 if rank == 3 else 90.0] * 4)}) for rank in range(4)]
    assert speeds(*late)[0].last == 3 and speeds(*late)[0].says.endswith("; rank 3 came last in most")
    few = [timed(rank, {"dp": (range(4), [2.0 if rank == 3 else 90.0] * 2)}) for rank in range(4)]
    assert speeds(*few)[0].last is None


def test_where_members_are_missing_it_may_have_been_quicker() -> None:
    found = speeds(*(timed(rank, {"dp": (range(4), [2.0] * 3)}) for rank in range(3)))
    assert not found[0].whole and "at least 50.3 GB/s" in found[0].says  # 64 MiB / 2 ms x 1.5


def test_a_group_that_is_slower_than_its_like_comes_first() -> None:
    groups = {f"tp{n}": list(range(2 * n, 2 * n + 2)) for n in range(4)}
    dumps = [
        timed(rank, {name: (ranks, [9.0 if name == "tp2" else 2.0] * 3)})
        for name, ranks in groups.items()
        for rank in ranks
    ]
    first, *others = speeds(*dumps)
    assert first.slow and first.ranks == (4, 5) and "; 33.6 GB/s in other groups" in first.says
    assert not any(one.slow for one in others)


def test_groups_of_one_name_with_other_members_are_groups_of_their_own() -> None:
    dumps = [timed(rank, {"tp": ([0, 1] if rank < 2 else [2, 3], [2.0 + rank // 2] * 3)}) for rank in range(4)]
    assert {one.ranks: one.seconds for one in speeds(*dumps)} == {(0, 1): 0.002, (2, 3): 0.003}


def test_small_collectives_and_recorders_without_times_tell_no_bandwidth() -> None:
    small = [dump(rank, {"g": ([0, 1], [("all_reduce", 64)] * 3, False)}) for rank in (0, 1)]
    assert speeds(*small) == ()
