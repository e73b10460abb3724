"""An evidence bundle as a zip, unpacked where nothing of it can do harm.

Units    bytes
Errors   BundleError: it is no zip, holds what a bundle does not, or more than a bundle may
"""

from __future__ import annotations

import re
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from probes.transport.replay import BundleError

MOST_FILES = 200_000
MOST_BYTES = 2 * 2**30
FILE_BYTES = 64 * 2**20
DEPTH = 5  # stages/<stage>/look-<n>/<node>/<file>
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,253}")
_CHUNK = 1 << 20


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
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise BundleError(f"{archive.name}: cannot be unpacked: {error}") from None
    return into


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
