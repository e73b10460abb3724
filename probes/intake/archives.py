"""What compressed files and archives hold: .gz, .bz2, .tar, .zip, and those within each other.

Shape    is_archive(first bytes), members(file) -> Item or Unread
Errors   none: what is damaged is an Unread, and what came before the damage is kept
"""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from probes.core import clean
from probes.intake import items
from probes.intake.items import Budget, Item, Unread, shown

NESTED = 3  # archives within archives
DEPTH = 32  # folders in the name of a member
BROKEN = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError,
    NotImplementedError, ValueError)  # fmt: skip  # what the unpackers of the standard library raise on bad input
_MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip",
    # The header of these two may ask for gigabytes of memory.
    b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd",
}  # fmt: skip
_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
LONG_NAME = 65_536  # bytes of the name of a tar's member, and of what its header adds


def _form(head: bytes) -> str:
    if head[257:262] == b"ustar":
        return "tar"
    return next((form for magic, form in _MAGIC.items() if head.startswith(magic)), "")


def is_archive(head: bytes) -> bool:
    return bool(_form(head))


def members(handle: IO[bytes], ref: str, inside: PurePosixPath, budget: Budget, nested: int) -> Iterator[Item | Unread]:
    """Everything in it. `handle` can seek; `nested` counts the archives around it."""
    head = handle.read(512)
    handle.seek(0)
    form = _form(head)
    if nested > NESTED:
        yield Unread(ref, f"archives within archives deeper than {NESTED} are not unpacked")
        return
    try:
        if form == "tar":
            yield from _tar(handle, ref, budget, nested)
        elif form == "zip":
            yield from _zip(handle, ref, budget, nested)
        elif form in ("xz", "zstd"):
            yield Unread(ref, f"compressed with {form}, which is not unpacked here: unpack it first")
        else:
            yield from _compressed(handle, form, ref, inside, budget, nested)
    except BROKEN as error:
        yield Unread(ref, f"the {form} file is damaged or cut off: {clean(str(error))[:120] or type(error).__name__}")


def _compressed(
    handle: IO[bytes], form: str, ref: str, inside: PurePosixPath, budget: Budget, nested: int
) -> Iterator[Item | Unread]:
    stem = inside.with_suffix("") if inside.suffix in (".gz", ".bz2", ".tgz") else inside
    is_tar = _form(_Unpacked(handle, form).read(512)) == "tar"
    handle.seek(0)
    stream = _Unpacked(handle, form)
    if is_tar:
        yield from _tar(stream, ref, budget, nested)
    else:
        yield from _one(stream, ref, stem, None, budget, nested)
    if stream.broken:
        yield Unread(ref, f"the {form} file is damaged or cut off: what comes after that was not read")


class _Unpacked(io.RawIOBase):
    """What a compressed file holds, up to where it is damaged: a log that is cut off still tells. Raises only when
    nothing at all can be unpacked."""

    def __init__(self, handle: IO[bytes], form: str) -> None:
        openers: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open}
        self._stream = openers[form](handle, "rb")
        self._found = 0
        self.broken = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = bytearray()
        while not self.broken and len(found) < size:
            try:
                part = self._stream.read1(min(65_536, size - len(found)))
            except BROKEN:
                if not self._found:
                    raise
                self.broken = True
                break
            if not part:
                break
            found += part
            self._found += len(part)
        return bytes(found)


def _one(
    stream: Any, ref: str, inside: PurePosixPath, size: int | None, budget: Budget, nested: int
) -> Iterator[Item | Unread]:
    data = _read(stream, items.FILE_BYTES + 1)
    budget.take(data)
    if is_archive(data[:512]):
        yield from members(io.BytesIO(data), ref, inside, budget, nested + 1)
    else:
        yield Item(ref, inside, data, size)


def _read(stream: Any, size: int) -> bytes:
    """Up to `size` bytes of a member. What came before its damage is kept."""
    found = bytearray()
    try:
        while len(found) < size and (part := stream.read(min(65_536, size - len(found)))):
            found += part
    except BROKEN:
        if not found:
            raise
    return bytes(found)


class _ShortNames(tarfile.TarInfo):
    """Refuses headers that tarfile would read into memory whole, however long they say they are."""

    def _proc_gnulong(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        return self._short()._proc_gnulong(archive)  # type: ignore[no-any-return]

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        return self._short()._proc_pax(archive)  # type: ignore[no-any-return]

    def _short(self) -> Any:
        if self.size > LONG_NAME:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()


def _tar(handle: Any, ref: str, budget: Budget, nested: int) -> Iterator[Item | Unread]:
    with tarfile.open(fileobj=handle, mode="r|", tarinfo=_ShortNames) as archive:
        for member in archive:
            if budget.spent:
                yield Unread(ref, "there is too much in it: the rest was not read")
                return
            name = f"{ref}/{shown(member.name)}"
            if member.isfile():
                stream = archive.extractfile(member)
                if stream is not None:
                    yield from _one(stream, name, _inside(member.name), member.size, budget, nested)
            elif not member.isdir():
                yield Unread(name, "a link or device in an archive, which is not followed")


def _zip(handle: IO[bytes], ref: str, budget: Budget, nested: int) -> Iterator[Item | Unread]:
    with zipfile.ZipFile(handle) as archive:
        names = archive.namelist()
        if any(name.endswith("/data.pkl") for name in names[:64]):
            yield Unread(ref, "a model or tensor that torch saved, no evidence")
            return
        for member in archive.infolist():
            if budget.spent:
                yield Unread(ref, "there is too much in it: the rest was not read")
                return
            if member.is_dir():
                continue
            name = f"{ref}/{shown(member.filename)}"
            if member.compress_type not in _DEFLATED:
                yield Unread(name, "compressed in a way that is not unpacked here")
                continue
            try:
                with archive.open(member) as stream:
                    yield from _one(stream, name, _inside(member.filename), member.file_size, budget, nested)
            except BROKEN as error:
                yield Unread(name, f"cannot be unpacked: {clean(str(error))[:120]}")


def _inside(name: str) -> PurePosixPath:
    """A member's name as a path that is only looked at, never opened."""
    parts = [shown(part) for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return PurePosixPath(*parts[-DEPTH:]) if parts else PurePosixPath("member")
