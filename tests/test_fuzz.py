"""Every parser meets spoiled recordings: it says what is wrong or reads what is left, in little time and memory.

A failure names target and seed: `python -m tests.support.fuzzing SEED 1 TARGET` does it again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from probes import catalog
from probes.intake.tools import tools
from tests.support import fuzzing
from tests.support.mutate import mutated

BASE = Path(__file__).parent.parent


def troubles(first: int, count: int, *targets: str, timeout: float = 250) -> list[object]:
    """What went wrong with `count` inputs of each target, all of them by default."""
    command = [sys.executable, "-m", "tests.support.fuzzing", str(first), str(count), *targets]
    done = subprocess.run(command, cwd=BASE, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-2000:]
    *found, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last["done"] == count * (len(targets) or len(fuzzing.targets())), "it came to its end"
    return found


@pytest.mark.timeout(300)
def test_no_spoiled_recording_stops_a_parser_or_takes_long() -> None:
    assert troubles(1, 25) == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", list(fuzzing.targets()))
def test_no_spoiled_recording_of_thousands_does(target: str) -> None:
    assert troubles(100_000, 3000, target, timeout=800) == []


def test_every_probe_and_tool_is_fed() -> None:
    fed = set(fuzzing.targets())
    assert set(catalog.load()) <= fed
    assert {f"tool {tool.name}" for tool in tools()} <= fed


def test_the_same_seed_spoils_in_the_same_way_and_others_differ() -> None:
    data = (BASE / "tests/fixtures/hangs/loader_slow/pyspy_nb_rank1.json").read_bytes()
    made = [mutated(data, b"other", seed) for seed in range(50)]
    assert made == [mutated(data, b"other", seed) for seed in range(50)]
    assert len(set(made)) > 40


def test_a_parser_that_hangs_or_stops_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes) -> None:
        while True:
            pass

    def stops(data: bytes) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr(fuzzing, "CPU_S", 0.05)
    monkeypatch.setattr(fuzzing, "targets", lambda: {"slow": (slow, list_of), "stops": (stops, list_of)})
    what = {found["target"]: found["what"] for found in fuzzing.run(1, 1, ["slow", "stops"])}
    assert what == {"slow": "more than 0.05 s of CPU", "stops": "KeyError: 'unforeseen'"}


def list_of() -> list[Path]:
    return list(fuzzing.recordings()[:1])
