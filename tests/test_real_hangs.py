"""Real torch jobs that hang, asked as a node is. Need torch: see make lab."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from probes import catalog, suites
from probes.catalog.rank_flight_recorder import FlightRecorder
from probes.catalog.rank_stack import Stacks, waits_in
from probes.core import Capture
from probes.transport import local
from tests.conftest import CANNOT
from tests.support import training
from tests.support.wait import until

JOB = Path(__file__).parent / "support" / "hang_job.py"
PYTHON = str(training.PYTHON) if training.PYTHON.exists() else ""


@pytest.fixture
def hang(data_folder: Path) -> Iterator[Any]:
    """Starts a job with a fault; returns its run id once rank 1 is where it stays."""
    if not PYTHON:
        pytest.skip(CANNOT + "needs torch, see make lab")
    jobs: list[subprocess.Popen[bytes]] = []

    def start(fault: str) -> str:
        run_id = f"hang-{os.getpid()}-{fault}"
        command = [PYTHON, "-m", "torch.distributed.run", "--nproc_per_node=3", f"--rdzv-id={run_id}",
            "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(JOB)]  # fmt: skip
        log = (data_folder / "log").open("wb")
        env = {**os.environ, "FAULT": fault, "FOLDER": str(data_folder), "OMP_NUM_THREADS": "1"}
        jobs.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True))
        log.close()
        sockets = [data_folder / f"worker_{rank}.sock" for rank in range(3)]
        until(lambda: all(path.exists() for path in sockets) or jobs[-1].poll() is not None, 90, "the job's sockets")
        assert jobs[-1].poll() is None, (data_folder / "log").read_text()[-2000:]
        return run_id

    yield start
    for job in jobs:
        job.kill()
        job.wait()
    for entry in Path("/proc").iterdir():  # ranks have sessions of their own
        if entry.name.isdigit() and _of_our_job(entry):
            with suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)


def _of_our_job(entry: Path) -> bool:
    try:
        return f"TORCHELASTIC_RUN_ID=hang-{os.getpid()}-".encode() in (entry / "environ").read_bytes()
    except OSError:
        return False


def asked() -> tuple[FlightRecorder, Stacks]:
    """Both probes of suite `suspects`, through the runner, with py-spy sent where it is installed here."""

    async def all_of_it() -> list[Any]:
        return [item async for item in local.ask(suites.SUITES["suspects"].plan())]

    captures = {item.probe: item for item in asyncio.run(all_of_it()) if isinstance(item, Capture)}
    recorder, stack = (catalog.read(captures[name]).facts for name in ("rank.flight_recorder", "rank.stack"))
    assert isinstance(recorder, FlightRecorder)
    assert isinstance(stack, Stacks)
    return recorder, stack


def settled(run_id: str, check: Any) -> tuple[dict[int, Any], dict[int, Any], Stacks]:
    """(dumps by rank, ranks without one, stacks) of this job, once `check` holds of the dumps."""

    def look() -> Any:
        recorder, stacks = asked()
        dumps = {dump.rank: dump for dump in recorder.dumps if dump.run_id == run_id}
        pids = {dump.pid for dump in dumps.values()}
        missing = {one.rank: one for one in recorder.missing if one.run_id == run_id}
        return (dumps, missing, stacks) if pids and check(dumps) else None

    return until(look, 60, "the job to hang")  # type: ignore[no-any-return]


def pending(dump: Any) -> list[tuple[int, str]]:
    return [(entry.seq, dump.signatures[entry.signature].op) for group in dump.groups for entry in group.pending]


def test_a_rank_that_skips_a_collective_is_in_another_one(hang: Any) -> None:
    dumps, _, stacks = settled(hang("skip"), lambda dumps: len(dumps) == 3 and all(map(pending, dumps.values())))
    assert {rank: pending(dump) for rank, dump in dumps.items()} == {
        0: [(4, "all_reduce")],
        1: [(4, "broadcast")],
        2: [(4, "all_reduce")],
    }
    assert {dump.torch for dump in dumps.values()} != {""}
    ops = {
        process.rank: waits_in(process)
        for process in stacks.processes
        if process.pid in {d.pid for d in dumps.values()}
    }
    assert [ops[rank].op for rank in range(3)] == ["all_reduce", "broadcast", "all_reduce"]
    assert ops[1].at is not None
    assert ops[1].at.file.endswith("hang_job.py")


def test_a_stopped_rank_has_no_dump_and_says_why(hang: Any) -> None:
    dumps, missing, stacks = settled(hang("stop"), lambda dumps: len(dumps) == 2 and all(map(pending, dumps.values())))
    assert sorted(dumps) == [0, 2]
    assert "stopped" in missing[1].why
    (victim,) = [process for process in stacks.processes if process.pid == missing[1].pid]
    assert waits_in(victim).kind == "stopped"


def test_a_loader_that_sleeps_is_shown_with_the_workers_own_line(hang: Any) -> None:
    run_id = hang("loader")
    dumps, _, stacks = settled(run_id, lambda dumps: len(dumps) == 3 and pending(dumps[0]) and not pending(dumps[1]))
    assert dumps[1].groups[0].enqueued == dumps[0].groups[0].enqueued - 1
    (victim,) = [process for process in stacks.processes if process.pid == dumps[1].pid]
    assert waits_in(victim).kind == "data loader"
    if victim.how.startswith("py-spy"):
        workers = [waits_in(process) for process in stacks.processes if process.rank == 1 and process.worker]
        assert "sleep_in_the_dataset" in {wait.at.function for wait in workers if wait.at}
