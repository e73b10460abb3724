"""Clocks of nodes that were asked together, and credentials that are refused for their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.intake.tools.host.time_service import read
from tests.support.hardware import judged

TIMED = (
    "               Local time: Tue 2026-02-10 {0} CET\n           Universal time: Tue 2026-02-10 {0} UTC\n"
    "                 RTC time: Tue 2026-02-10 {0}\n                Time zone: Europe/Berlin (CET, +0100)\n"
    "System clock synchronized: {1}\n              NTP service: active\n          RTC in local TZ: no\n"
)
REWOUND = "[2026-02-10T08:00:02.331] error: Munge decode failed: Rewound credential\n"


def pdsh(texts: dict[str, str]) -> str:
    return "".join(f"{node}: {line}\n" for node, text in texts.items() for line in text.splitlines())


def first(folder: Path, files: dict[str, str]) -> tuple[str, object, float]:
    one = judged(folder / "incident", files).verdict
    return one.hypothesis.cause, one.hypothesis.subject.get("node"), one.probability


@pytest.mark.parametrize(
    "form",
    [
        {f"fox{n}": TIMED.format("08:00:01" if n != 2 else "07:52:11", "yes") for n in range(1, 5)},
        {f"fox{n}": f"Tue Feb 10 {'08:00:01' if n != 2 else '07:52:11'} UTC 2026\n" for n in range(1, 5)},
        {f"fox{n}": f"{'08:00:01' if n != 2 else '07:52:11'}.40221{n}\n" for n in range(1, 5)},
        {f"fox{n}": f"{'00:00:01' if n != 2 else '23:52:11'}.40221{n}\n" for n in range(1, 5)},
        {f"fox{n}": f"{1770710401 - 470 * (n == 2)}.123456789\n" for n in range(1, 5)},
    ],
)
def test_the_node_whose_time_differs_from_the_others_leads_where_credentials_are_refused(
    tmp_path: Path, form: dict[str, str]
) -> None:
    cause, node, share = first(tmp_path / "a", {"clocks.txt": pdsh(form), "slurmctld.log": REWOUND})
    assert (cause, node) == ("host.clock_offset", "fox2") and share > 0.9
    assert first(tmp_path / "b", {"clocks.txt": pdsh(form)})[2] < 0.8, "a clock alone stops no job"


def test_files_that_were_written_one_after_another_are_not_compared(tmp_path: Path) -> None:
    files = {f"fox{n}/timedatectl.txt": TIMED.format(f"08:{n * 10}:01", "yes") for n in range(1, 5)}
    assert first(tmp_path, files | {"slurmctld.log": REWOUND})[:2] == ("host.clock_offset", None)


def test_a_refused_credential_alone_says_little_unless_it_is_refused_for_its_time(tmp_path: Path) -> None:
    invalid = "srun: error: Task launch for StepId=7.0 failed on node fox3: Invalid job credential\n"
    assert first(tmp_path / "a", {"slurm-7.out": invalid})[2] < 0.8
    assert first(tmp_path / "b", {"slurmctld.log": REWOUND})[0] == "host.clock_offset"


def test_a_command_that_prints_the_time_of_the_day_alone_is_known_by_its_name(tmp_path: Path) -> None:
    rows = "".join(f"fox{n}: {'08:00:01' if n != 2 else '07:52:11'}\n" for n in range(1, 5))
    files = {"clocks.txt": f"$ pdsh -w fox[1-4] date +%T\n{rows}", "slurmctld.log": REWOUND}
    assert first(tmp_path, files)[:2] == ("host.clock_offset", "fox2")


def test_a_node_that_is_its_own_source_of_time_follows_none() -> None:
    text = "Reference ID    : {}\nStratum         : 10\nSystem time     : 0.000000001 seconds slow of NTP time\n"
    alone, kept = (text.format(source) + "Leap status     : Normal\n" for source in ("7F7F0101 ()", "0A000001 (t1)"))
    assert read(alone).synchronised is False and read(kept).synchronised is True
