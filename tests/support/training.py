"""Real training jobs on the nodes of a lab: one rank on each, started by torchrun as people do."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.support.server import BASE, clean_environment
from tests.support.sshd_nodes import Lab, Node, free_port
from tests.support.wait import until

JOB = BASE / "tests" / "lab" / "training_job.py"
PYTHON = BASE / ".venv-lab" / "bin" / "python"


@dataclass
class Training:
    """A started job. `folder` is seen by all nodes; the ranks write to its `rank_<n>.log`."""

    name: str
    folder: Path
    nodes: list[Node]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def log(self, rank: int) -> str:
        path = self.folder / f"rank_{rank}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def ready(self) -> None:
        """Until every rank has taken part in its first collectives."""
        for rank in range(len(self.nodes)):
            until(lambda rank=rank: self._last_call(rank), 90, f"rank {rank}: {self.log(rank)[-2000:]}")  # type: ignore[misc]

    def stands(self, seconds: float) -> None:
        """Until no rank that answers has entered a collective for so long."""
        self.ready()

        def all_stand() -> bool:
            last = [at for rank in range(len(self.nodes)) if (at := self._last_call(rank)) is not None]
            return bool(last) and time.time() - max(last) > seconds

        until(all_stand, 60 + seconds, "the job to stand still")

    def ended(self) -> None:
        """Until torchrun has ended on every node."""
        until(lambda: all(process.poll() is not None for process in self.processes), 120, "the job to end")

    def _last_call(self, rank: int) -> float | None:
        """When the rank entered its last collective, as its own worker server tells; None while it does not answer."""
        server = HTTPConnection("localhost", timeout=2)
        server.sock = socket.socket(socket.AF_UNIX)
        server.sock.settimeout(2)
        try:
            server.sock.connect(str(self.folder / f"worker_{rank}.sock"))
            server.request("POST", "/handler/fr_trace_json")
            entries = json.loads(server.getresponse().read()).get("entries", [])
        except (OSError, ValueError, HTTPException):
            return None
        finally:
            server.close()
        return max((entry["time_created_ns"] for entry in entries), default=0) / 1e9 or None

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


@contextlib.contextmanager
def training(
    lab: Lab, nodes: list[Node], case: str, victim: int = 1, name: str = "llm-7b-run3", logs: bool = True
) -> Iterator[Training]:
    """Runs training_job.py with one rank per node until the end. Without `logs` its output goes nowhere."""
    folder = lab.folder / "job"
    folder.mkdir()
    job = Training(name, folder, nodes)
    port = free_port()
    for number, node in enumerate(nodes):
        # Not its mount namespace: there the interpreter may be hidden, which is often in somebody's home directory.
        enter = ["nsenter", "--target", str(node.sshd_pid), "--uts", "--pid", "--"]
        run = [str(PYTHON), "-m", "torch.distributed.run", "--nnodes", str(len(nodes)), "--node-rank", str(number),
            "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port), "--rdzv-id", name,
            str(JOB), case, str(victim), str(folder)]  # fmt: skip
        environment = {**clean_environment(), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HOME": "/root"}
        with (folder / f"rank_{number}.log" if logs else Path("/dev/null")).open("wb") as log:
            job.processes.append(
                subprocess.Popen(
                    [*enter, *run],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd="/",
                )  # fmt: skip
            )
    try:
        yield job
    finally:
        job.stop()
