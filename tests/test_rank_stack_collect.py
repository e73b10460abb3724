"""How stacks are taken from ranks: real processes, the real py-spy, on the node and sent along."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.catalog.rank_stack import PROBE, ProcessStack, waits_in
from probes.core import Capture, interpret
from probes.transport import local
from probes.transport.attachments import Attachment, NoAttachment, load
from probes.transport.plan import Plan
from tests.conftest import CANNOT
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.rank_servers import start_rank
from tests.support.wait import until

__all__ = ["start_rank"]  # a fixture


@pytest.fixture
def py_spy() -> Attachment:
    try:
        return load("py-spy")
    except NoAttachment:
        pytest.skip(CANNOT + "py-spy is not installed")


@pytest.fixture
def tool(py_spy: Attachment, tmp_path: Path) -> str:
    """A folder for PATH with py-spy in it."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "py-spy").write_bytes(zlib.decompress(py_spy.packed))
    (folder / "py-spy").chmod(0o755)
    return str(folder)


def of(pid: int, capture: Capture) -> ProcessStack:
    reading = interpret(PROBE, capture)
    assert reading.facts is not None, f"{capture.outcome}: {capture.why} {reading.parse_error}"
    (found,) = [process for process in reading.facts.processes if process.pid == pid]
    assert isinstance(found, ProcessStack)
    return found


@pytest.mark.parametrize("python", old_and_new_pythons(), ids=lambda path: path.split("/")[-3])
def test_py_spy_on_the_node_shows_the_line_of_the_program(python: str, start_rank: Any, tool: str) -> None:
    rank = start_rank(2)
    process = of(rank.pid, capture_here(PROBE, python, path=tool))
    assert (process.rank, process.worker, process.how, process.state) == (2, False, "py-spy", "S")
    assert process.main is not None
    assert "wait_for_the_end_of_the_test" in [frame.function for frame in process.main.frames]
    assert process.main.wchan != ""


async def test_py_spy_that_was_sent_shows_the_same(py_spy: Attachment, start_rank: Any) -> None:
    rank = start_rank(3)
    plan = Plan((PROBE,), attachments=(py_spy,), deadline_s=20)
    captures = [item async for item in local.ask(plan) if isinstance(item, Capture)]
    process = of(rank.pid, captures[0])
    assert process.how == "py-spy (sent)"
    assert process.main is not None
    assert "wait_for_the_end_of_the_test" in [frame.function for frame in process.main.frames]


