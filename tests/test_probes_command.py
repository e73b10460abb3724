"""python -m probes, against real sshds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
