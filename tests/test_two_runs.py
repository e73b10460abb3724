"""Flight-recorder dumps of two runs, or of two jobs, in one folder: the newest is judged, the other is said."""

from __future__ import annotations

from pathlib import Path

from probes.explain import Explained, explain
from tests.support.flight_recorders import dump, entry
from tests.support.hardware import judged

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


LAST_WEEK = (
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 2 has a total capacity of\n"
    "[{day} 21:04:09,115] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 812\n"
)
THIS_RUN = "[2025-03-14 06:00:00,001] [INFO] begin\n" + "".join(
    f"{{'loss': 0.{9 - n}12, 'epoch': 0.{n}}}\n[2025-03-14 06:{n}0:00,001] [INFO] step: {n}0, loss: 0.{9 - n}\n"
    for n in range(1, 5)
)


def test_what_another_run_wrote_days_before_is_no_fault_of_this_one(tmp_path: Path) -> None:
    files = {"now.log": THIS_RUN, "old_container.log": LAST_WEEK.format(day="2025-03-10")}
    assert judged(tmp_path, files).verdict.hypothesis.cause in ("none", "unknown")


def test_what_was_written_within_the_same_day_is(tmp_path: Path) -> None:
    files = {"now.log": THIS_RUN, "old_container.log": LAST_WEEK.format(day="2025-03-14")}
    assert judged(tmp_path, files).verdict.hypothesis.cause == "gpu.out_of_memory"
