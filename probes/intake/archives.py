"""What compressed files and archives hold: .gz, .bz2, .xz, .tar, .zip, and those within each other.

Units    bytes; seconds since the epoch
Shape    is_archive(first bytes), members(file) -> Item or Unread. An Item can be read on until the next one is taken
Errors   none: what is damaged or refused is an Unread, and the others are kept
Source   zip: PKWARE APPNOTE 6.3.10, 4.3.16 and 4.4.5. tar: POSIX pax, GNU tar's manual. Bombs: deflate packs at most
         1032 to 1 (zlib's technical notes), so that more than that comes out of archives within archives or of
         entries that overlap
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import IO, Any

from probes.core import clean
from probes.intake import items, unpacking
from probes.intake.items import Budget, Item, Unread, shown
from probes.intake.unpacking import BROKEN, RATIO, Kept, Unpacked

NESTED = 3  # archives within archives
DEPTH = 32  # folders in the name of a member
_MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"PK\x03\x04": "zip", b"PK\x05\x06": "zip",
    b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"7z\xbc\xaf\x27\x1c": "7z", b"Rar!\x1a\x07": "rar",
}  # fmt: skip
_DEFLATED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
LONG_NAME = 65_536  # bytes of the name of a tar's member, and of what its header adds
MEMBERS = 50_000  # of one archive
DIRECTORY = 33_554_432  # bytes of a zip's list of members, which zipfile reads into memory whole: a thousand times this
_NOT_HERE = ("zstd", "7z", "rar")
TOO_MUCH = "there is too much in it: the rest was not read"


def _form(head: bytes) -> str:
    if head[257:262] == b"ustar":
        return "tar"
    return next((form for magic, form in _MAGIC.items() if head.startswith(magic)), "")


def is_archive(head: bytes) -> bool:
    return bool(_form(head))


def members(
    handle: IO[bytes], ref: str, inside: PurePosixPath, budget: Budget, nested: int, size: int
) -> Iterator[Item | Unread]:
    """Everything in it. `handle` can seek; `nested` counts the archives around it; `size` is that of the archive."""
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
            yield from _zip(handle, ref, budget, nested, size)
        elif form in _NOT_HERE:
            yield Unread(ref, f"compressed with {form}, which is not unpacked here: unpack it first")
        else:
            yield from _compressed(handle, form, ref, inside, budget, nested)
    except BROKEN as error:
        yield Unread(ref, f"the {form} file is damaged or cut off: {clean(str(error))[:120] or type(error).__name__}")


def _compressed(
    handle: IO[bytes], form: str, ref: str, inside: PurePosixPath, budget: Budget, nested: int
) -> Iterator[Item | Unread]:
    stem = inside.with_suffix("") if inside.suffix in (".gz", ".bz2", ".tgz", ".xz", ".txz") else inside
    is_tar = _form(Unpacked(handle, form).read(512)) == "tar"
    handle.seek(0)
    stream = Unpacked(handle, form)
    if is_tar:
        yield from _tar(stream, ref, budget, nested)
    else:
        yield from _one(stream, ref, stem, None, budget, nested, None)
    if stream.bomb:
        yield Unread(ref, f"refused: it unpacks to more than {RATIO} times its size. What came before that was read")
    elif stream.broken:
        yield Unread(ref, f"the {form} file is damaged or cut off: what comes after that was not read")


def _one(
    stream: Any, ref: str, inside: PurePosixPath, size: int | None, budget: Budget, nested: int, mtime: float | None
) -> Iterator[Item | Unread]:
    kept = Kept(stream)
    head = kept.read(items.HEAD)
    if is_archive(head):
        data = head + kept.read(items.FILE_BYTES + 1 - len(head))
        budget.take(len(data))
        yield from members(io.BytesIO(data), ref, inside, budget, nested + 1, len(data))
        return
    item = Item(ref, inside, head, size, stream=kept, mtime=mtime)
    yield item
    item.close()
    budget.take(size if size is not None else kept.found)


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


class _Names:
    """The names of an archive's members: each once, none that leads out of it, and not too many."""

    def __init__(self, ref: str) -> None:
        self._ref = ref
        self._seen: set[str] = set()
        self.count = 0

    def refused(self, name: str) -> str:
        """Why this member is not read, "" for none."""
        self.count += 1
        parts = name.replace("\\", "/").split("/")
        if ".." in parts:
            return "refused: its name leads out of the archive"
        if name.startswith("/") or parts[0][1:2] == ":":
            return "refused: its name is an absolute path. Pack it again with relative names"
        plain = "/".join(part for part in parts if part not in ("", "."))
        if plain in self._seen:
            return "refused: a second member of the same name; the first one counts"
        self._seen.add(plain)
        return ""

    @property
    def too_many(self) -> Unread | None:
        full = self.count >= MEMBERS
        return Unread(self._ref, f"more than {MEMBERS} files in one archive: the rest was not read") if full else None


