"""Processes that look like training ranks from outside, without torch: their environment, their names, their server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Stands in for a rank with torch's worker server: HTTP on a unix socket, in a thread with torch's own name for it.
PROGRAM = """
import json, os, socket, sys, threading
told = json.loads(sys.argv[1])

def say(line):
    os.write(1, (line + "\\n").encode())  # whole, whichever thread says it

def answer(client):
    asked = client.recv(65536).decode().split("\\r\\n")[0].split()
    if not asked:
        return
    name = asked[1].partition("/handler/")[2].partition("?")[0]
    say(" ".join(asked[:2]))
    answers = told["answers"]
    body = json.dumps(sorted(answers)).encode() if name == "" else open(answers[name], "rb").read()
    if told["mode"] == "silent" and name:
        return
    if told["mode"] == "not http":
        client.sendall(b"220 mail ready\\r\\n" * 9)
    else:
        head = "HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nContent-Type: text/plain\\r\\n\\r\\n" % len(body)
        client.sendall(head.encode() + body[: len(body) // 2 if told["mode"] == "short" and name else None])
        if told["mode"] != "short":
            return  # kept open, as torch does
    client.close()

def serve(listener):
    with open("/proc/self/task/%d/comm" % threading.get_native_id(), "w") as name:
        name.write(told["thread"])
    say("ready")
    kept = []
    while True:
        kept.append(listener.accept()[0])
        answer(kept[-1])

if told["socket"]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(told["socket"])
    listener.listen(8)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()

def wait_for_the_end_of_the_test():
    say("waiting")
    sys.stdin.read()

wait_for_the_end_of_the_test()
"""


class Rank:
    """One such process. `asked()` is what its server was asked so far."""

    def __init__(self, number: int, world: int, env: dict[str, str], told: dict[str, Any], program: Path, python: str):
        program.write_text(PROGRAM)
        words = {"socket": "", "thread": "pt_workerserver", "answers": {}, "mode": "", **told}
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH", "XDG", "RANK"))}
        clean |= {"RANK": str(number), "WORLD_SIZE": str(world), "TORCHELASTIC_RUN_ID": f"test-{os.getpid()}", **env}
        self.process = subprocess.Popen(
            [python, str(program), json.dumps(words)],
            env=clean, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.pid = self.process.pid
        assert self.process.stdout
        said = {self.process.stdout.readline() for _ in range(2 if words["socket"] else 1)}
        assert said <= {"ready\n", "waiting\n"}, said

    def end(self) -> list[str]:
        """End it; returns what its server was asked."""
        self.process.kill()
        said, _ = self.process.communicate()
        return said.splitlines()


@pytest.fixture
def start_rank(tmp_path: Path) -> Iterator[Any]:
    """Starts ranks with home folders of their own; all are gone after the test."""
    running: list[Rank] = []

    def start(
        number: int, world: int = 4, env: dict[str, str] | None = None, python: str = sys.executable, **told: Any
    ) -> Rank:
        home = {"HOME": str(tmp_path / "home")}
        running.append(Rank(number, world, home | (env or {}), told, tmp_path / f"rank_{number}.py", python))
        return running[-1]

    yield start
    for rank in running:
        if rank.process.poll() is None:
            rank.end()
