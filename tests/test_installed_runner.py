"""Nodes that let nobody send programs: the installed runner behind a forced command, on real sshds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from probes import catalog, suites
from probes.transport import installed
from tests.support.asking import ask, nothing_left
from tests.support.collectors import old_and_new_pythons
from tests.support.sshd_nodes import Lab


def hardened(lab: Lab, name: str, program: str = "") -> None:
    """A node whose key may run the installed runner and nothing else."""
    lab.start(name)
    runner = lab.folder / name / "golden15-runner"
    runner.write_text(program or installed.program())
    runner.chmod(0o755)
    key = (lab.folder / "id_lab.pub").read_text()
    line = f'restrict,command="python3 -ISu {runner}" {key}'
    (lab.folder / name / "authorized_keys").write_text(line)


def by_hand(lab: Lab, name: str, command: str, given: str) -> str:
    """What ssh(1) brings back."""
    line = ["ssh", "-F", str(lab.config), "-o", "StrictHostKeyChecking=yes", name, command]
    return subprocess.run(line, input=given, capture_output=True, text=True, timeout=30).stdout


@pytest.mark.parametrize("name", ["capture", "triage", "fabric", "verify"])
def test_a_suite_is_answered_as_by_any_other_node_and_nothing_is_left(lab: Lab, name: str) -> None:
    """An open node beside it, on the same machine, answers each probe with the same outcome."""
    hardened(lab, "hardened")
    lab.start("open")
    suite = suites.SUITES[name]
    captures, ends = ask(lab, ["hardened", "open"], suite.plan(), node_s=25, run_s=40)
    assert ends["hardened"].reason == ""
    for probe in suite.probes:
        reading = catalog.read(captures["hardened", probe])
        assert reading.outcome in ("ok", "absent", "denied"), (probe, reading.capture.why, reading.parse_error)
        assert reading.outcome == catalog.read(captures["open", probe]).outcome, (probe, reading.capture.why)
    if "host.clock" in suite.probes:
        clock = catalog.read(captures["hardened", "host.clock"])
        assert clock.facts.offset_s is not None, "the clock exchange goes over the same channel"
    nothing_left(lab)


def test_no_command_and_no_program_is_ever_run(lab: Lab, tmp_path: Path) -> None:
    hardened(lab, "hardened")
    proof = tmp_path / "proof"
    told = by_hand(lab, "hardened", f"touch {proof}", f"import os\nos.mknod({str(proof)!r})\n")
    assert "installed" in told and "expected one line of JSON with the names of probes" in told
    code = json.dumps({"probes": ["host.boots"], "deadline_s": 5, "modules": {"x": f"open({str(proof)!r}, 'w')"}})
    by_hand(lab, "hardened", "id", code + "\n")
    assert not proof.exists()


def test_a_probe_that_an_older_runner_lacks_says_to_install_the_present_one(lab: Lab) -> None:
    hardened(lab, "older", installed.program().replace("host.boots", "host.other"))
    captures, ends = ask(lab, ["older"], suites.suite_or_probe("host.boots").plan(), node_s=20, run_s=30)
    capture = captures["older", "host.boots"]
    assert (capture.outcome, ends["older"].reason) == ("skipped", "")
    assert "install the present one" in capture.why


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_the_file_runs_on_old_pythons_and_gives_up_with_its_input(python: str, tmp_path: Path) -> None:
    runner = tmp_path / "runner"
    runner.write_text(installed.program())
    asked = json.dumps({"probes": ["host.boots"], "deadline_s": 5})
    told = subprocess.run([python, "-ISu", runner], input=asked + "\n", capture_output=True, text=True, timeout=30)
    assert told.stdout.startswith("@golden15 installed\n") and '"kind": "hello"' in told.stdout


@pytest.mark.parametrize(
    "line", ["", "[]", '{"probes": "rank.map"', '{"probes": [], "deadline_s": "soon"}', "[" * 9000]
)
def test_anything_but_names_is_refused(line: str, tmp_path: Path) -> None:
    runner = tmp_path / "runner"
    runner.write_text(installed.program())
    done = subprocess.run(["python3", "-ISu", runner], input=line + "\n", capture_output=True, text=True, timeout=30)
    assert done.returncode == 64 and "expected one line of JSON" in done.stdout