def _tar(handle: Any, ref: str, budget: Budget, nested: int) -> Iterator[Item | Unread]:
    names = _Names(ref)
    with tarfile.open(fileobj=handle, mode="r|", tarinfo=_ShortNames) as archive:
        while (member := archive.next()) is not None:
            getattr(archive, "members").clear()  # noqa: B009 - it remembers every one, for what a stream cannot do anyway
            if budget.spent or names.too_many:
                yield names.too_many or Unread(ref, TOO_MUCH)
                return
            name = f"{ref}/{shown(member.name)}"
            if member.isdir():
                continue
            if why := names.refused(member.name):
                yield Unread(name, why)
            elif member.isfile():
                stream = archive.extractfile(member)
                if stream is not None:
                    when = float(member.mtime) if 0 < member.mtime < 1e11 else None
                    yield from _one(stream, name, _inside(member.name), member.size, budget, nested, when)
            else:
                yield Unread(name, "a link or device in an archive, which is not followed")


def _zip(handle: IO[bytes], ref: str, budget: Budget, nested: int, size: int) -> Iterator[Item | Unread]:
    end = getattr(zipfile, "_EndRecData")(handle)  # noqa: B009 - not public, and what opens a zip reads all of the list
    if end and (end[5] > DIRECTORY or end[4] > MEMBERS):
        yield Unread(ref, f"refused: a zip of {end[4]} files; at most {MEMBERS} are unpacked")
        return
    handle.seek(0)
    with zipfile.ZipFile(handle) as archive:
        infos = archive.infolist()
        if any(one.filename.endswith("/data.pkl") for one in infos[:64]):
            yield Unread(ref, "a model or tensor that torch saved, no evidence")
            return
        unpacked = sum(one.file_size for one in infos)
        if unpacked > unpacking.MUCH and unpacked > RATIO * size:
            yield Unread(ref, f"refused: it unpacks to {unpacked >> 20} MiB, more than {RATIO} times its size")
            return
        names = _Names(ref)
        for member in infos:
            if budget.spent:
                yield Unread(ref, TOO_MUCH)
                return
            if not member.is_dir():
                yield from _zip_member(archive, member, f"{ref}/{shown(member.filename)}", names, budget, nested)


def _zip_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, names: _Names, budget: Budget, nested: int
) -> Iterator[Item | Unread]:
    if why := names.refused(member.filename):
        yield Unread(name, why)
        return
    kind = member.external_attr >> 28  # of the mode that Unix keeps there; 0 where none is
    if kind not in (0, 8):
        yield Unread(name, "a link or device in an archive, which is not followed")
        return
    if member.flag_bits & 1:
        yield Unread(name, "it needs a password: pack it again without one")
        return
    if member.compress_type not in _DEFLATED:
        yield Unread(name, "compressed in a way that is not unpacked here")
        return
    try:
        with archive.open(member) as stream:
            inside, when = _inside(member.filename), _written(member)
            yield from _one(stream, name, inside, member.file_size, budget, nested, when)
    except BROKEN as error:
        yield Unread(name, f"cannot be unpacked: {clean(str(error))[:120]}")


def _written(member: zipfile.ZipInfo) -> float | None:
    """A zip keeps the local time of who packed it, taken for UTC here; its first moment stands for none."""
    try:
        when = datetime(*member.date_time, tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    return when if member.date_time[0] > 1980 else None


def _inside(name: str) -> PurePosixPath:
    """A member's name as a path that is only looked at, never opened."""
    parts = [shown(part) for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return PurePosixPath(*parts[-DEPTH:]) if parts else PurePosixPath("member")
