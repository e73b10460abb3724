"""What straggler detectors of training frameworks print, and Megatron's extremes of timers."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.catalog.logs import reduce
from tests.support.hardware import judged

STRAGGLER = "fw.rank_straggler"


def bridge(slow: float) -> str:
    """The layout in which NeMo and Megatron Bridge print scores."""
    rows = f"  Rank=17 Node=cell-02 Score={slow:.2f}\n" + "".join(
        f"  Rank={rank} Node=cell-0{rank // 8} Score=0.{96 + rank % 4}\n" for rank in (1, 9, 20, 30)
    )
    return f"GPU relative performance:\n Worst performing 5/32 ranks:\n{rows}"


def rtt(longest: float, ranks: list[int]) -> str:
    form = (
        "INFO:megatron.core.utils:[2025-01-02 10:0{n}:00] | MnRtt/Rnk: 2000.00ms/8 | MxRtt/Rnk: {ms:.2f}ms/{rank} | \n"
    )
    return "".join(form.format(n=n, ms=longest, rank=rank) for n, rank in enumerate(ranks))


def extremes(late: float) -> str:
    table = (
        " [2025-01-02 10:0{n}:00] iteration {n}/ 90 | elapsed time per iteration (ms): 3000.0 |\n"
        "(min, max) time across ranks (ms):\n    forward-backward ..........: ({own:.2f}, {most:.2f})\n"
        "    all-grads-sync .............: ({least:.2f}, {wait:.2f})\n"
    )
    return "".join(table.format(n=n, own=2000, most=2000 + late, least=4, wait=4 + late) for n in range(1, 6))


@pytest.mark.parametrize("text", [bridge(0.61) * 3, rtt(3100, [30, 30, 30, 30])], ids=["scores", "round trips"])
def test_a_rank_that_is_slow_in_every_report_is_the_straggler(tmp_path: Path, text: str) -> None:
    found = judged(tmp_path, {"train.log": text}).verdict
    assert found.hypothesis.cause == STRAGGLER
    assert found.hypothesis.subject.get("rank") in (17, 30)


@pytest.mark.parametrize(
    "text",
    [bridge(0.95) * 3, rtt(2050, [30, 30, 30, 30]), rtt(3100, [1, 2, 3, 4]), extremes(30.0)],
    ids=["scores alike", "round trips alike", "another rank each time", "extremes alike"],
)
def test_ranks_that_are_alike_are_no_finding(tmp_path: Path, text: str) -> None:
    assert judged(tmp_path, {"train.log": text}).verdict.hypothesis.cause in ("none", "unknown")


def test_extremes_say_that_some_rank_is_late_and_are_not_certain(tmp_path: Path) -> None:
    found = judged(tmp_path, {"train.log": extremes(1200.0)}).verdict
    assert (found.hypothesis.cause, found.hypothesis.subject) == (STRAGGLER, {})
    assert found.probability < 0.8


def test_one_report_of_a_detector_is_not_certain(tmp_path: Path) -> None:
    assert judged(tmp_path, {"train.log": bridge(0.61)}).verdict.probability < 0.8


@pytest.mark.parametrize("text", [bridge(0.61), rtt(3100, [30]), extremes(1200.0)], ids=["scores", "trips", "extremes"])
def test_a_node_sends_every_line_of_a_report(text: str) -> None:
    idle = b"nothing to see\n" * 50
    sent = [line for _, _, line in reduce.chosen_lines(idle + text.encode() + idle)[0]]
    rows = [line for line in text.splitlines() if "iteration" not in line and "Worst performing" not in line]
    assert not [line for line in rows if line not in sent]
