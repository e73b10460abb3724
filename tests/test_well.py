"""When nothing is found, GPUs that draw what work draws speak for it that all is well."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import judged

HEAD = "index, name, pci.bus_id, power.draw [W], power.limit [W], utilization.gpu [%], memory.used [MiB]\n"


def gpus(*rows: tuple[float, int, int], limit: float = 700.0) -> str:
    """Of (watts, percent, MiB). An H100 that waits in a collective was recorded at 100 % and 120 to 200 W."""
    form = "{at}, NVIDIA H100 80GB HBM3, 00000000:{bus:02X}:00.0, {watts} W, {limit} W, {use} %, {mib} MiB\n"
    return HEAD + "".join(
        form.format(at=at, bus=16 * at + 11, watts=watts, limit=limit, use=use, mib=mib)
        for at, (watts, use, mib) in enumerate(rows)
    )


WORK, WAIT, FREE, HELD = (610.0, 100, 72_000), (150.0, 100, 72_000), (70.0, 0, 4), (75.0, 0, 72_000)


def said(folder: Path, files: dict[str, str]) -> tuple[str, float]:
    verdict = judged(folder, files).verdict
    return verdict.hypothesis.cause, verdict.probability


def test_gpus_that_all_compute_say_that_all_is_well_but_not_for_certain(tmp_path: Path) -> None:
    cause, share = said(tmp_path, {"gpu-1/smi.csv": gpus(WORK, WORK), "gpu-2/smi.csv": gpus(WORK, FREE)})
    assert cause == "none" and share < 0.8


@pytest.mark.parametrize(
    "rows", [(WAIT, WAIT), (WORK, WAIT), (WORK, HELD), (FREE, FREE)], ids=["all wait", "one waits", "one idle", "free"]
)
def test_full_use_without_the_power_of_work_says_nothing(
    tmp_path: Path, rows: tuple[tuple[float, int, int], ...]
) -> None:
    assert said(tmp_path, {"gpu-1/smi.csv": gpus(*rows)})[0] == "unknown"


def test_a_node_of_which_no_gpu_is_told_leaves_it_open(tmp_path: Path) -> None:
    files = {
        "gpu-1/smi.csv": gpus(WORK, WORK),
        "gpu-2/uptime.txt": " 11:02:03 up 40 days,  2:11,  1 user,  load average: 4, 4, 4\n",
    }
    assert said(tmp_path, files)[0] == "unknown"


def test_gpus_that_compute_are_no_answer_to_a_failure_in_a_log(tmp_path: Path) -> None:
    log = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: x\n'
    assert said(tmp_path, {"gpu-1/smi.csv": gpus(WORK, WORK), "gpu-1/rank1.log": log})[0] != "none"
