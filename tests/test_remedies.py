"""Commands that change something: only checked values become part of one, and what became of it is told as it is."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes import remedies
from probes.core import Capture
from probes.remedies import BadParameter, Outcome, outcome_of
from probes.transport import local
from probes.transport.reasons import REASONS
from tests.support.wait import until


@pytest.mark.parametrize("pid", [1, 0, -7, 4_194_305, "4242", "4242; reboot", None, True, 4.2])
def test_only_the_number_of_a_process_becomes_part_of_a_command(pid: object) -> None:
    with pytest.raises(BadParameter, match="expected the number of a process"):
        remedies.load()["continue_rank"].command({"pid": pid})


def test_a_command_is_its_template_with_the_number_in_it() -> None:
    remedy = remedies.load()["continue_rank"]
    assert remedy.command({"pid": 4242}) == ["kill", "-CONT", "4242"]
    assert remedy.undoing({"pid": 4242}) == ["kill", "-STOP", "4242"]
    assert not remedy.destructive
    assert remedies.load()["end_rank"].destructive


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that somebody stopped."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: state_of(process.pid) == "T", 10, "it to be stopped")
    yield process
    process.kill()
    process.wait()


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def state_of(pid: int) -> str:
    return stat(pid)[0]


def run(argv: list[str], guard: dict[str, object]) -> Outcome:
    """Through the real runner, on this machine."""

    async def ask() -> list[Capture]:
        plan = remedies.plan_of(argv, guard)
        return [item async for item in local.ask(plan) if isinstance(item, Capture)]

    (capture,) = asyncio.run(ask())
    return outcome_of(capture, argv)


def test_a_stopped_process_is_continued(sleeper: subprocess.Popen[bytes]) -> None:
    guard = {"pid": sleeper.pid, "started": int(stat(sleeper.pid)[19])}
    outcome = run(["kill", "-CONT", str(sleeper.pid)], guard)
    assert outcome.state == "done", outcome
    assert state_of(sleeper.pid) in "RS"


def test_another_process_with_the_same_number_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    guard = {"pid": sleeper.pid, "started": int(stat(sleeper.pid)[19]) - 1}
    outcome = run(["kill", "-CONT", str(sleeper.pid)], guard)
    assert outcome.state == "failed"
    assert f"Nothing was done on localhost: process {sleeper.pid} is another process now" in outcome.says
    assert state_of(sleeper.pid) == "T"


def test_a_process_that_is_gone_is_said_to_be(sleeper: subprocess.Popen[bytes]) -> None:
    guard = {"pid": sleeper.pid, "started": int(stat(sleeper.pid)[19])}
    sleeper.kill()
    sleeper.wait()
    assert "is not there any more" in run(["kill", "-CONT", str(sleeper.pid)], guard).says


def test_a_command_that_fails_tells_its_status_and_its_words() -> None:
    outcome = run(["kill", "-CONT", "4194303"], {})
    assert outcome.state == "failed"
    assert "failed on localhost with status 1" in outcome.says
    assert "No such process" in outcome.says


def test_a_command_that_is_not_there_failed() -> None:
    outcome = run(["no-such-command-here"], {})
    assert (outcome.state, "with status 127" in outcome.says) == ("failed", True)


@pytest.mark.parametrize("reason", sorted(REASONS))
def test_only_what_can_not_have_begun_is_called_not_done(reason: str) -> None:
    """Before the login stands, nothing of ours is there. After it, nobody knows."""
    began = {"shell_hung", "python_failed", "flood", "lost", "deadline", "no_answer", "asker_lost"}
    capture = Capture("gpu-001", "remedy.run", REASONS[reason].outcome, reason=reason, why="it says why")
    outcome = outcome_of(capture, ["kill", "-CONT", "4242"])
    assert outcome.state == ("unknown" if reason in began else "failed")
    assert "gpu-001" in outcome.says
    assert "it says why" in outcome.says


@pytest.mark.parametrize("answer", ["timeout", "hung", "failed"])
def test_an_answer_that_tells_nothing_leaves_it_unknown(answer: str) -> None:
    assert outcome_of(Capture("gpu-001", "remedy.run", answer), ["kill"]).state == "unknown"  # type: ignore[arg-type]
    assert outcome_of(Capture("gpu-001", "remedy.run", "ok", b"nonsense"), ["kill"]).state == "unknown"
