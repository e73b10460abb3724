"""A node that is up for less time than the job has run was restarted under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import judged, shares

UP = " 12:31:10 up {}, 1 user,  load average: 0.10, 0.20, 0.30\n"
STEP = "2026-01-05 {}:00,000 INFO step {} loss 2.1\n"
LOG = "".join(STEP.format(f"{8 + at // 60:02d}:{at % 60:02d}", 100 + at) for at in range(0, 240, 10))  # until 11:50


def share(folder: Path, **files: str) -> float:
    brought = {name.replace("_", "/", 1) + ".txt": text for name, text in files.items()}
    return shares(judged(folder / "incident", {"train.log": LOG} | brought)).get("host.rebooted", 0.0)


def test_an_uptime_shorter_than_the_job_is_a_restart_under_it(tmp_path: Path) -> None:
    well = {f"wolf{number}_uptime": UP.format("41 days,  3:05") for number in (1, 2)}
    assert share(tmp_path / "a", **well, wolf3_uptime=UP.format("20 min")) > 0.9
    assert share(tmp_path / "b", wolf3_uptime=UP.format("20 min")) > 0.9
    assert share(tmp_path / "c", **well, wolf3_uptime=UP.format(" 9:05")) < 0.8, "up since before the job"
    assert share(tmp_path / "d", **well, wolf3_uptime=UP.format("41 days,  2:00")) == 0.0


def test_uptime_may_stand_with_the_boots_id_and_the_boots_before(tmp_path: Path) -> None:
    boot = "8c1f3e4a-6f2b-4e0c-9d55-1b2a3c4d5e6f\n"
    last = "reboot   system boot  6.8.0-45-generic Mon Jan  5 {}   still running\n"
    older = "reboot   system boot  6.8.0-45-generic Sat Dec 20 19:18 - 11:50 (15+16:31)\n"
    young = UP.format("20 min") + boot + last.format("12:11") + older
    assert share(tmp_path / "a", wolf3_boots=young) > 0.9
    assert share(tmp_path / "b", wolf3_boots=older) == 0.0, "December was before this January"


@pytest.mark.parametrize(("stamp", "within"), [("09:10", True), ("07:50", False)])
def test_a_boot_without_a_year_is_of_the_jobs_year(tmp_path: Path, stamp: str, within: bool) -> None:
    told = f"reboot   system boot  6.8.0-45-generic Mon Jan  5 {stamp}   still running\n"
    assert (share(tmp_path, wolf3_last=told) > 0.9) is within
