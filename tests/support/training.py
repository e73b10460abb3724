"""Real training jobs on the nodes of a lab: one rank on each, started by torchrun as people do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
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
            until(lambda rank=rank: "ready, pid" in self.log(rank), 90, f"rank {rank}: {self.log(rank)[-2000:]}")  # type: ignore[misc]

    def forget_logs(self) -> None:
        """Take the files' names away: who has them open goes on writing."""
        for path in self.folder.glob("*.log"):
            path.unlink()

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


@contextlib.contextmanager
def training(lab: Lab, nodes: list[Node], case: str, victim: int = 1, name: str = "llm-7b-run3") -> Iterator[Training]:
    """Runs training_job.py with one rank per node until the end of the block."""
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
        with (folder / f"rank_{number}.log").open("wb") as log:
            job.processes.append(
                subprocess.Popen(
                    [*enter, *run], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True, cwd="/",
                )  # fmt: skip
            )
    try:
        yield job
    finally:
        job.stop()
