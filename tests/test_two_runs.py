"""Flight-recorder dumps of two runs, or of two jobs, in one folder: the newest is judged, the other is said."""

from __future__ import annotations

from pathlib import Path

from probes.explain import Explained, explain
from tests.support.flight_recorders import dump, entry

HOUR_NS = 3_600_000_000_000


def write(folder: Path, rank: int, calls: int, waits: bool, later_ns: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    made = [
        entry(seq, time_created_ns=1_700_000_000_000_000_000 + later_ns + seq * 1_000_000)
        | ({"state": "started", "retired": False} if waits and seq == calls else {})
        for seq in range(1, calls + 1)
    ]
    (folder / f"nccl_trace_rank_{rank}").write_bytes(dump(*made))


def told(found: Explained) -> tuple[str, object]:
    first = found.diagnosis.verdict.hypothesis
    return first.cause, first.subject.get("rank")


def test_the_run_that_is_newer_is_judged_and_the_other_is_said(tmp_path: Path) -> None:
    for rank in range(4):  # yesterday's: rank 3 was late
        write(tmp_path / "monday", rank, 8 if rank == 3 else 9, rank != 3)
    for rank in range(4):  # today's: rank 1 is
        write(tmp_path / "tuesday", rank, 4 if rank == 1 else 5, rank != 1, HOUR_NS)
    found = explain([tmp_path])
    assert told(found) == ("fw.rank_missing_collective", 1)
    said = {one.file.rpartition("/monday/")[2] for one in found.unread if "another run" in one.why}
    assert said == {f"nccl_trace_rank_{rank}" for rank in range(4)}


def test_two_moments_of_one_run_are_one_run(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path / "early", rank, 3, False)
        write(tmp_path / "late", rank, 5 if rank == 2 else 6, rank != 2)
    found = explain([tmp_path])
    assert told(found) == ("fw.rank_missing_collective", 2)
    assert not any("another run" in one.why for one in found.unread)
