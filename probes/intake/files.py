"""Every file that people brought: folders of any depth, .gz, and the members of .tar, .tar.gz and .zip.

Units    bytes
Shape    walk(paths) -> Item or Unread
Errors   NoSuchPath. What cannot be read is an Unread with why; nothing else is raised

Nothing is written to a disk, no name of a member is ever opened as a path, and links are not followed: what comes in an
upload is from a stranger. Every limit holds for what comes out of a compressed file, not for its size.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from probes.core import clean
from probes.intake.names import looks_like_a_node

FILE_BYTES = 67_108_864  # of one file that are looked at: as many as the flight-recorder reader takes
END_BYTES = 25_165_824  # of a longer one, see end_of
ALL_BYTES = 8_589_934_592  # of everything, unpacked
FILES = 200_000
DEPTH = 32  # folders within folders
NESTED = 3  # archives within archives
HEAD = 65_536
BROKEN = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError,
    NotImplementedError, ValueError)  # fmt: skip  # what the unpackers of the standard library raise on bad input
SKIPPED = {".git", "__pycache__", ".svn", "node_modules"}


class NoSuchPath(ValueError):
    """A path that was given does not exist, or may not be read."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that told nothing, and why, for people."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class Item:
    """One file. `ref` is what people are told; `inside`: its path below what was given, for names of ranks and nodes.

    `data` holds the first FILE_BYTES; `size` is None where it is not known without unpacking it all. `path` is None
    for a member of an archive.
    """

    ref: str
    inside: PurePosixPath
    data: bytes
    size: int | None = None
    path: Path | None = None

    @property
    def name(self) -> str:
        return self.inside.name

    @property
    def head(self) -> bytes:
        return self.data[:HEAD]

    @property
    def cut(self) -> bool:
        """Whether there is more than was read."""
        return len(self.data) > FILE_BYTES or (self.size is not None and self.size > len(self.data))


class Budget:
    """What may still be read, over all files."""

    def __init__(self, files: int = FILES, size: int = ALL_BYTES) -> None:
        self.files, self.bytes = files, size

    def take(self, data: bytes) -> None:
        self.files -= 1
        self.bytes -= len(data)

    @property
    def spent(self) -> bool:
        return self.files <= 0 or self.bytes <= 0


def walk(paths: Sequence[Path], budget: Budget | None = None) -> Iterator[Item | Unread]:
    """Every file under these paths, folders in the order of their names. Raises NoSuchPath before anything is read."""
    budget = budget or Budget()
    for path in paths:
        try:
            path.stat()
        except OSError as error:
            raise NoSuchPath(f"{path}: {error.strerror or error}") from None
    for path in paths:
        # Of several folders each may be a rank's or a node's; a single one is only called what people like.
        about = path.name if path.is_dir() else path.absolute().parent.name
        top = PurePosixPath(about) if len(paths) > 1 or looks_like_a_node(about) else PurePosixPath()
        if path.is_dir():
            yield from _folder(path, top, budget, 0)
        else:
            yield from _file(path, top / path.name, budget, follow=True)


def _folder(folder: Path, inside: PurePosixPath, budget: Budget, depth: int) -> Iterator[Item | Unread]:
    if depth > DEPTH:
        yield Unread(str(folder), f"folders deeper than {DEPTH} are not looked into")
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Unread(str(folder), f"cannot be opened: {error.strerror}")
        return
    for entry in entries:
        if budget.spent:
            yield Unread(str(folder), "there is too much: the rest was not read. Bring less at a time")
            return
        place = folder / entry.name
        if entry.is_symlink():
            yield Unread(shown(place), "a link, which is not followed")
        elif entry.is_dir():
            if entry.name not in SKIPPED:
                yield from _folder(place, inside / entry.name, budget, depth + 1)
        else:
            yield from _file(place, inside / entry.name, budget)


def shown(path: Path | str) -> str:
    """A path as people are told it: one line, without what a terminal would obey."""
    return clean(os.fsencode(str(path)).decode("utf-8", "replace")).replace("\n", "\u240a")[:1000]


def _file(path: Path, inside: PurePosixPath, budget: Budget, follow: bool = False) -> Iterator[Item | Unread]:
    try:
        # A FIFO must not make us wait, and what was no link a moment ago must not have become one.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
        with os.fdopen(number, "rb") as handle:
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode):
                yield Unread(shown(path), "not a regular file")
                return
            if _is_archive(handle.read(512)):
                handle.seek(0)
                yield from _members(handle, shown(path), inside, budget, 1)
                return
            handle.seek(0)
            data = handle.read(FILE_BYTES + 1)
    except OSError as error:
        yield Unread(shown(path), f"cannot be read: {error.strerror}")
        return
    budget.take(data)
    yield Item(shown(path), inside, data, about.st_size, path)


def end_of(item: Item) -> str:
    """The last part of a file that is longer than what was read, "" where only unpacking would tell: a log says at its
    end why it stopped."""
    if item.path is None:
        return ""
    try:
        with item.path.open("rb") as handle:
            handle.seek(-min(END_BYTES, max(0, (item.size or 0) - len(item.data))), os.SEEK_END)
            return handle.read(END_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


# Archives -------------------------------------------------------------------------------------------------------------

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


def _is_archive(head: bytes) -> bool:
    return bool(_form(head))


def _members(
    handle: IO[bytes], ref: str, inside: PurePosixPath, budget: Budget, nested: int
) -> Iterator[Item | Unread]:
    """What a compressed file or archive holds. `handle` can seek."""
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
    data = _read(stream, FILE_BYTES + 1)
    budget.take(data)
    if _is_archive(data[:512]):
        yield from _members(io.BytesIO(data), ref, inside, budget, nested + 1)
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
