"""The runner, alone: started as on a node, spoken to over pipes, on every Python there is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.core import Finding, Probe
from probes.runner import Absent, Denied, isolate, sh
from probes.transport.protocol import BOOT_ARGS, Plan, collector_source
from tests.support.sshd_nodes import FrozenMount
from tests.support.wait import until

PYTHONS = sorted(
    {
        str(path.resolve())
        for name in (
            "python3.6",
            "python3.7",
            "python3.8",
            "python3.9",
            "python3.10",
            "python3.11",
            "python3.12",
            "python3.13",
        )
        for path in [
            *Path.home().glob(f".pyenv/versions/{name[6:]}.*/bin/python"),
            *map(Path, filter(None, [shutil.which(name)])),
        ]
        if path.exists() and "shims" not in str(path)
    }
    | {"/usr/bin/python3"}
)


def nothing(_: Any) -> list[Finding]:
    return []


def probe(name: str, **how: Any) -> Probe[str]:
    return Probe(name, "?", str, nothing, **how)


def messages(output: bytes) -> list[dict[str, Any]]:
    return [json.loads(line.partition(b"@golden15 ")[2]) for line in output.splitlines() if b"@golden15 {" in line]


def run(plan: Plan, python: str = sys.executable) -> dict[str, dict[str, Any]]:
    """Captures by probe, from `python3 -I -S - < program`, as a person could start it by hand."""
    done = subprocess.run(
        [python, "-I", "-S", "-"], input=plan.source(watch_stdin=False).encode(), capture_output=True, timeout=60
    )
    assert not done.stderr, done.stderr.decode()
    return {said["probe"]: said for said in messages(done.stdout) if said["kind"] == "capture"}


@pytest.fixture
def started() -> Iterator[Any]:
    """Starts the runner as the SSH transport does, keeping its standard input open; ends it afterwards."""
    running: list[subprocess.Popen[bytes]] = []

    def start(plan: Plan) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *BOOT_ARGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        running.append(process)
        assert process.stdin and process.stdout
        assert process.stdout.readline() == b"@golden15 ready\n"
        process.stdin.write(plan.program())
        process.stdin.flush()
        assert b'"hello"' in process.stdout.readline()
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe
            pipe.close()


def alive(marker: str) -> list[str]:
    """Processes whose command line holds the marker."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and marker.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found


def two_parts() -> dict[str, str]:
    """Annotations and a docstring that Python 3.6 could not all compile."""
    numbers: list[int] = [1, 2]
    return {"first": "one\ntwo", "second": f"{len(numbers)} bytes: \udcff"}


@pytest.mark.parametrize(
    "python", PYTHONS, ids=lambda path: Path(path).name if "pyenv" not in path else path.split("/")[4]
)
def test_every_python_there_is_runs_commands_and_collectors(python: str) -> None:
    plan = Plan((probe("a.command", command=("echo", "hello")), probe("a.collect", collect=two_parts)))
    said = run(plan, python)
    assert said["a.command"]["outcome"] == "ok"
    assert said["a.command"]["out"] == "hello\n"
    assert said["a.collect"]["out"] == "==> first <==\none\ntwo\n\n==> second <==\n2 bytes: \udcff\n\n"


def test_collectors_are_sent_without_annotations_and_docstring() -> None:
    source = collector_source(two_parts)
    assert "->" not in source
    assert "list[int]" not in source
    assert "Annotations and" not in source
    compile(source, "collect", "exec")


def refuse() -> dict[str, str]:
    raise Denied("allow it in sudoers")


def missing() -> dict[str, str]:
    raise Absent("no such card")


def broken() -> dict[str, str]:
    raise OSError("boom")


def test_each_way_to_fail_has_its_own_outcome_and_says_why() -> None:
    said = run(
        Plan(
            (
                probe("a.denied", collect=refuse),
                probe("a.absent", collect=missing),
                probe("a.broken", collect=broken),
                probe("a.status", command=("sh", "-c", "echo out; echo err >&2; exit 3")),
                probe("a.nocommand", command=("golden15-no-such-command",)),
                probe("a.slow", command=("sleep", "30"), timeout_s=0.3),
            )
        )
    )
    assert (said["a.denied"]["outcome"], said["a.denied"]["why"]) == ("denied", "allow it in sudoers")
    assert (said["a.absent"]["outcome"], said["a.absent"]["why"]) == ("absent", "no such card")
    assert (said["a.broken"]["outcome"], "boom" in said["a.broken"]["why"]) == ("failed", True)
    assert (said["a.status"]["outcome"], said["a.status"]["rc"]) == ("failed", 3)
    assert (said["a.status"]["out"], said["a.status"]["err"]) == ("out\n", "err\n")
    assert said["a.nocommand"]["outcome"] == "absent"
    assert said["a.slow"]["outcome"] == "timeout"
    assert "0.3 s" in said["a.slow"]["why"]


def test_a_slow_probe_does_not_delay_the_others(started: Any) -> None:
    process = started(
        Plan((probe("a.slow", command=("sleep", "30"), timeout_s=3), probe("a.fast", command=("echo", "x"))))
    )
    began = time.monotonic()
    assert json.loads(process.stdout.readline()[10:])["probe"] == "a.fast"
    assert time.monotonic() - began < 2


