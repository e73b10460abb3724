"""Does the web process answer? Asked without waiting, so that the supervisor's one loop goes on."""

import socket
import time

AGAIN_AFTER = 0.5  # seconds between two questions


class HealthCheck:
    """One GET /healthz at a time. The listening socket is the supervisor's, so the question waits in its queue until
    the web process takes it: one question is mostly enough."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.socket: socket.socket | None = None
        self.ask_at = 0.0

    def ask(self) -> None:
        """Send the question unless one is on its way or the last was a moment ago."""
        if self.socket is not None or time.monotonic() < self.ask_at:
            return
        self.ask_at = time.monotonic() + AGAIN_AFTER
        host, port = self.address
        name = f"[{host}]" if ":" in host else host
        try:
            self.socket = socket.create_connection(self.address, timeout=1)
            self.socket.sendall(f"GET /healthz HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n".encode())
            self.socket.setblocking(False)
        except OSError:
            self.close()

    def answered(self) -> bool:
        """True when the answer is there and says 200. Any other answer ends this question."""
        if self.socket is None:
            return False
        try:
            status = self.socket.recv(64).split(b" ")
        except BlockingIOError:
            return False
        except OSError:
            status = []
        self.close()
        return len(status) > 1 and status[1] == b"200"

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None
