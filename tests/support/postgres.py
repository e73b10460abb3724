"""A PostgreSQL server of our own: temporary folder, private socket, no TCP.

`python -m tests.support.postgres COMMAND...` runs a command with DATABASE_URL set to a fresh one.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

USER = "postgres"  # made by the Debian package; the server refuses to run as root


def program(name: str) -> str:
    """Debian keeps the server's programs off PATH; the newest version wins."""
    installed = sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: float(path.split("/")[4]))
    found = installed[-1] if installed else shutil.which(name)
    assert found, f"{name} is missing: apt install postgresql"
    return found


def _as_server_user(command: list[str]) -> list[str]:
    return (
        ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command] if os.geteuid() == 0 else command
    )


@contextmanager
def postgres() -> Iterator[str]:
    """Yields the DATABASE_URL of an empty database; stops and removes the server at the end."""
    folder = Path(tempfile.mkdtemp(prefix="golden15-pg-", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            owner = pwd.getpwnam(USER)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        _run([program("initdb"), "-D", str(folder / "data"), "-U", "golden15", "-A", "trust", "-N"], folder)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=100"
        control = [program("pg_ctl"), "-D", str(folder / "data"), "-w", "-t", "60"]
        _run([*control, "-l", str(folder / "log"), "-o", options, "start"], folder)
        try:
            _run([program("createdb"), "-h", str(folder), "-U", "golden15", "golden15"], folder)
            yield f"postgresql://golden15@/golden15?host={folder}"
        finally:
            _run([*control, "-m", "immediate", "stop"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    # Output to a file: pg_ctl's server keeps a pipe open for ever.
    with (folder / "setup.log").open("a") as log:
        done = subprocess.run(
            _as_server_user(command), cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=90
        )
    assert done.returncode == 0, (folder / "setup.log").read_text()


def main() -> int:
    with postgres() as url:
        return subprocess.run(sys.argv[1:], env={**os.environ, "DATABASE_URL": url}).returncode


if __name__ == "__main__":
    sys.exit(main())
