"""python -m probes, against real sshds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sshd_nodes import Lab, free_port


def test_the_command_prints_what_a_person_needs(lab: Lab) -> None:
    lab.start("gpu-001")
    lab.name("gpu-002", lab.address(), free_port())
    lab.name("gpu-003", lab.address(), free_port())
    base = [
        sys.executable,
        "-m",
        "probes",
        "run",
        "--nodes",
        "gpu-[001-003]",
        "--suite",
        "check",
        "-F",
        str(lab.config),
    ]
    said = subprocess.run(base, capture_output=True, text=True, timeout=60)
    assert said.returncode == 1
    assert "No answer: gpu-[002-003] connection refused: start sshd there" in said.stdout
    assert "1 of 3 nodes answered" in said.stdout
    lines = [
        json.loads(line)
        for line in subprocess.run([*base, "--json"], capture_output=True, text=True).stdout.splitlines()
    ]
    assert {line["schema"] for line in lines} == {1}
    assert [line["kind"] for line in lines].count("reading") == 6
    assert [line["kind"] for line in lines].count("node") == 3
    assert lines[-1]["kind"] == "summary"
    assert lines[-1]["silent"] == 2


def test_saved_captures_replay_to_the_same_readings(lab: Lab, tmp_path: Path) -> None:
    lab.start("gpu-001")
    lab.name("gpu-002", lab.address(), free_port())
    base = [sys.executable, "-m", "probes", "run", "--suite", "check", "--json"]
    live = subprocess.run(
        [*base, "--nodes", "gpu-[001-002]", "-F", str(lab.config), "--save", str(tmp_path / "saved")],
        capture_output=True,
        text=True,
    )
    again = subprocess.run([*base, "--replay", str(tmp_path / "saved")], capture_output=True, text=True)

    def readings(text: str) -> dict[tuple[str, str], object]:
        lines = [json.loads(line) for line in text.splitlines()]
        return {
            (x["node"], x["probe"]): {k: x[k] for k in ("outcome", "why", "facts", "findings", "at")}
            for x in lines
            if x["kind"] == "reading"
        }

    assert readings(live.stdout) == readings(again.stdout)
    assert len(readings(again.stdout)) == 4


def test_a_probe_is_recorded_from_a_real_node_as_a_draft_case(lab: Lab, tmp_path: Path) -> None:
    lab.start("gpu-001")
    command = [
        sys.executable,
        "-m",
        "probes",
        "record",
        "gpu-001",
        "host.clock",
        "fine",
        "--into",
        str(tmp_path / "cases"),
        "-F",
        str(lab.config),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "golden15/pings" in (tmp_path / "cases/host.clock/fine.out").read_text()
    draft = json.loads((tmp_path / "cases/host.clock/fine.json").read_text())
    assert "offset_s" in draft["facts"]
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def probes(*words: str, **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "probes", *words], capture_output=True, text=True, timeout=60, **how)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--nodes", "gpu-[1-"], "is not a nodeset such as gpu-[001-064]"),
        (["run", "--nodes", "a;b"], "is not a node name"),
        (["run", "--hosts", "/no/such/file"], "/no/such/file: No such file"),
        (["run", "--local", "--suite", "everything"], "no suite or probe is called 'everything'"),
        (["run", "--nodes", "a", "-F", "/no/such/file"], "no such SSH configuration file"),
        (["run", "--nodes", "a", "--known-hosts", "/no/such/file"], "no such known_hosts file"),
        (["run", "--replay", "/no/such/folder"], "no such folder"),
        (["run", "--local", "--save", "/usr"], "/usr is not empty"),
        (["record", "local", "no.such", "case"], "no probe is called no.such"),
        (["record", "local", "host.clock", "../../etc"], "is not a case name"),
        (["run", "--nodes", "a", "--port", "99999"], "is not a port"),
        (["run", "--nodes", "a", "--time", "0.5"], "is not a whole number above 0"),
        (["run", "--local", "--log-paths", "/etc/shadow"], "no log is read there"),
        (["run", "--local", "--suite", "gpu", "--log-paths", "/logs/*"], "gpu reads no logs"),
        (["run", "--replay", "/no/such/folder", "--log-paths", "/logs/*"], "captures that were saved hold what they"),
    ],
)
def test_bad_input_is_one_clear_line(words: list[str], says: str) -> None:
    done = probes(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_absent_is_said_and_an_empty_bundle_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "bundle" / "gpu-001").mkdir(parents=True)
    (tmp_path / "bundle" / "gpu-001" / "captures.json").write_text(
        '{"gpu.state": {"outcome": "absent", "why": "no GPU"}}'
    )
    done = probes("run", "--replay", str(tmp_path / "bundle"))
    assert "Absent: gpu-001 gpu.state: no GPU" in done.stdout
    assert "1 of 1 node answered; 1 reading. Nothing wrong found." in done.stdout
    (tmp_path / "hollow" / "gpu-001").mkdir(parents=True)
    assert "hold no captures" in probes("run", "--replay", str(tmp_path / "hollow")).stderr


def test_a_home_that_cannot_be_read_does_not_stop_the_command(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").symlink_to(tmp_path / ".ssh" / "config")  # a loop: reading fails for root too
    done = probes("list", env={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr


def test_a_hostfile_comes_from_standard_input_and_ansible_ranges_are_read(lab: Lab) -> None:
    lab.name("gpu-001", lab.address(), free_port())
    lab.name("gpu-002", lab.address(), free_port())
    done = probes("run", "--hosts", "-", "--suite", "check", "-F", str(lab.config), input="[all]\ngpu-[001:002]\n")
    assert "No answer: gpu-[001-002] connection refused" in done.stdout


def test_known_hosts_on_the_command_line_wins_over_the_configuration(lab: Lab, tmp_path: Path) -> None:
    lab.start("gpu-001")
    (tmp_path / "empty").touch()
    words = ("run", "--nodes", "gpu-001", "--suite", "check", "-F", str(lab.config))
    assert probes(*words).returncode == 0
    done = probes(*words, "--known-hosts", str(tmp_path / "empty"))
    assert done.returncode == 1
    assert "host key not accepted yet (SHA256:" in done.stdout
    assert "then add the key to known_hosts" in done.stdout
