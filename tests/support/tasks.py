"""Tasks that leave a trace a test can see."""

import os
from pathlib import Path

from celery import shared_task


@shared_task
def write(path: str, text: str) -> None:
    Path(path).write_text(text)


@shared_task
def write_pid_and_wait(path: str, gate: str) -> None:
    """Write the pool process's number, then hold until a writer opens the FIFO `gate`."""
    Path(path).write_text(str(os.getpid()))
    Path(gate).read_text()