def test_a_probe_that_prints_without_end_is_stopped_at_its_cap_and_its_first_bytes_are_kept() -> None:
    said = run(Plan((probe("a.flood", command=("yes",), max_bytes=1000), probe("a.fine", command=("echo", "x")))))
    assert said["a.flood"]["outcome"] == "failed"
    assert said["a.flood"]["truncated"] is True
    assert "1000 bytes" in said["a.flood"]["why"]
    assert said["a.flood"]["out"].startswith("y\ny\n")
    assert len(said["a.flood"]["out"]) <= 1001
    assert said["a.fine"]["outcome"] == "ok"


def flooding_tool() -> dict[str, str]:
    status, out, err = sh(["yes"], 5000)
    return {"answer": f"{status} {len(out)}"}


def test_a_tool_that_a_collector_runs_is_stopped_at_its_cap() -> None:
    said = run(Plan((probe("a.tool", collect=flooding_tool),)))
    assert said["a.tool"]["out"] == "==> answer <==\n-25 5000\n\n"


def test_output_over_the_nodes_budget_is_dropped_and_said() -> None:
    big = ("sh", "-c", "head -c 3000 /dev/zero | tr '\\0' a")
    said = run(Plan((probe("a.one", command=big), probe("a.two", command=big)), max_bytes=4000, parallel=1))
    assert said["a.one"]["outcome"] == "ok"
    assert said["a.two"]["outcome"] == "failed"
    assert "4000 bytes" in said["a.two"]["why"]


def test_the_nodes_deadline_ends_what_runs_and_skips_what_has_not_begun() -> None:
    slow = [probe(f"a.slow{i}", command=("sleep", "30"), timeout_s=30) for i in range(3)]
    began = time.monotonic()
    said = run(Plan(tuple(slow), deadline_s=1, parallel=2))
    assert time.monotonic() - began < 6
    assert [said[f"a.slow{i}"]["outcome"] for i in range(3)] == ["timeout", "timeout", "skipped"]


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


def says_much() -> dict[str, str]:
    raise Absent("é" * 5000)


def test_a_long_reason_is_cut_and_keeps_its_outcome() -> None:
    said = run(Plan((probe("a.long", collect=says_much),)))
    assert said["a.long"]["outcome"] == "absent"
    assert said["a.long"]["why"] == "é" * 400


def test_output_of_one_byte_more_than_the_cap_is_called_cut() -> None:
    for size, cut in ((1000, False), (1001, True)):
        said = run(Plan((probe("a.size", command=("head", "-c", str(size), "/dev/zero"), max_bytes=1000),)))
        assert said["a.size"]["truncated"] is cut, size


def test_a_limit_on_file_sizes_that_the_node_sets_is_lived_with() -> None:
    source = Plan((probe("a.echo", command=("echo", "x")), probe("a.parts", collect=two_parts))).source(False)
    limited = f"ulimit -f 100; exec {sys.executable} -I -S -"
    done = subprocess.run(["bash", "-c", limited], input=source.encode(), capture_output=True, timeout=30)
    assert [said["outcome"] for said in messages(done.stdout) if said["kind"] == "capture"] == ["ok", "ok"]


@pytest.mark.needs_root
def test_a_node_that_has_no_process_left_to_give_says_so(tmp_path: Path) -> None:
    """As a control group at its limit of processes. The user has no other processes, so the limit is exact."""
    plan = Plan(tuple(probe(f"a.p{i}", command=("sleep", "1")) for i in range(4)))
    script = tmp_path / "program"
    script.write_text(plan.source(False))
    tmp_path.chmod(0o755)
    python = "/usr/bin/python3"
    limited = f"ulimit -u 2; exec setpriv --reuid 64999 --clear-groups {python} -I -S -"
    with script.open("rb") as source:
        done = subprocess.run(["bash", "-c", limited], stdin=source, capture_output=True, timeout=30)
    outcomes = {said["probe"]: said for said in messages(done.stdout) if said["kind"] == "capture"}
    assert len(outcomes) == 4, done.stderr
    refused = [said["why"] for said in outcomes.values() if said["outcome"] == "failed"]
    assert len(refused) == 3
    assert "no process could be started on the node" in refused[0]


def test_the_runner_answers_pings_while_probes_run(started: Any) -> None:
    process = started(Plan((probe("a.slow", command=("sleep", "30"), timeout_s=20),), deadline_s=30))
    before = time.time()
    process.stdin.write(b"ping 7\n")
    process.stdin.flush()
    said = json.loads(process.stdout.readline()[10:])
    assert (said["kind"], said["n"]) == ("pong", "7")
    assert before <= float(said["at"]) <= time.time()


def test_probes_that_touch_the_driver_run_one_after_another(tmp_path: Path) -> None:
    command = ("sh", "-c", f"mkdir {tmp_path}/lock || exit 9; sleep 0.2; rmdir {tmp_path}/lock")
    probes = tuple(probe(f"a.p{i}", command=command, touches="driver") for i in range(3))
    said = run(Plan(probes))
    assert [said[p.name]["outcome"] for p in probes] == ["ok", "ok", "ok"]


def one_slow_of_two() -> dict[str, str]:
    def quick():
        return "quick"

    def slow():
        import time

        time.sleep(30)
        return "never"

    results = isolate([("quick", quick), ("slow", slow)], 0.5)
    return {result["name"]: "{outcome} {text}".format(**result) for result in results}


def test_isolated_calls_fail_alone() -> None:
    said = run(Plan((probe("a.isolate", collect=one_slow_of_two),)))
    assert said["a.isolate"]["out"] == "==> quick <==\nok quick\n\n==> slow <==\ntimeout \n\n"


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
