"""Files read in a process of their own, with little memory and time: for a server that strangers bring files to.

Units    bytes, seconds
Shape    read_apart(files, limits, alive) -> Told: readings as plain JSON values, one at a time
Errors   Failed, with a sentence for people. What is wrong with single files is in `unread`
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from probes.core import Reading, facts_as_json, finding_as_json
from probes.intake.files import Given

MEMORY = 3_221_225_472  # of addresses, of which Python with its threads uses a part
SECONDS = 300
ANSWER = 536_870_912
MOST_READINGS, MOST_UNREAD = 20_000, 5_000
TICK_S = 1.0
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}  # ours holds passwords, which a reader of files needs not
_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from probes.intake import apart; apart.main()"


class Failed(Exception):
    """The files could not be read at all; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the process that reads: bytes of addresses, seconds of time and of CPU, bytes of its answer."""

    memory: int = MEMORY
    seconds: int = SECONDS
    answer: int = ANSWER


class Told:
    """What the files told. `readings` gives dicts with file, node, probe, outcome, why, facts and findings, once."""

    def __init__(self, answer: IO[bytes]) -> None:
        self._answer = answer
        self.unread: list[tuple[str, str]] = []
        self.asked: list[str] = []
        self.expected: Any = None
        self.looked_at = 0

    def readings(self) -> Iterator[dict[str, Any]]:
        for line in self._answer:
            said = json.loads(line)
            if "end" not in said:
                yield said
                continue
            end = said["end"]
            self.unread = [(file, why) for file, why in end["unread"]]
            self.asked, self.expected, self.looked_at = end["asked"], end["expected"], end["looked_at"]

    def close(self) -> None:
        self._answer.close()


def read_apart(files: Sequence[Given], limits: Limits | None = None, alive: Callable[[], None] = lambda: None) -> Told:
    """Read these files together. `alive` is called about every second while that takes. Raises Failed, and what
    `alive` raises, after the process was ended."""
    limits = limits or Limits()
    listing = json.dumps([[str(one.path), str(one.inside), one.mtime] for one in files]).encode()
    answer = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed by who reads it
    root = str(Path(__file__).parents[2])
    command = [
        sys.executable,
        "-I",
        "-B",
        "-c",
        _PROGRAM,
        root,
        json.dumps([limits.memory, limits.seconds, limits.answer]),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=answer, stderr=subprocess.PIPE, start_new_session=True, env=_ENVIRONMENT
    ) as child:
        try:
            said = _watch(child, listing, limits, alive)
        except BaseException:
            answer.close()
            raise
        finally:
            if child.poll() is None or child.returncode != 0:
                _end(child)
    if child.returncode != 0:
        answer.close()
        raise Failed(_why(child.returncode, said, limits))
    answer.seek(0)
    return Told(answer)


def _watch(child: subprocess.Popen[bytes], listing: bytes, limits: Limits, alive: Callable[[], None]) -> str:
    """Until it has ended or its time is over; the last that it said of itself."""
    assert child.stdin is not None and child.stderr is not None
    with contextlib.suppress(BrokenPipeError):  # it ended at once: how tells why
        child.stdin.write(listing)
        child.stdin.close()
    until, said, number = time.monotonic() + limits.seconds, b"", child.stderr.fileno()
    while True:
        ready, _, _ = select.select([number], [], [], TICK_S)
        if ready:
            part = os.read(number, 65_536)
            if not part:
                child.wait()
                return said.decode("utf-8", "replace")
            said = (said + part)[-4096:]
        if time.monotonic() > until:
            raise Failed(_too_long(limits))
        alive()


def _end(child: subprocess.Popen[bytes]) -> None:
    """The process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _too_long(limits: Limits) -> str:
    return f"They take more than {limits.seconds} s to read. Bring fewer or smaller files."


def _why(status: int, said: str, limits: Limits) -> str:
    if -status in (signal.SIGXCPU, signal.SIGKILL):
        return _too_long(limits)
    if -status == signal.SIGXFSZ or "File too large" in said:
        return "They tell more than is kept of one upload. Bring fewer files."
    if "MemoryError" in said:
        return f"They ask for more than {limits.memory >> 20} MiB of memory to read. Bring fewer or smaller files."
    last = said.strip().rpartition("\n")[2][:200]
    return f"The process that read them ended with status {status}{f': {last}' if last else ''}."


# In the child -------------------------------------------------------------------------------------------------------


def main() -> None:
    """What the process does: confine itself, read, and print one JSON object a line."""
    memory, seconds, answer = json.loads(sys.argv[2])
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_FSIZE, answer),
                       (resource.RLIMIT_CORE, 0)):  # fmt: skip
        resource.setrlimit(what, (most, most))
    listing = json.loads(sys.stdin.buffer.read())
    files = [Given(Path(path), PurePosixPath(inside), mtime) for path, inside, mtime in listing]
    for row in rows_of(files):
        sys.stdout.write(json.dumps(row, allow_nan=False) + "\n")
    sys.stdout.flush()


def rows_of(files: Sequence[Given]) -> Iterator[dict[str, Any]]:
    """The readings of these files as plain values, then one row `end` with the rest."""
    from probes import intake

    looked_at = 0

    def seen(count: int) -> None:
        nonlocal looked_at
        looked_at = count + 1

    found = intake.read(files, seen)
    unread = [(one.file, one.why) for one in found.unread]
    for ref, reading in found.readings[:MOST_READINGS]:
        try:
            yield _row(ref, reading)
        except (ValueError, TypeError) as error:
            unread.append((ref, f"what it tells cannot be kept: {str(error)[:120]}"))
    unread += [
        (ref, f"more than {MOST_READINGS} readings: this one is not kept") for ref, _ in found.readings[MOST_READINGS:]
    ]
    expected = found.expected.body() if found.expected is not None else None
    end = {"unread": unread[:MOST_UNREAD], "asked": list(found.asked), "expected": expected, "looked_at": looked_at}
    yield {"end": end}


def _row(ref: str, reading: Reading) -> dict[str, Any]:
    capture = reading.capture
    return {
        "file": ref,
        "node": capture.node,
        "probe": capture.probe,
        "outcome": reading.outcome,
        "why": reading.parse_error or capture.why,
        "facts": facts_as_json(reading.facts) if reading.facts is not None else None,
        "findings": [finding_as_json(one) for one in reading.findings],
        "at": capture.at,
    }
