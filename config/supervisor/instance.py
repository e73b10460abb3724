"""One Golden15 per data folder."""

import fcntl
import os
from pathlib import Path
from typing import IO

from config.env import SettingError
from config.paths import INSTANCE_LOCK


def take(data: Path) -> IO[str]:
    """Lock the data folder for as long as the file stays open. Raises SettingError when another process has it.

    The kernel drops the lock with the process, also after kill -9, so a stale file never blocks a start.
    """
    path = data / INSTANCE_LOCK
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        words = file.read().split()
        pid, address = (words + ["?", ""])[0], words[1] if len(words) > 1 else "another port"
        raise SettingError(
            f"Golden15 already runs with the data folder {data} (process {pid}, {address}). "
            "Stop that one, or set GOLDEN15_DATA to another folder."
        ) from None
    return file


def note(file: IO[str], address: str) -> None:
    """Write who holds the lock and where it answers, for the error above and for `make sign-in`."""
    file.seek(0)
    file.truncate()
    file.write(f"{os.getpid()} {address}\n")
    file.flush()
