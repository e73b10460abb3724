"""From nothing to a running Golden15, and back."""

import contextlib
import os
import socket
import time
from pathlib import Path

from config import paths
from config.lifeline import adopt_orphans
from config.supervisor import broker, instance, listener, parts, prepare
from config.supervisor.health import HealthCheck
from config.supervisor.loop import Supervisor, say

SLOW = 30.0  # seconds until the start is called slow


def up(host: str, port: int) -> int:
    """Run everything until SIGINT, SIGTERM or SIGHUP. Returns the exit status.

    Raises SettingError, in one line for a person, when something must be set right first.
    """
    data = paths.data_folder()
    paths.secret_key(data)
    with instance.take(data) as lock, listener.listen(host, port) as sock:
        address = listener.address(host, sock)
        instance.note(lock, address)
        os.environ["GOLDEN15_HOST"] = host
        if not listener.is_loopback(sock):
            _warn(host)
        adopt_orphans()
        supervisor = Supervisor()
        socket_path = None
        try:
            socket_path = _start_broker(supervisor, data)
            prepare.set_up_database()
            prepare.look_for_broker()
            for part in parts.django_parts(sock):
                supervisor.start(part)
            supervisor.run(Readiness(supervisor, sock, address, socket_path).look)
            say("Stopping. Running checks may take up to 10 s to end; Ctrl-C again ends them at once.")
        finally:
            supervisor.stop()
            if socket_path:
                _clear(socket_path, data)
    say("Stopped.")
    return 0


def _start_broker(supervisor: Supervisor, data: Path) -> Path | None:
    """Start the embedded broker and return its socket; None when REDIS_URL names a server to use."""
    if os.environ.get("REDIS_URL", "").strip():
        return None
    path = paths.run_folder(data) / paths.SOCKET_NAME
    supervisor.start(parts.broker_part(path))
    return path


def _clear(socket_path: Path, data: Path) -> None:
    """Remove the broker's socket, and the run folder where it lies outside the data folder."""
    socket_path.unlink(missing_ok=True)
    if socket_path.parent.parent != data:
        with contextlib.suppress(OSError):
            socket_path.parent.rmdir()


def _warn(host: str) -> None:
    say(
        f"WARNING: HOST={host} lets other machines reach Golden15, and what they send is not encrypted. "
        "Put a TLS proxy in front and set GOLDEN15_HTTPS=1 and GOLDEN15_HOSTS, or use HOST=127.0.0.1."
    )


class Readiness:
    """Watches the parts become ready, says so once, and later says when a restarted part works again."""

    def __init__(self, supervisor: Supervisor, sock: socket.socket, address: str, broker_socket: Path | None) -> None:
        self.supervisor = supervisor
        self.health = HealthCheck(listener.reachable(sock))
        self.address = address
        self.broker_socket = broker_socket
        self.begun = time.monotonic()
        self.announced = self.called_slow = False
        self.waiting: set[str] = set()

    def look(self) -> bool:
        """True while some part is not ready."""
        slots = self.supervisor.slots
        # Before asking: a part that ended and answers again between two looks was away too.
        self.waiting |= {name for name, slot in slots.items() if not slot.ready}
        if "broker" in slots and not slots["broker"].ready and self.broker_socket:
            slots["broker"].ready = broker.answers(self.broker_socket)
        if not slots["web"].ready:
            self.health.ask()
            slots["web"].ready = self.health.answered()
        waiting = {name for name, slot in slots.items() if not slot.ready}
        if self.announced:
            for name in sorted(self.waiting - waiting):
                say(f"The {name} works again.")
        elif not waiting:
            self.announced = True
            say(f"Golden15 is ready: {self.address}{prepare.sign_in_path()}")
        elif not self.called_slow and time.monotonic() - self.begun > SLOW:
            self.called_slow = True
            say(f"Still waiting, after {SLOW:.0f} s, for: {', '.join(sorted(waiting))}.")
        self.waiting = waiting
        return bool(waiting)
