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


CONCISE = "Device  Node  IDs  (GUID)  Temp  Power  Partitions  SCLK  MCLK  Fan  Perf  PwrCap  VRAM%  GPU%\n" + "".join(
    f"{at}  {at + 2}  0x74a1,  28{at}  58.0C  {{watts}}W  NPS1, SPX, 0  2100Mhz  1300Mhz  0%  auto  750.0W  80%  100%\n"
    for at in range(4)
)


@pytest.mark.parametrize(("watts", "cause"), [("655.0", "none"), ("190.0", "unknown")], ids=["work", "wait"])
def test_rocm_smi_tells_what_a_gpu_may_draw_beside_what_it_draws(tmp_path: Path, watts: str, cause: str) -> None:
    assert said(tmp_path, {"rocm-smi.txt": CONCISE.format(watts=watts)})[0] == cause


def test_steps_that_three_ranks_tell_up_to_the_look_bear_each_other_out(tmp_path: Path) -> None:
    rows = "".join(
        f"2026-02-01 08:0{n}:10 [rank{rank}] INFO step {n}0 loss 2.1\n" for n in range(3) for rank in range(3)
    )
    log, look = {"train.log": rows}, "[ops@nid007 ~]$ date\nSun Feb  1 08:02:31 UTC 2026\n"
    assert said(tmp_path / "looked", log | {"session.txt": look})[0] == "none"
    assert said(tmp_path / "later", log | {"session.txt": look.replace("08:02", "08:42")})[0] == "unknown"
