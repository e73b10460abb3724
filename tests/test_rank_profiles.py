"""Samples of ranks: real processes, the real py-spy, taken as on a node; and what they lead to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probes.catalog.rank_profiles import PROBE, Profiles, parse
from probes.core import ParseError, interpret
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.wait import until
from tests.test_rank_stack_collect import py_spy, tool

__all__ = ["py_spy", "tool"]  # fixtures

SHIPS = """
import json, threading, time
def ship():
    while True:
        json.dumps(list(range(3000)))
threading.Thread(target=ship, daemon=True).start()
threading.Thread(target=ship, daemon=True).start()
print("runs", flush=True)
while True:
    time.sleep(0.001)
"""
TRAINS = """
print("runs", flush=True)
def step():
    return sum(range(100_000))
while True:
    step()
"""
CALLS_BACK = """
import sqlite3
base = sqlite3.connect(":memory:")
base.create_function("score", 1, lambda value: sum(range(value % 500)))
print("runs", flush=True)
while True:
    base.execute(
        "with recursive t(n) as (select 1 union all select n+1 from t where n<20000) select sum(score(n)) from t"
    ).fetchall()
"""
WAITS = """
import time
print("runs", flush=True)
time.sleep(600)
"""


@pytest.fixture
def start() -> Iterator[Callable[[str, int], int]]:
    """Starts a program as a rank of two; gives its pid."""
    started: list[subprocess.Popen[str]] = []

    def one(program: str, rank: int) -> int:
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "n1"}
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=env)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "runs\n"
        return process.pid

    yield one
    for process in started:
        process.kill()
        process.communicate()


def facts(python: str, tools: str) -> Profiles:
    reading = interpret(PROBE, capture_here(PROBE, python, path=tools))
    assert isinstance(reading.facts, Profiles), (
        f"{reading.capture.outcome}: {reading.capture.why} {reading.parse_error}"
    )
    return reading.facts


@pytest.mark.parametrize("python", old_and_new_pythons(), ids=lambda path: path.split("/")[-3])
def test_a_thread_that_holds_the_lock_is_seen_beside_one_that_trains(
    python: str, start: Callable[[str, int], int], tool: str
) -> None:
    pids = {start(SHIPS, 0), start(TRAINS, 1)}
    found = {(one.rank, one.lock): one for one in facts(python, tool).profiles if one.pid in pids and not one.native}
    assert set(found) == {(0, False), (0, True), (1, False), (1, True)}
    ships, trains = found[0, True].profile, found[1, True].profile
    assert ships is not None and trains is not None and ships.lock and ships.rank == 0
    assert ships.beside > 0.8 * ships.total > 100
    assert "ship (" in ships.beside_at
    assert trains.beside == 0 and trains.tree[0].name.startswith("<module>")
    left = {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}
    assert not left & set("Tt"), "nobody was stopped"


def test_the_lock_is_the_cause_where_it_is_held_most_of_the_time(start: Callable[[str, int], int], tool: str) -> None:
    pid = start(SHIPS, 0)
    capture = capture_here(PROBE, sys.executable, path=tool)
    reading = interpret(PROBE, capture)
    assert any(one.pid == pid for one in reading.facts.profiles)
    first = diagnose([seen(reading, "n1/rank.profiles")]).verdict.hypothesis
    assert (first.cause, first.subject.get("rank")) == ("cpu.gil_contention", 0)
    assert "ship (" in first.says


@pytest.mark.skipif(not shutil.which("perf"), reason="no perf here")
def test_an_extension_that_calls_back_into_python_is_seen_by_its_native_frames(
    start: Callable[[str, int], int], tool: str
) -> None:
    pid = start(CALLS_BACK, 0)
    reading = interpret(PROBE, capture_here(PROBE, sys.executable, path=tool))
    one = next(one for one in reading.facts.profiles if one.pid == pid and one.native)
    if "paranoid" in one.why:
        pytest.skip(one.why)
    assert one.profile is not None and one.profile.native, one.why
    ((extension, count), *_) = one.profile.callbacks
    assert "sqlite" in extension and count > 0.5 * one.profile.total > 2
    first = diagnose([seen(reading, "n1/rank.profiles")]).verdict.hypothesis
    assert (first.cause, first.subject.get("rank")) == ("cpu.native_callback", 0)


def test_a_rank_that_only_waits_has_no_samples_and_no_blame(start: Callable[[str, int], int], tool: str) -> None:
    pid = start(WAITS, 1)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S", 10, "it sleeps")
    reading = interpret(PROBE, capture_here(PROBE, sys.executable, path=tool))
    mine = [one for one in reading.facts.profiles if one.pid == pid and not one.native]
    assert [(one.profile, one.why) for one in mine] == [
        (None, "no thread of it ran while it was sampled: it waits")
    ] * 2
    assert not [one for one in reading.findings if one.subject.get("pid") == pid]
    assert diagnose([seen(reading, "n1/rank.profiles")]).verdict.hypothesis.cause in ("none", "unknown")


def test_without_py_spy_it_is_said_of_each_rank(start: Callable[[str, int], int], tmp_path: Path) -> None:
    pid = start(TRAINS, 0)
    reading = interpret(PROBE, capture_here(PROBE, sys.executable, path=str(tmp_path)))
    (finding,) = [one for one in reading.findings if one.subject.get("pid") == pid]
    assert "py-spy is not on PATH" in finding.says


@pytest.mark.parametrize("row", ["{}", '{"pid": "x", "text": "", "why": ""}', "not json", '{"pid": 1, "text": 3}'])
def test_what_the_collector_does_not_write_is_refused(row: str) -> None:
    head = '==> golden15/tool <==\n{"tool": "py-spy", "left_out": 0, "seconds": 3}\n'
    with pytest.raises(ParseError):
        parse(f"{head}==> golden15/profile 1 all <==\n{row}\n")
