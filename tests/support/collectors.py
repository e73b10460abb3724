"""Run one probe for real on this machine, as a node would: `python3 -I -S -` with the program on standard input."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probes.core import Capture, Probe
from probes.transport.plan import Plan
from probes.transport.protocol import MARK, to_capture


def old_and_new_pythons() -> list[str]:
    """The oldest Python 3.6 to 3.8 that runs here, and our own. A shim of pyenv that runs nothing is left out."""
    found = [sys.executable]
    for version in ("3.8", "3.7", "3.6"):
        places = [
            *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")),
            shutil.which(f"python{version}"),
        ]
        for path in filter(None, map(str, filter(None, places))):
            if "/shims/" not in path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
                found[1:] = [path]
                break
    return found


def capture_here(
    probe: Probe[Any],
    python: str = sys.executable,
    path: str = "",
    site: tuple[str, ...] = (),
    login: Mapping[str, str] | None = None,
    instead: Mapping[str, str] | None = None,
) -> Capture:
    """One capture. `path` goes before the PATH, for tools that are stood in for; `login` is more environment; `instead`
    names folders that stand in for those of the collector."""
    program = Plan((probe,), site=site).source(watch_stdin=False)
    for place, other in (instead or {}).items():
        assert place in program
        program = program.replace(place, other)
    env = {"PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"], **(login or {})}
    done = subprocess.run([python, "-I", "-S", "-"], input=program.encode(), capture_output=True, env=env, timeout=60)
    for line in done.stdout.splitlines():
        words = json.loads(line[len(MARK) :])
        if words["kind"] == "capture":
            return to_capture("here", probe, words)
    raise AssertionError(f"no capture: {done.stderr.decode()[-2000:]}")
