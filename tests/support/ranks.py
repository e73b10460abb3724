"""Stand-ins for training processes: real processes with the environment, children and names that torch gives them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

PORTS = itertools.count(20_000 + os.getpid() % 5_000 * 8)  # MASTER_PORT of jobs, so that tests tell theirs from others

# What the code of a stand-in may call. `worker`: a forked child, named as torch names data-loader workers; `name`: of
# the calling thread; `say`: a line for the test, which waits for it; `run`: another stand-in, perhaps with another
# environment.
PROGRAM = r"""
import ctypes, os, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def name(text): libc.prctl(15, text.encode(), 0, 0, 0)
def worker(text="pt_data_worker", then=lambda: time.sleep(600)):
    pid = os.fork()
    if not pid:
        name(text); say("worker", os.getpid()); then(); os._exit(0)
    return pid
def thread(text): threading.Thread(target=lambda: (name(text), time.sleep(600)), daemon=True).start()
def say(*words): os.write(1, (" ".join(map(str, words)) + "\n").encode())
def run(code, env=None, argv=None):
    program = "PROGRAM = %r\n" % PROGRAM + PROGRAM + code
    return subprocess.Popen((argv or [sys.executable, "-I", "-S", "-c"]) + [program], env=env)
def sleep(): time.sleep(600)
"""


def rank_env(rank: int, world: int, job: Mapping[str, str], **more: str) -> dict[str, str]:
    """What torchrun gives a rank of a one-node job."""
    numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    return {**numbers, "GROUP_RANK": "0", **job, **more}


def new_job(**more: str) -> dict[str, str]:
    """Variables that tell one job from all others on this machine."""
    port = str(next(PORTS))
    name = f"test-{os.getpid()}-{port}"  # tests run side by side
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": name, **more}


class Processes:
    """Stand-ins that run until the test ends. `start` returns when the program has said all it was expected to say."""

    def __init__(self) -> None:
        self.groups: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        code: str,
        env: Mapping[str, str],
        lines: int = 1,
        argv: tuple[str, ...] = (),
        python: str = sys.executable,
    ) -> tuple[int, dict[str, list[int]]]:
        """(pid, {word: numbers it said with it}); `code` may use the names in PROGRAM. `argv` stands before python."""
        program = f"PROGRAM = {PROGRAM!r}\n{PROGRAM}\n{code}"
        command = [*argv, python, "-I", "-S", "-c", program]
        started = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"], **env}, stdout=subprocess.PIPE, start_new_session=True
        )
        self.groups.append(started)
        assert started.stdout is not None
        said: dict[str, list[int]] = {}
        for _ in range(lines):
            line = started.stdout.readline().split()
            assert line, "a stand-in ended before it was ready"
            said.setdefault(line[0].decode(), []).extend(int(word) for word in line[1:])
        return started.pid, said

    def end(self) -> None:
        """All are killed before one is waited for: a debugger must go before what it holds."""
        for started in self.groups:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
        for started in self.groups:
            started.wait()
            if started.stdout:
                started.stdout.close()


@contextmanager
def processes() -> Iterator[Processes]:
    """Stand-ins that are ended with the block."""
    group = Processes()
    try:
        yield group
    finally:
        group.end()


def of_job(rows: list[dict[str, Any]], job: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of `ranks()` that belong to a job; others may run on this machine."""
    names = ("MASTER_PORT", "TORCHELASTIC_RUN_ID")
    return [row for row in rows if all(row["env"].get(name) == job[name] for name in names if name in job)]


def as_code(env: Mapping[str, str]) -> str:
    """An environment as a literal for `code`."""
    return json.dumps(dict(env))
