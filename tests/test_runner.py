"""The runner, alone: what it asks and how it answers, on every Python there is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from probes.runner import Absent, Denied, isolate, sh
from probes.transport.plan import Plan, collector_source
from tests.support.runners import PYTHONS, probe, run, started, two_parts

__all__ = ["started"]  # a fixture


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
