"""One run of one part: its process, its output, its word that it is ready."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial

from config.lifeline import READY_FD, die_with_parent
from config.paths import BASE
from config.supervisor.parts import Part

LONGEST_LINE = 8192  # bytes; a part that never ends its line must not fill our memory


class Process:
    """A started part. The supervisor reads `output` and `ready_fd` when they have something, and reaps the process."""

    def __init__(self, part: Part) -> None:
        """Start it, in a session of its own: a Ctrl-C in the terminal reaches the supervisor only."""
        self.part = part
        self.started = time.monotonic()
        self.ready_fd, theirs = os.pipe()
        self.popen = subprocess.Popen(
            part.command,
            cwd=BASE,
            env={**os.environ, **part.env, READY_FD: str(theirs)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(*part.pass_fds, theirs),
            preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - the supervisor has one thread
        )
        os.close(theirs)
        assert self.popen.stdout is not None
        self.output = self.popen.stdout.fileno()
        for fd in (self.output, self.ready_fd):
            os.set_blocking(fd, False)
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.popen.pid

    def read_lines(self) -> Iterator[str]:
        """The complete lines written since the last call; at the end of the output also the last, unended one.

        Control characters are shown as escapes: text from a node must not steer the terminal.
        """
        try:
            chunk = os.read(self.output, 65536)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk or len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            if line.strip():
                yield _printable(line)

    def said_ready(self) -> bool:
        try:
            return os.read(self.ready_fd, 64).startswith(b"ready")
        except BlockingIOError:
            return False

    def terminate(self) -> None:
        """Ask the part's own process to end; it ends its children."""
        _signal(os.kill, self.pid, signal.SIGTERM)

    def kill_group(self) -> None:
        """End the process and all that share its session, now. Only before it is reaped: later the number may be
        somebody else's."""
        _signal(os.killpg, self.pid, signal.SIGKILL)

    def close(self, status: int) -> None:
        """Let go of the pipes; the process was reaped with this exit status."""
        self.popen.returncode = status
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        os.close(self.ready_fd)


def how_it_ended(status: int) -> str:
    """A wait status in words. `status` as Popen.returncode: negative for a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _signal(send: Callable[[int, int], None], pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        send(pid, number)


def _printable(line: bytes) -> str:
    text = line.rstrip().decode(errors="backslashreplace").expandtabs()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
