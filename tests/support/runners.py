"""Starts the runner as on a node, without SSH, and looks at what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.core import Finding, Probe
from probes.transport.plan import Plan
from probes.transport.protocol import BOOT_ARGS

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
