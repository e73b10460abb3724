"""Reads a flight-recorder dump on the dashboard's side, in a process of its own with little memory and time.

For files that people bring: a dump itself says neither its rank nor its node.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probes.catalog._flight_recorder import LIMITS
from probes.catalog._flight_recorder_decode import Refused
from probes.catalog._flight_recorder_facts import Dump, dump_of

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from probes.catalog import _flight_recorder as recorder, _flight_recorder_decode as decoder
limits = json.loads(sys.argv[2])
decoder.confine(limits)
try:
    told = {"reduced": recorder.reduce(sys.stdin.buffer.read(limits["input_bytes"] + 1), limits)}
except decoder.Refused as error:
    told = {"refused": str(error)}
except (MemoryError, RecursionError):
    told = {"refused": "it asks for more memory than a dump needs"}
print(json.dumps(told))
"""
PATIENCE_S = 30.0  # the limit of CPU time ends it before, unless this machine is very busy


def reduce_apart(data: bytes, limits: Mapping[str, int] = LIMITS) -> dict[str, Any]:
    """As _flight_recorder.reduce. Raises Refused, also when the process that read the dump had to be ended."""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, root, json.dumps(dict(limits))]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise Refused(f"it was not read within {PATIENCE_S:g} s") from None
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise Refused(f"it takes more than {limits['cpu_s']} s to read, which no dump does")
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise Refused(f"the process that read it ended with status {done.returncode}") from None
    if "refused" in told:
        raise Refused(told["refused"])
    return dict(told["reduced"])


def dump_from_file(name: str, data: bytes, mtime: float | None = None) -> Dump:
    """The Dump in a file that torch named: the rank is the number at the end of its name, -1 when there is none.

    Raises Refused, and ParseError as dump_of.
    """
    rank = re.search(r"(\d{1,6})(?:\.json|\.pickle|\.pkl|\.txt)?$", name)
    stamp = {"rank": int(rank.group(1)) if rank else -1, "pid": None, "host": "", "world_size": None, "how": "file"}
    return dump_of(reduce_apart(data), {**stamp, "path": name, "mtime": mtime, "at": mtime, "bytes": len(data)})
