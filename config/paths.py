"""Where Golden15 keeps things: the data folder, the run folder with the broker's socket, the secret key.

Standard library only: the supervisor, the settings and the tests all read it.
"""

import hashlib
import os
import secrets
import stat
from pathlib import Path

from config.env import SettingError, text

BASE = Path(__file__).resolve().parent.parent
# sockaddr_un.sun_path holds 108 bytes with the closing zero (unix(7)).
LONGEST_SOCKET_PATH = 107
SOCKET_NAME = "broker.sock"
INSTANCE_LOCK = "instance.lock"


def data_folder() -> Path:
    """The folder of the database, the secret key and the instance lock: `var/`, or GOLDEN15_DATA. Made when absent.

    Raises SettingError when it cannot be made or written to.
    """
    folder = Path(os.path.abspath(os.path.expanduser(text("GOLDEN15_DATA", str(BASE / "var")))))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
        reason = "no permission to write, or a read-only file system"
    except OSError as error:
        writable, reason = False, error.strerror or str(error)
    if not writable:
        raise SettingError(
            f"Golden15 cannot write to its data folder {folder} ({reason}). "
            "Set GOLDEN15_DATA to a folder you can write to."
        )
    return folder


def run_folder(data: Path) -> Path:
    """A folder that only this user can enter, for the broker's socket: `data/run`, or a short one elsewhere.

    A Unix socket's path is limited to 107 bytes. When the data folder's is longer the folder goes under
    XDG_RUNTIME_DIR or /tmp, named by a hash of the data folder, so that every part finds the same one.
    Raises SettingError when somebody else owns the folder or could enter it.
    """
    folder = data / "run"
    if len(os.fsencode(folder / SOCKET_NAME)) > LONGEST_SOCKET_PATH:
        digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
        name = f"golden15-{os.getuid()}-{digest}"
        runtime = text("XDG_RUNTIME_DIR")
        parent = Path(runtime) if runtime and _is_private(Path(runtime)) else Path("/tmp")
        folder = parent / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingError(f"Golden15 cannot make its run folder {folder} ({error.strerror}).") from None
    if folder.parent == data and folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
        folder.chmod(0o700)  # inside our own folder a loose umask or a copy may have widened it
    if not _is_private(folder):
        raise SettingError(
            f"The run folder {folder} is not a folder that only you can enter. Remove it, or set GOLDEN15_DATA to a "
            "folder of your own with a short path."
        )
    return folder


def _is_private(folder: Path) -> bool:
    """True for a real folder (no link) of this user with no rights for others: nobody else can plant a socket in it."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def secret_key(data: Path) -> str:
    """Django's secret key: GOLDEN15_SECRET_KEY (many machines must share it), else a file made once, readable by this
    user only. Raises SettingError when others can read the file or it is too short."""
    given = text("GOLDEN15_SECRET_KEY")
    if given:
        if len(given) < 50:
            raise SettingError("GOLDEN15_SECRET_KEY is shorter than 50 characters. Set a longer random one.")
        return given
    path = data / "secret_key"
    if not path.exists():
        _write_once(path, secrets.token_urlsafe(64))
    if path.stat().st_mode & 0o077:
        raise SettingError(f"Others may read {path}. Run: chmod 600 {path}")
    key = path.read_text().strip()
    if len(key) < 50:
        raise SettingError(f"{path} holds no usable key. Remove it: a new one is made, and everybody signs in again.")
    return key


def private_file(path: Path) -> Path:
    """The path, made as an empty 0600 file when absent and narrowed to that when others could read it.

    For the SQLite database: it holds sessions, and its -wal file takes the database's own mode.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
    except OSError:
        pass  # said in words when the database is opened
    return path


def last_address(data: Path) -> str:
    """Where the Golden15 of this data folder answers, or answered last; the default when it never ran."""
    try:
        return (data / INSTANCE_LOCK).read_text().split()[1]
    except (OSError, IndexError):
        return "http://127.0.0.1:8000"


def _write_once(path: Path, content: str) -> None:
    """Write a 0600 file so that two starts at the same time agree on one content: the first link wins."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
