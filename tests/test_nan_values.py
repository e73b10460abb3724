"""Values that are no number, in tables, histories and checks of ranks: where NaN was first, and whether it stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake.tools import beside
from tests.support.hardware import judged

NAN = "fw.nan_gradient"


def told(folder: Path, files: dict[str, str]) -> tuple[str, object, float]:
    found = judged(folder, files).verdict
    return found.hypothesis.cause, found.hypothesis.subject.get("rank"), found.probability


def history(bad_from: int) -> str:
    rows = ({"_step": step, "train/loss": float("nan") if step >= bad_from else 2.0 - step / 10} for step in range(10))
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_a_loss_that_stays_nan_in_a_history_is_found(tmp_path: Path) -> None:
    assert told(tmp_path, {"history.json": history(5)})[0] == NAN
    scalars = "Wall time,Step,Value\n" + "".join(f"17{n}.5,{n},{'nan' if n > 3 else 1.5}\n" for n in range(9))
    assert told(tmp_path / "scalars", {"loss.csv": scalars})[0] == NAN


def test_one_step_that_was_no_number_and_went_by_is_no_finding(tmp_path: Path) -> None:
    scalars = "Wall time,Step,Value\n" + "".join(f"17{n}.5,{n},{'nan' if n == 3 else 1.5}\n" for n in range(9))
    assert told(tmp_path, {"loss.csv": scalars})[0] in ("none", "unknown")


@pytest.mark.parametrize(
    "text",
    [
        "step\trank\tgrad_norm\n4\t0\t1.1\n4\t1\t1.2\n4\t2\t1.1\n5\t0\t1.1\n5\t1\tnan\n5\t2\t1.0\n",
        "".join(
            f"[rank{r}] step {s} gnorm {'nan' if s > 7 or (r, s) == (1, 7) else 1.5}\n"
            for s in (6, 7, 8)
            for r in (0, 1, 2)
        ),
        "rank 0: has_nan=False\nrank 1: has_nan=True (layers.3)\nrank 2: has_nan=False\n",
        "rank=0 isfinite(grad): True\nrank=1 isfinite(grad): False\nrank=2 isfinite(grad): True\n",
    ],
    ids=["a table", "lines of a log", "a check", "a check the other way"],
)
def test_the_rank_that_had_it_first_or_alone_is_named_and_not_certain(tmp_path: Path, text: str) -> None:
    cause, rank, share = told(tmp_path, {"check.txt": text})
    assert (cause, rank) == (NAN, 1)
    assert share < 0.8


def test_numbers_alone_are_none_of_these() -> None:
    text = "step,rank,grad_norm\n4,0,1.1\n4,1,1.2\n"
    assert not [tool for tool in beside(text, "norms.csv") if tool.probe == "job.nan_values"]


def overflows(scale: float, count: int) -> str:
    """As fairseq writes: each halves the scale."""
    form = "2025-02-01 09:00:{n:02d} | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, "
    form += "setting loss scale to: {scale}\n"
    return "".join(form.format(n=n, scale=scale / 2**n) for n in range(count))


def test_overflows_down_to_a_scale_that_scales_nothing_are_a_finding(tmp_path: Path) -> None:
    assert told(tmp_path, {"train.log": overflows(8.0, 12)})[0] == NAN


def test_the_first_overflows_of_a_run_are_as_usual(tmp_path: Path) -> None:
    assert told(tmp_path, {"train.log": overflows(65536.0, 6)})[0] in ("none", "unknown")
