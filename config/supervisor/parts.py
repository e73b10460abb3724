"""The parts of Golden15: what each is started with, and how long it may take to stop."""

import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path

from config import web
from config.supervisor import broker

# Advice about saving to disk, which it does not, and its good-bye.
_WORKER_NOISE = ("Warm shutdown",)
_BROKER_NOISE = ("Memory overcommit", "scheduling shutdown", "ready to exit")


@dataclass(frozen=True)
class Part:
    """One process the supervisor keeps running.

    stop_after is how many seconds it gets between SIGTERM and SIGKILL; stop_last parts are stopped when the others are
    gone; lines of output that hold one of `hidden` are not shown.
    """

    name: str
    command: list[str]
    stop_after: float
    env: dict[str, str] = field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()
    stop_last: bool = False
    hidden: tuple[str, ...] = ()


def broker_part(socket_path: Path) -> Part:
    command = broker.command(broker.find_server(), socket_path)
    return Part("broker", command, stop_after=3, stop_last=True, hidden=_BROKER_NOISE)


def django_parts(listener: socket.socket) -> list[Part]:
    """The web process, the workers and the sweeper."""
    python = [sys.executable, "-u"]
    celery = [*python, "-m", "celery", "--quiet", "-A", "config.celery", "worker", "--pool", "prefork"]
    # With one worker there is nobody to gossip with, and each of these is traffic and start-up time.
    celery += ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    fd = listener.fileno()
    return [
        Part("web", [*python, "-m", "config.web"], 6, {web.SOCKET_FD: str(fd)}, (fd,)),
        Part("worker", celery, 10, hidden=_WORKER_NOISE),
        Part("sweeper", [*python, "-m", "django", "sweeper"], 5),
    ]