def test_a_stopped_rank_is_looked_at_and_stays_stopped(start_rank: Any, tool: str) -> None:
    rank = start_rank(1)
    os.kill(rank.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{rank.pid}/stat").read_text().split()[2] == "T")
    process = of(rank.pid, capture_here(PROBE, path=tool))
    assert (process.state, process.wchan) == ("T", "do_signal_stop")
    assert process.main is not None
    assert "wait_for_the_end_of_the_test" in [frame.function for frame in process.main.frames]
    assert waits_in(process).kind == "stopped"
    assert Path(f"/proc/{rank.pid}/stat").read_text().split()[2] == "T"


def test_without_py_spy_the_worker_server_tells_its_stacks(start_rank: Any, tmp_path: Path) -> None:
    text = tmp_path / "said"
    text.write_text(
        "Current thread 0x00007f00 (most recent call first):\n  <no Python frame>\n\n"
        "Thread 0x00007f01 (most recent call first):\n"
        '  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 9 in all_reduce\n'
        '  File "/srv/train.py", line 4 in <module>\n'
    )  # fmt: skip
    socket = str(tmp_path / "worker.sock")
    env = {"TORCH_WORKER_SERVER_SOCKET": socket}
    rank = start_rank(0, env=env, socket=socket, answers={"dump_traceback": str(text)})
    other = start_rank(7, world=8)
    capture = capture_here(PROBE)
    process = of(rank.pid, capture)
    assert (process.how, waits_in(process).op) == ("worker server", "all_reduce")
    assert rank.end() == ["GET /handler/", "POST /handler/dump_traceback"]
    without = of(other.pid, capture)
    assert (without.how, without.threads) == ("", ())
    assert "py-spy is not on PATH" in without.why
    assert "no worker server" in without.why


# vfork suspends the parent in state D until its child has ended or become another program.
IN_STATE_D = """
import ctypes, os, sys, time
print("ready", flush=True)
ctypes.CDLL(None).vfork()
time.sleep(600)
"""


@pytest.fixture
def rank_in_state_d() -> Iterator[int]:
    env = {**os.environ, "RANK": "4", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": f"test-{os.getpid()}"}
    command = [sys.executable, "-c", IN_STATE_D]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    process.stdout.readline()
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().split()[2] == "D")
    yield process.pid
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_process_in_state_d_is_not_touched(rank_in_state_d: int, start_rank: Any, tmp_path: Path) -> None:
    called = tmp_path / "called"
    tool = tmp_path / "py-spy"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {called}\necho "[]"\n')
    tool.chmod(0o755)
    rank = start_rank(5, world=8)
    process = of(rank_in_state_d, capture_here(PROBE, path=str(tmp_path)))
    assert (process.state, process.how) == ("D", "")
    assert "not touched" in process.why
    asked = called.read_text()
    assert f"--pid {rank.pid}\n" in asked
    assert f"--pid {rank_in_state_d}\n" not in asked


def test_a_tool_that_hangs_costs_only_its_own_process(start_rank: Any, tmp_path: Path) -> None:
    ranks = [start_rank(number, world=8) for number in (0, 1)]
    tool = tmp_path / "py-spy"
    tool.write_text(f'#!/bin/sh\ncase "$*" in *" {ranks[0].pid}") exec sleep 60;; esac\necho "[]"\n')
    tool.chmod(0o755)
    capture = capture_here(PROBE, path=str(tmp_path))
    assert "no answer within 4 s" in of(ranks[0].pid, capture).why
    assert "py-spy printed no thread" in of(ranks[1].pid, capture).why


def test_a_program_for_another_processor_leaves_the_other_way(start_rank: Any, tmp_path: Path) -> None:
    tool = tmp_path / "py-spy"
    tool.write_bytes(b"\x7fELF" + b"\0" * 60)
    tool.chmod(0o755)
    rank = start_rank(0)
    why = of(rank.pid, capture_here(PROBE, path=str(tmp_path))).why
    assert "py-spy cannot be run here: Exec format error" in why
    assert "no worker server" in why


def test_a_refusal_says_what_to_allow(start_rank: Any, tmp_path: Path) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text(
        '#!/bin/sh\necho "Error: Permission Denied: Try running again with elevated permissions" >&2\nexit 1\n'
    )
    tool.chmod(0o755)
    rank = start_rank(0)
    assert "CAP_SYS_PTRACE" in of(rank.pid, capture_here(PROBE, path=str(tmp_path))).why


@pytest.mark.needs_root
def test_a_program_that_others_could_have_put_there_is_not_run(start_rank: Any, tmp_path: Path) -> None:
    """py-spy beside the rank's own Python: a venv of somebody else must not get to run as root."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    called = tmp_path / "called"
    shutil.copy2(os.path.realpath(sys.executable), venv / "bin" / "python3")
    (venv / "bin" / "py-spy").write_text(f"#!/bin/sh\necho $* >> {called}\necho '[]'\n")
    (venv / "bin" / "py-spy").chmod(0o755)
    rank = start_rank(0, python=str(venv / "bin" / "python3"))
    assert "py-spy printed no thread" in of(rank.pid, capture_here(PROBE)).why
    assert called.exists()
    called.unlink()
    os.chown(venv / "bin", 65534, 65534)
    of(rank.pid, capture_here(PROBE))
    assert not called.exists()
