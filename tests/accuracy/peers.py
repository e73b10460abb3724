"""What the tools that people have blame in the same files: torchrun's block, and torch's flight-recorder analyser.

Both name ranks and no cause, so only the rank is compared, where the truth has one.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Literal

from tests.accuracy.cases import Case

Blame = Literal["right", "wrong", "says nothing", "stopped"]
LAB = Path(__file__).parents[2] / ".venv-lab" / "bin" / "python"
ANALYSER = (str(LAB), "-m", "torch.distributed.flight_recorder.fr_trace")  # what the command torchfrtrace runs
_ROOT = re.compile(r"Root Cause \(first observed failure\):.{0,400}?rank\s*: (\d{1,7})", re.S)
_MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}|Culprit rank ([\d, ]+)")
MOST_BYTES = 67_108_864


def _ranks(case: Case) -> set[int]:
    return {int(truth["rank"]) for truth in case.accepted if "rank" in truth}


def _said(case: Case, named: set[int]) -> Blame:
    if not named:
        return "says nothing"
    return "right" if named <= _ranks(case) else "wrong"


def torchrun(case: Case, place: Path) -> Blame | None:
    """torchrun's root cause; None where the evidence holds no such block or the truth no rank."""
    if not _ranks(case):
        return None
    for file in sorted(place.rglob("*")):
        if file.is_file() and file.stat().st_size < MOST_BYTES:
            found = _ROOT.search(file.read_bytes().decode("utf-8", "replace"))
            if found:
                return _said(case, {int(found[1])})
    return None


def torchfrtrace(case: Case, place: Path) -> Blame | None:
    """The first mismatch that torch's analyser prints; None where there are no dumps of one name, or the truth has no
    rank. It unpickles what it reads: only files of this repository are given to it."""
    dumps = [file for file in place.rglob("*") if file.is_file() and file.open("rb").read(1) == b"\x80"]
    if not _ranks(case) or not dumps or not LAB.exists():
        return None
    prefixes = {re.sub(r"\d+$", "", file.name) for file in dumps}
    if len(prefixes) != 1 or not (prefix := prefixes.pop()):
        return None
    command = [*ANALYSER, str(dumps[0].parent), "-p", prefix]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=quiet, check=False)
    except subprocess.TimeoutExpired:
        return "stopped"
    first = _MISSING.search(done.stderr)
    if first is None:
        return "stopped" if "Traceback" in done.stderr else "says nothing"
    return _said(case, {int(word) for word in re.findall(r"\d+", first[1] or first[2])})
