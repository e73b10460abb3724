"""An evidence bundle as a zip, unpacked where nothing of it can do harm; or as a folder, checked for the same.

Units    bytes
Errors   BundleError: it is no zip or a damaged one, holds what a bundle does not, or more than a bundle may
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from probes.transport.replay import BundleError

MOST_FILES = 200_000
MOST_BYTES = 2 * 2**30
FILE_BYTES = 64 * 2**20
DEPTH = 5  # stages/<stage>/look-<n>/<node>/<file>
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,253}")
_CHUNK = 1 << 20
# What zipfile and the decompressors raise for an archive that is damaged, ends early or needs a password.
_BROKEN = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, lzma.LZMAError, ValueError,
           struct.error, OverflowError)  # fmt: skip


def unpack(archive: Path, into: Path) -> Path:
    """The bundle's files in a new folder `into`, which is gone again when this fails. Raises BundleError.

    Names are checked before anything is written: letters, digits, dot, dash and underscore only, so none leads out.
    What is written counts, not what the archive says of itself.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [(info, _inside(info)) for info in opened.infolist() if not info.is_dir()]
            if len(members) > MOST_FILES:
                raise BundleError(f"{archive.name}: holds more than {MOST_FILES} files")
            into.mkdir(parents=True)
            try:
                _write(opened, members, into)
            except BaseException:
                shutil.rmtree(into, ignore_errors=True)
                raise
    except BundleError:
        raise
    except _BROKEN as error:
        raise BundleError(f"{archive.name}: cannot be unpacked: {error}") from None
    return into


def check(folder: Path) -> None:
    """A folder that somebody unpacked: no link leads out of it, and it is no larger than a bundle may be. Raises
    BundleError, and OSError where it cannot be read."""
    files, left = 0, MOST_BYTES
    for place, folders, names in os.walk(folder, onerror=_raise):
        for name in (*folders, *names):
            file = Path(place, name)
            found = file.lstat()
            files, shown = files + 1, f"{str(file.relative_to(folder))[:80]}"
            if not name.isprintable() or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise BundleError(f"{shown!r}: a bundle holds plain files, no links, and names that can be printed")
            size = found.st_size if stat.S_ISREG(found.st_mode) else 0
            left -= size
            if size > FILE_BYTES or left < 0:
                raise BundleError(f"{shown!r}: the folder is larger than a bundle may be")
            if files > MOST_FILES:
                raise BundleError(f"{folder.name}: holds more than {MOST_FILES} files")


def _raise(error: OSError) -> None:
    raise error


def _inside(info: zipfile.ZipInfo) -> PurePosixPath:
    place = PurePosixPath(info.filename)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.filename.startswith("/") or not all(_NAME.fullmatch(part) for part in place.parts):
        raise BundleError(f"{info.filename[:80]!r} is no name of a file in a bundle")
    if len(place.parts) > DEPTH or (kind and kind != stat.S_IFREG) or info.flag_bits & 1:
        raise BundleError(f"{info.filename[:80]!r}: a bundle holds plain files, not encrypted, at most {DEPTH} deep")
    return place


def _write(opened: zipfile.ZipFile, members: list[tuple[zipfile.ZipInfo, PurePosixPath]], into: Path) -> None:
    left = MOST_BYTES
    for info, inside in members:
        target = into.joinpath(*inside.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        size = 0
        with opened.open(info) as source, target.open("xb") as file:
            while chunk := source.read(_CHUNK):
                size, left = size + len(chunk), left - len(chunk)
                if size > FILE_BYTES or left < 0:
                    raise BundleError(f"{info.filename[:80]!r}: the bundle is larger than a bundle may be")
                file.write(chunk)
