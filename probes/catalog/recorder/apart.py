"""Reads flight-recorder dumps on the dashboard's side, in a process apart with little memory and time.

A helper process holds nothing but the reducer; it forks, and only forks decode. A dump that eats memory or time ends
its fork, which costs no other dump anything. Starting Python once per dump would cost five times as much as reading it.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from probes.catalog.recorder.decode import Refused
from probes.catalog.recorder.facts import Dump, dump_of
from probes.catalog.recorder.reader import LIMITS

# The helper forks; the fork reads dumps from the helper's own input and answers to its output, DUMPS of them, then ends
# and is followed by the next. Over `said` it tells the helper when it begins with a dump and when it has answered.
PROGRAM = """
import json, os, resource, signal, struct, sys, time
sys.path.insert(0, sys.argv[1])
from probes.catalog.recorder import reader as recorder
from probes.catalog.recorder import decode as decoder
limits, dumps = json.loads(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]

def exactly(size):
    found = bytearray()
    while len(found) < size:
        part = os.read(0, min(size - len(found), 1048576))
        if not part:
            return None
        found += part
    return bytes(found)

def told(data):
    more = int(time.process_time()) + 1 + limits["cpu_s"]
    resource.setrlimit(resource.RLIMIT_CPU, (more if hard < 0 else min(more, hard), hard))
    try:
        return {"reduced": recorder.reduce(data, limits)}
    except decoder.Refused as error:
        return {"refused": str(error)}
    except (MemoryError, RecursionError):
        return {"refused": "it asks for more memory than a dump needs"}

def answer(words):
    text = json.dumps(words).encode()
    left = memoryview(struct.pack(">Q", len(text)) + text)
    while left:
        left = left[os.write(1, left):]

def work(said):
    decoder.confine_memory(limits)
    for _ in range(dumps):
        head = exactly(8)
        data = exactly(struct.unpack(">Q", head)[0]) if head else None
        if data is None:
            return 3
        os.write(said, b"begun")
        answer(told(data))
        os.write(said, b"ended")
    return 0

while True:
    heard, said = os.pipe()
    pid = os.fork()
    if not pid:
        os._exit(work(said))
    os.close(said)
    status = os.waitpid(pid, 0)[1]
    words = b""
    while part := os.read(heard, 4096):
        words += part
    os.close(heard)
    if words.endswith(b"begun"):
        signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        answer({"signal": signalled, "status": os.WEXITSTATUS(status)})
    elif status:
        break
"""
DUMPS = 64  # that one fork reads, one after the other: to fork and to ask for memory takes as long as half a dump
PATIENCE_S = 30.0  # the limit of CPU time ends it before, unless this machine is very busy
MOST = 8_388_608  # bytes of an answer


class Apart:
    """One helper process. Used by one thread at a time; a helper that does not answer is ended and started again."""

    def __init__(self, limits: Mapping[str, int] = LIMITS) -> None:
        self.limits = dict(limits)
        self._helper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Apart:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reduce(self, data: bytes) -> dict[str, Any]:
        """As _flight_recorder.reduce. Raises Refused, also when the process that read the dump had to be ended."""
        data = data[: self.limits["input_bytes"] + 1]
        try:
            told = json.loads(self._exchange(struct.pack(">Q", len(data)) + data))
        except (OSError, ValueError, EOFError):
            self.close()
            raise Refused("the process that read it ended without an answer") from None
        if told.get("signal") in (signal.SIGXCPU, signal.SIGKILL):
            raise Refused(f"it takes more than {self.limits['cpu_s']} s to read, which no dump does")
        if "status" in told:
            raise Refused(f"the process that read it ended with status {-told['signal'] or told['status']}")
        if "refused" in told:
            raise Refused(told["refused"])
        return dict(told["reduced"])

    def close(self) -> None:
        """End the helper and what it has forked."""
        helper, self._helper = self._helper, None
        if helper is None:
            return
        with helper:
            if helper.poll() is None:
                os.killpg(helper.pid, signal.SIGKILL)

    def _exchange(self, request: bytes) -> bytes:
        if self._helper is None:
            root = str(Path(__file__).parents[3])
            self._helper = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, root, json.dumps(self.limits), str(DUMPS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        assert self._helper.stdin is not None
        self._helper.stdin.write(request)
        self._helper.stdin.flush()
        until = time.monotonic() + PATIENCE_S
        (size,) = struct.unpack(">Q", self._answered(8, until))
        if size > MOST:
            raise EOFError
        return self._answered(size, until)

    def _answered(self, size: int, until: float) -> bytes:
        assert self._helper is not None and self._helper.stdout is not None
        number, found = self._helper.stdout.fileno(), b""
        while len(found) < size:
            ready, _, _ = select.select([number], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self.close()
                raise Refused(f"it was not read within {PATIENCE_S:g} s")
            part = os.read(number, size - len(found))
            if not part:
                raise EOFError
            found += part
        return found


def reduce_apart(data: bytes, limits: Mapping[str, int] = LIMITS) -> dict[str, Any]:
    """One dump, with a helper of its own. Raises Refused."""
    with Apart(limits) as apart:
        return apart.reduce(data)


def dump_from_file(name: str, data: bytes, mtime: float | None = None) -> Dump:
    """The Dump in a file that torch named: the rank is the number at the end of its name, -1 when there is none.

    Raises Refused, and ParseError as dump_of.
    """
    rank = re.search(r"(\d{1,6})(?:\.json|\.pickle|\.pkl|\.txt)?$", name)
    stamp = {"rank": int(rank.group(1)) if rank else -1, "pid": None, "host": "", "world_size": None, "how": "file"}
    return dump_of(reduce_apart(data), {**stamp, "path": name, "mtime": mtime, "at": mtime, "bytes": len(data)})
