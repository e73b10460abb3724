"""Streams of what is compressed, which give all that comes before a damage, and stop at a bomb.

Units    bytes
Shape    Unpacked(handle, form).read(size), Kept(stream).read(size)
Errors   one of BROKEN, only where nothing at all can be unpacked
Source   bombs: deflate packs at most 1032 to 1 (zlib's technical notes)
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from typing import IO, Any

# What the unpackers of the standard library raise on bad input.
BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, RuntimeError,
    NotImplementedError, ValueError, OverflowError, LookupError, struct.error)  # fmt: skip
XZ_MEMORY = 100_663_296  # what a header may ask for: level 9 of xz needs 65 MiB
MUCH, RATIO = 268_435_456, 400  # more than so much, and so many times what it was packed in: a bomb; judgement


class Unpacked(io.RawIOBase):
    """What a compressed file holds, up to where it is damaged: a log that is cut off still tells. Raises only when
    nothing at all can be unpacked. `bomb`: more comes out than is sane, and nothing more of it is given."""

    def __init__(self, handle: IO[bytes], form: str) -> None:
        openers: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": _xz}
        self._handle = handle
        self._stream = openers[form](handle, "rb")
        self._found = 0
        self.broken = self.bomb = False

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
            if self._found > MUCH and self._found > RATIO * max(1, self._handle.tell()):
                self.broken = self.bomb = True
        return bytes(found)


def _xz(handle: IO[bytes], mode: str) -> Any:
    return _XzStream(handle)


class _XzStream:
    """lzma.open with a limit of memory, which it does not take. Streams one after the other are one, as `xz` has it."""

    def __init__(self, handle: IO[bytes]) -> None:
        self._handle = handle
        self._unpacker = lzma.LZMADecompressor(memlimit=XZ_MEMORY)

    def read1(self, size: int) -> bytes:
        while True:
            if self._unpacker.eof:
                left = self._unpacker.unused_data.lstrip(b"\0") or self._handle.read(65_536).lstrip(b"\0")
                if not left:
                    return b""
                self._unpacker = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
                packed = left
            else:
                packed = self._handle.read(65_536) if self._unpacker.needs_input else b""
                if not packed and self._unpacker.needs_input:
                    raise EOFError("it ends before its end")
            if found := self._unpacker.decompress(packed, size):
                return found


class Kept:
    """Reads a member. What came before its damage is kept; only one of which nothing can be read raises."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.found = 0

    def read(self, size: int) -> bytes:
        found = bytearray()
        try:
            while len(found) < size and (part := self._stream.read(min(65_536, size - len(found)))):
                found += part
        except BROKEN:
            if not self.found and not found:
                raise
        self.found += len(found)
        return bytes(found)
