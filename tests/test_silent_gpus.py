"""A GPU that stopped without any error: told by its peers, and only where nothing else explains it."""

from __future__ import annotations

from probes.core import Finding
from probes.diagnosis import Seen, diagnose
from tests.support.rank_facts import dump, gpus, mapped, recorders, stack, stacked

RANKS = list(range(8))
REDUCE = ("all_reduce", 1024)
CAUSE = "gpu.silent_stall"
ALIKE = (100, 210.0)


def everywhere() -> Seen:
    return recorders(*(dump(r, {"g": (RANKS, [REDUCE], True)}) for r in RANKS))


def odd(load: int, watts: float, at: int = 5) -> Seen:
    rows = [ALIKE] * 8
    rows[at] = (load, watts)
    return gpus("n", *rows, pids=[100 + rank for rank in RANKS])


def chance(*seen: Seen) -> float:
    return sum(one.probability for one in diagnose(seen).ranked if one.hypothesis.cause == CAUSE)


def test_one_gpu_unlike_all_others_while_all_wait_is_named_with_its_rank() -> None:
    found = diagnose([everywhere(), odd(0, 90.0), mapped("n", RANKS, 8)]).verdict.hypothesis
    assert (found.cause, found.subject["gpu"], found.subject["rank"]) == (CAUSE, 5, 5)
    assert "GPU 5 is 0 % utilised, the 7 others 100 %" in found.says
    found = diagnose([everywhere(), odd(100, 95.0, at=2), mapped("n", RANKS, 8)]).verdict.hypothesis
    assert (found.subject["gpu"], found.because[0].says) == (2, "GPU 2 draws 95 W, the 7 others about 210 W")


def test_gpus_that_are_alike_accuse_nobody() -> None:
    assert chance(everywhere(), gpus("n", *[ALIKE] * 8)) == 0
    assert chance(everywhere(), odd(90, 190.0)) == 0
    assert chance(everywhere(), gpus("n", (0, 90.0), (0, 90.0), *[ALIKE] * 6)) == 0, "two are no odd one"


def test_a_gpu_is_idle_where_its_rank_is_late_for_another_reason() -> None:
    late = recorders(*(dump(r, {"g": (RANKS, [REDUCE] if r == 5 else [REDUCE, REDUCE], r != 5)}) for r in RANKS))
    assert chance(late, odd(0, 90.0)) == 0
    stuck = stacked("n", *(stack(r, "collective") for r in RANKS if r != 5), stack(5, "user code"))
    assert chance(stuck, odd(0, 90.0)) == 0


def test_a_gpu_that_says_what_is_wrong_is_not_silent() -> None:
    xid = Finding("kernel.xid", "bad", "GPU 0000:06:00 Xid 79", {"bus_id": "0000:06:00", "xid": 79})
    log = Seen("n/host.kernel_log", "n", "host.kernel_log", "ok", "", None, (xid,))
    assert chance(everywhere(), odd(0, 90.0), log) == 0


def test_nothing_stands_so_an_idle_gpu_means_nothing() -> None:
    goes_on = recorders(*(dump(r, {"g": (RANKS, [REDUCE], False)}) for r in RANKS))
    assert chance(goes_on, odd(0, 90.0)) == 0
