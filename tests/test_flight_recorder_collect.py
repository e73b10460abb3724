"""How flight-recorder dumps are got from ranks: real processes, sockets, files and pipes, the runner as on a node."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from probes.catalog import rank_flight_recorder as recorder
from probes.catalog import rank_flight_recorder_trigger as trigger
from probes.core import Reading, interpret
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.rank_servers import start_rank
from tests.support.wait import until

__all__ = ["start_rank"]  # a fixture

HANGS = Path(__file__).parent / "fixtures" / "hangs"
PICKLE = HANGS / "ddp_unused" / "fr_exit_rank_0"
JSON = HANGS / "ddp_unused" / "frjson_exit_rank_0.json"


def read(python: str = "") -> Reading:
    reading = interpret(recorder.PROBE, capture_here(recorder.PROBE, *([python] if python else [])))
    assert reading.facts is not None, f"{reading.outcome}: {reading.capture.why or reading.parse_error}"
    return reading


def dump_of(pid: int, python: str = "") -> recorder.Dump:
    facts = read(python).facts
    (found,) = [dump for dump in facts.dumps if dump.pid == pid] or [facts.missing]
    assert isinstance(found, recorder.Dump), found
    return found


def missing(pid: int) -> recorder.Missing:
    (found,) = [one for one in read().facts.missing if one.pid == pid]
    return found


@pytest.mark.parametrize("python", old_and_new_pythons(), ids=lambda path: path.split("/")[-3])
def test_the_worker_server_is_asked_once_and_its_dump_comes_first(python: str, start_rank: Any, tmp_path: Path) -> None:
    shutil.copy(PICKLE, tmp_path / "dump_2")
    socket = str(tmp_path / "worker.sock")
    env = {"TORCH_WORKER_SERVER_SOCKET": socket, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    rank = start_rank(2, env=env, socket=socket, answers={"fr_trace_json": str(JSON), "ping": str(JSON)})
    dump = dump_of(rank.pid, python)
    assert (dump.rank, dump.world_size, dump.how, dump.form, dump.path) == (2, 4, "worker server", "json", socket)
    assert dump.groups[0].enqueued == 9
    assert rank.end() == ["GET /handler/", "POST /handler/fr_trace_json"]


def test_a_cuda_build_is_asked_for_nccls_recorder_without_stacks(start_rank: Any, tmp_path: Path) -> None:
    socket = str(tmp_path / "worker.sock")
    answers = {"dump_nccl_trace_pickle": str(PICKLE), "fr_trace_json": str(JSON)}
    rank = start_rank(0, env={"TORCH_WORKER_SERVER_SOCKET": socket}, socket=socket, answers=answers)
    assert dump_of(rank.pid).form == "pickle"
    assert rank.end() == ["GET /handler/", "POST /handler/dump_nccl_trace_pickle?includestacktraces=false"]


def test_a_server_that_the_environment_does_not_name_is_found_by_its_threads(start_rank: Any, tmp_path: Path) -> None:
    socket = str(tmp_path / ("a" * 60) / "worker.sock")  # longer than an address of a unix socket may be
    os.makedirs(os.path.dirname(socket))
    short = tmp_path / "s"
    short.symlink_to(os.path.dirname(socket))
    rank = start_rank(1, socket=f"{short}/worker.sock", answers={"fr_trace_json": str(JSON)})
    assert dump_of(rank.pid).how == "worker server"
    assert rank.end() == ["GET /handler/", "POST /handler/fr_trace_json"]


def test_ranks_that_name_one_socket_are_not_taken_for_each_other(start_rank: Any, tmp_path: Path) -> None:
    """A variable set for the whole job names the socket of whichever rank took it first."""
    socket = str(tmp_path / "worker.sock")
    env = {"TORCH_WORKER_SERVER_SOCKET": socket}
    first = start_rank(0, env=env, socket=socket, answers={"fr_trace_json": str(JSON)})
    second = start_rank(1, env=env)
    facts = read().facts
    assert [dump.rank for dump in facts.dumps if dump.pid in (first.pid, second.pid)] == [0]
    assert f"process {first.pid} listens on it" in missing(second.pid).why


def test_what_listens_in_a_rank_without_such_threads_is_left_alone(start_rank: Any, tmp_path: Path) -> None:
    rank = start_rank(1, socket=str(tmp_path / "other.sock"), thread="python3", answers={"fr_trace_json": str(JSON)})
    assert "no worker server runs in it" in missing(rank.pid).why
    assert rank.end() == []


@pytest.mark.parametrize(
    ("mode", "why"), [("silent", "timed out|did not answer"), ("not http", "not HTTP"), ("short", "too early")]
)
def test_a_server_that_does_not_answer_costs_only_its_own_dump(
    mode: str, why: str, start_rank: Any, tmp_path: Path
) -> None:
    socket = str(tmp_path / "worker.sock")
    env = {"TORCH_WORKER_SERVER_SOCKET": socket, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    rank = start_rank(3, env=env, socket=socket, mode=mode, answers={"fr_trace_json": str(JSON)})
    other = start_rank(5, world=8, env={"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"})
    shutil.copy(PICKLE, tmp_path / "dump_5")
    facts = read().facts
    assert other.pid in {dump.pid for dump in facts.dumps}
    (one,) = [one for one in facts.missing if one.pid == rank.pid]
    assert any(word in one.why for word in why.split("|")), one.why


def test_a_stopped_rank_is_not_asked_but_its_file_is_read(start_rank: Any, tmp_path: Path) -> None:
    socket = str(tmp_path / "worker.sock")
    env = {"TORCH_WORKER_SERVER_SOCKET": socket, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/nccl_"}
    rank = start_rank(6, world=8, env=env, socket=socket, answers={"fr_trace_json": str(JSON)})
    shutil.copy(PICKLE, tmp_path / "nccl_6")
    os.kill(rank.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{rank.pid}/stat").read_text().split()[2] == "T")
    dump = dump_of(rank.pid)
    assert (dump.how, dump.path, dump.bytes) == ("file", f"{tmp_path}/nccl_6", PICKLE.stat().st_size)
    assert dump.mtime == pytest.approx((tmp_path / "nccl_6").stat().st_mtime)


def test_the_default_place_is_the_cache_of_the_ranks_own_home(start_rank: Any, tmp_path: Path) -> None:
    place = tmp_path / "home" / ".cache" / "torch"
    place.mkdir(parents=True)
    rank = start_rank(7, world=8)
    shutil.copy(PICKLE, place / "comm_lib_trace_rank_7")
    assert dump_of(rank.pid).path == f"{place}/comm_lib_trace_rank_7"


def test_a_file_of_an_earlier_job_is_not_taken_for_this_ranks(start_rank: Any, tmp_path: Path) -> None:
    rank = start_rank(1, env={"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"})
    shutil.copyfile(PICKLE, tmp_path / "dump_1")
    os.utime(tmp_path / "dump_1", (time.time() - 3600,) * 2)
    assert "older than this rank" in missing(rank.pid).why


def test_hostile_files_are_refused_and_do_not_stop_the_others(start_rank: Any, tmp_path: Path) -> None:
    env = {"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    ranks = [start_rank(number, world=8, env=env) for number in range(5)]
    (tmp_path / "dump_0").write_bytes(b"\x80\x02}r\x00\x00\x00\x08.")  # asks for a gigabyte
    (tmp_path / "dump_1").write_bytes(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00trueq\x01\x85R.")
    (tmp_path / "dump_2").write_bytes(PICKLE.read_bytes()[:500])
    os.mkfifo(tmp_path / "dump_3")
    shutil.copy(PICKLE, tmp_path / "dump_4")
    facts = read().facts
    why = {one.pid: one for one in facts.missing}
    for rank, word in zip(ranks, ("more memory", "os.system", "too early", "is not a file"), strict=False):
        assert word in why[rank.pid].why
    assert [why[rank.pid].refused for rank in ranks[:4]] == [True, True, True, False]
    assert ranks[4].pid in {dump.pid for dump in facts.dumps}


# Asking through the pipe -------------------------------------------------------------------------------------------


def asked(pid: int) -> trigger.Trigger:
    reading = interpret(trigger.PROBE, capture_here(trigger.PROBE))
    (found,) = [one for one in reading.facts.ranks if one.pid == pid]
    return found


@pytest.fixture
def pipe(tmp_path: Path) -> Any:
    """The pipe of rank 0 as torch opens it, and its reading end."""
    os.mkfifo(tmp_path / "pipe_0.pipe")
    end = os.open(tmp_path / "pipe_0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    yield end
    os.close(end)


def pipe_env(tmp_path: Path) -> dict[str, str]:
    return {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_",
    }


def test_a_request_goes_into_the_pipe_once(pipe: int, start_rank: Any, tmp_path: Path) -> None:
    rank = start_rank(0, env=pipe_env(tmp_path))
    first = asked(rank.pid)
    assert (first.outcome, first.pipe) == ("asked", f"{tmp_path}/pipe_0.pipe")
    second = asked(rank.pid)  # nobody has read the first request yet
    assert second.outcome == "unread"
    assert "not read" in second.why
    assert os.read(pipe, 100) == b"1\n"


def test_a_dump_that_appears_is_told_and_not_asked_for_again(pipe: int, start_rank: Any, tmp_path: Path) -> None:
    import threading

    rank = start_rank(0, env=pipe_env(tmp_path))
    seen = []

    def watchdog() -> None:
        seen.append(until(lambda: _take(pipe), what="a request in the pipe"))
        shutil.copyfile(PICKLE, tmp_path / "dump_0")

    thread = threading.Thread(target=watchdog)
    thread.start()
    first = asked(rank.pid)
    thread.join()
    assert (first.outcome, first.path, seen) == ("dumped", f"{tmp_path}/dump_0", [b"1\n"])
    assert asked(rank.pid).outcome == "young"
    assert _take(pipe) == b""
    assert dump_of(rank.pid).how == "file"


def _take(end: int) -> bytes:
    try:
        return os.read(end, 100)
    except BlockingIOError:
        return b""


def test_a_pipe_without_a_reader_is_not_waited_for(start_rank: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe_0.pipe")
    rank = start_rank(0, env=pipe_env(tmp_path))
    one = asked(rank.pid)
    assert (one.outcome, one.why) == ("unread", "nobody reads it: the rank's watchdog has ended")


def test_what_is_no_pipe_is_never_written_to(start_rank: Any, tmp_path: Path) -> None:
    (tmp_path / "pipe_0.pipe").write_text("keep")
    (tmp_path / "pipe_1.pipe").symlink_to(tmp_path / "pipe_0.pipe")
    for number in (0, 1):
        rank = start_rank(number, env=pipe_env(tmp_path))
        assert asked(rank.pid).why == "what is there is no pipe"
    assert (tmp_path / "pipe_0.pipe").read_text() == "keep"


def test_a_job_without_a_pipe_cannot_be_asked(start_rank: Any) -> None:
    rank = start_rank(0)
    assert asked(rank.pid).outcome == "no pipe"
    assert json.dumps(missing(rank.pid).pipe) == '""'
