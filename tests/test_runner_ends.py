"""The runner leaves nothing behind, however it ends, and lives with nodes that are at their limits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.core import Probe
from probes.runner import sh
from probes.transport.plan import Plan
from tests.support.runners import alive, messages, nothing, probe, run, started, two_parts
from tests.support.sshd_nodes import FrozenMount
from tests.support.wait import until

__all__ = ["started"]  # a fixture


def test_the_end_of_input_ends_every_child(started: Any) -> None:
    marker = "31536001"
    process = started(Plan((probe("a.slow", command=("sleep", marker), timeout_s=60),), deadline_s=60))
    until(lambda: alive(marker), 10, "the child to run")
    process.stdin.close()
    until(lambda: process.poll() is not None, 5, "the runner to end")
    until(lambda: not alive(marker), 5, "the child to be gone")


def test_children_die_with_a_runner_that_is_killed(started: Any) -> None:
    marker = "31536002"
    process = started(Plan((probe("a.slow", command=("sleep", marker), timeout_s=60),), deadline_s=60))
    until(lambda: alive(marker), 10, "the child to run")
    process.send_signal(signal.SIGKILL)
    until(lambda: not alive(marker), 5, "the child to be gone")


def test_a_controller_that_stops_reading_does_not_keep_the_runner_for_ever(started: Any) -> None:
    noise = ("head", "-c", "200000", "/dev/urandom")  # more than a pipe holds, and it does not compress
    process = started(
        Plan((probe("a.noise", command=noise), probe("a.slow", command=("sleep", "31536004"))), deadline_s=1)
    )
    until(lambda: process.poll() is not None, 15, "the runner to end by its own alarm")
    assert not alive("31536004")


def test_what_a_probe_leaves_in_the_background_is_ended() -> None:
    marker = "31536003"
    said = run(Plan((probe("a.leaves", command=("sh", "-c", f"sleep {marker} & echo done")),)))
    assert said["a.leaves"]["outcome"] == "ok"
    assert not alive(marker)


def test_what_a_probe_put_into_a_session_of_its_own_is_ended_too() -> None:
    marker = "31536005"
    said = run(Plan((probe("a.escapes", command=("sh", "-c", f"setsid sleep {marker} & echo done")),)))
    assert said["a.escapes"]["outcome"] == "ok"
    until(lambda: not alive(marker), 5, "the escaped child to be gone")


def runs_a_tool() -> dict[str, str]:
    sh(["sleep", "31536006"])
    return {}


def test_a_tool_that_a_collector_runs_dies_with_a_runner_that_is_killed(started: Any) -> None:
    process = started(Plan((probe("a.tool", collect=runs_a_tool, timeout_s=60),), deadline_s=60))
    until(lambda: alive("31536006"), 10, "the tool to run")
    process.send_signal(signal.SIGKILL)
    until(lambda: not alive("31536006"), 5, "the tool to be gone")


def test_a_limit_on_file_sizes_that_the_node_sets_is_lived_with() -> None:
    source = Plan((probe("a.echo", command=("echo", "x")), probe("a.parts", collect=two_parts))).source(False)
    limited = f"ulimit -f 100; exec {sys.executable} -I -S -"
    done = subprocess.run(["bash", "-c", limited], input=source.encode(), capture_output=True, timeout=30)
    assert [said["outcome"] for said in messages(done.stdout) if said["kind"] == "capture"] == ["ok", "ok"]


@pytest.mark.needs_root
@pytest.mark.parametrize("room", [0, 1])
def test_where_one_process_fits_probes_run_one_by_one_and_where_none_fits_they_say_so(
    tmp_path: Path, room: int
) -> None:
    """As a control group at its limit of processes. The user has no other processes, so the limit is exact."""
    plan = Plan(tuple(probe(f"a.p{i}", command=("sleep", "0.1")) for i in range(4)))
    script = tmp_path / "program"
    script.write_text(plan.source(False))
    tmp_path.chmod(0o755)
    python = "/usr/bin/python3"
    limited = f"ulimit -u {1 + room}; exec setpriv --reuid 64999 --clear-groups {python} -I -S -"
    with script.open("rb") as source:
        done = subprocess.run(["bash", "-c", limited], stdin=source, capture_output=True, timeout=30)
    outcomes = {said["probe"]: said for said in messages(done.stdout) if said["kind"] == "capture"}
    assert len(outcomes) == 4, done.stderr
    refused = [said["why"] for said in outcomes.values() if said["outcome"] == "failed"]
    assert len(refused) == (0 if room else 4)
    assert all("no process could be started on the node" in why for why in refused)


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[FrozenMount]:
    with FrozenMount(tmp_path) as mount:
        yield mount


@pytest.mark.needs_root
@pytest.mark.parametrize("how", ["directly", "below a shell", "in an isolated call"])
def test_a_child_that_cannot_be_killed_is_abandoned_and_named(frozen: FrozenMount, how: str) -> None:
    writes = f"echo x > {frozen.mount}/file"
    if how == "directly":
        wedged = probe(
            "a.wedged",
            command=("dd", "if=/dev/zero", f"of={frozen.mount}/file", "count=1"),
            timeout_s=0.5,
            touches="driver",
        )
    elif how == "below a shell":
        wedged = probe("a.wedged", command=("sh", "-c", f"(sh -c '{writes}'); true"), timeout_s=0.5, touches="driver")
    else:
        wedged = Probe(
            "a.wedged", "?", str, nothing, collect=isolated_write(frozen.mount), timeout_s=4, touches="driver"
        )
    began = time.monotonic()
    said = run(
        Plan(
            (wedged, probe("a.next", command=("echo", "x"), touches="driver"), probe("a.other", command=("echo", "x")))
        )
    )
    assert time.monotonic() - began < 8
    if how == "in an isolated call":
        assert said["a.wedged"]["outcome"] == "ok"
        assert '"outcome": "hung"' in said["a.wedged"]["out"]
        assert '"state": "D"' in said["a.wedged"]["out"]
    else:
        assert said["a.wedged"]["outcome"] == "hung"
        assert said["a.wedged"]["state"] == "D"
        assert said["a.wedged"]["wchan"] == "percpu_rwsem_wait"
    assert said["a.next"]["outcome"] == "skipped", "no more driver calls after one hung"
    assert "a.wedged" in said["a.next"]["why"]
    assert said["a.other"]["outcome"] == "ok"


def isolated_write(mount: Path) -> Any:
    """A collector with the path in its source; written to a module file so that its source can be found."""
    source = f"""
def collect():
    import json
    def write():
        open({str(mount / "file")!r}, "w").write("x")
        return "written"
    return {{"isolated": json.dumps(isolate([("write", write)], 0.5))}}
"""
    path = mount.parent / "collector.py"
    path.write_text(source)
    import importlib.util

    spec = importlib.util.spec_from_file_location("collector", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.collect
