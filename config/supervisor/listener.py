"""The web's listening socket, opened by the supervisor."""

import errno
import ipaddress
import socket

from config.env import SettingError

BACKLOG = 512
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Port 0 takes a free one. Raises SettingError in one line when it cannot be had."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise SettingError(f"HOST={host} is not a name or address of this machine. Use HOST=127.0.0.1.") from None
    sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise SettingError(_reason(error, host, port)) from None
    return sock


def _reason(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        free = port + 1 if port < 65535 else port - 1
        return f"Port {port} on {host} is taken by another program. Take another one: make run PORT={free}"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"HOST={host} is not an address of this machine. Use HOST=127.0.0.1."
    if error.errno == errno.EACCES:
        return f"Port {port} is reserved for root. Take one above 1023: make run PORT=8000"
    return f"Cannot listen on {host} port {port}: {error.strerror}. Try: make run PORT=8000"


def reachable(sock: socket.socket) -> tuple[str, int]:
    """The address to reach the socket at from this machine."""
    host, port = sock.getsockname()[:2]
    return _WILDCARDS.get(host, host), port


def address(host: str, sock: socket.socket) -> str:
    """The URL a person opens, without a path."""
    name = _WILDCARDS.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{sock.getsockname()[1]}"


def is_loopback(sock: socket.socket) -> bool:
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback
