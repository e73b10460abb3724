"""One file that people brought, and how much of everything may be read.

Units    bytes
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from probes.core import clean
from probes.intake.texts import PART, Recoded, encoding_of, mark_of

FILE_BYTES = 67_108_864  # of one dump that are looked at: as many as the flight-recorder reader takes
TEXT_BYTES = 16_777_216  # of one text that is no log
PEEK = 1_048_576  # by which a file is recognised
ALL_BYTES = 8_589_934_592  # of everything, unpacked
FILES = 200_000
HEAD = 65_536
LONG_LINE = 65_536  # of a line that are passed on
NUL_BYTES = 1_073_741_824  # a hole at the beginning of a log that was cut while somebody wrote it


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that told nothing, and why, for people."""

    file: str
    why: str


class Item:
    """One file. `ref` is what people are told; `inside`: its path below what was given, for names of ranks and nodes.

    Texts are UTF-8 here, whatever the file is. Only its beginning is in memory: `data` and `blocks` read on, once, and
    only until the walk goes on to the next file. `size` is None where it is not known without unpacking it all. `path`
    is None for a member of an archive. `mtime`: seconds since the epoch, when it was last written as far as the
    folder or the archive says; what copies or unpacks may change it. `node`: whose it is, where something in the file
    around it says so. `seen_at`: when it was seen, where a heading around it says so, by the node's own clock.
    """

    __slots__ = ("_data", "_stream", "binary", "cut_lines", "inside", "mtime", "node", "path", "ref", "seen_at", "size")

    def __init__(
        self,
        ref: str,
        inside: PurePosixPath,
        data: bytes = b"",
        size: int | None = None,
        path: Path | None = None,
        *,
        stream: Any = None,
        mtime: float | None = None,
        node: str = "",
    ) -> None:
        self.ref, self.inside, self.size, self.path, self.mtime, self.node = ref, inside, size, path, mtime, node
        self.seen_at: float | None = None
        self._stream = stream
        self.cut_lines = 0  # that were too long to be read whole
        head = _without_hole(data, stream)
        self.binary = bool(head) and not (encoding := encoding_of(head))
        if not self.binary and head:
            skip, _ = mark_of(head)
            if encoding != "utf-8" or b"\x1b[" in head:
                self._stream = Recoded(_Ahead(head[skip:], stream), encoding)
                head, skip = self._stream.read(HEAD), 0
            head = head[skip:]
        self._data = head

    @property
    def name(self) -> str:
        return self.inside.name

    @property
    def head(self) -> bytes:
        return self._data[:HEAD]

    def upto(self, most: int) -> bytes:
        """Its first bytes, at most so many, as far as it was not passed over yet."""
        if self._stream is not None and len(self._data) < most:
            found = bytearray(self._data)
            while len(found) < most and (part := self._stream.read(min(PART, most - len(found)))):
                found += part
            self._data = bytes(found)
        return self._data[:most]

    @property
    def data(self) -> bytes:
        """The first FILE_BYTES, and one more where there are more."""
        return self.upto(FILE_BYTES + 1)

    @property
    def cut(self) -> bool:
        """Whether there is more than FILE_BYTES."""
        return len(self.data) > FILE_BYTES

    def blocks(self) -> Iterator[bytes]:
        """What comes after what was read so far, in blocks of whole lines. A line without end is cut at LONG_LINE."""
        left, passing = b"", False
        while self._stream is not None and (part := self._stream.read(PART)):
            end = max(part.rfind(b"\n"), part.rfind(b"\r")) + 1
            if passing:  # the end of a line of which enough was seen
                begin = min((at for at in (part.find(b"\n"), part.find(b"\r")) if at >= 0), default=-1)
                if begin < 0:
                    continue
                part, end, passing = part[begin:], end - begin, False
            if end:
                yield left + part[:end]
                left = part[end:]
            else:
                left += part
            if len(left) > LONG_LINE:
                yield left[:LONG_LINE] + b"\n"
                left, passing = b"", True
                self.cut_lines += 1
        if left:
            yield left

    def close(self) -> None:
        """The walk goes on: what was not read by now is not read."""
        self._stream = None


class _Ahead:
    """A stream with the bytes that were taken from it put back."""

    def __init__(self, head: bytes, stream: Any) -> None:
        self._head, self._stream = head, stream

    def read(self, size: int) -> bytes:
        if self._head:
            found, self._head = self._head[:size], self._head[size:]
            return found
        return bytes(self._stream.read(size)) if self._stream is not None else b""


def _without_hole(head: bytes, stream: Any) -> bytes:
    """What comes after NULs at the beginning: a log that was cut to nothing below its writer has such a hole."""
    passed = 0
    while stream is not None and head and not head.strip(b"\0") and passed < NUL_BYTES:
        passed += len(head)
        head = stream.read(HEAD)
    return head.lstrip(b"\0") if passed or head[:64] == b"\0" * 64 else head


class Budget:
    """What may still be read, over all files."""

    def __init__(self, files: int = FILES, size: int = ALL_BYTES) -> None:
        self.files, self.bytes = files, size

    def take(self, size: int) -> None:
        """One more file of so many bytes."""
        self.files -= 1
        self.bytes -= size

    @property
    def spent(self) -> bool:
        return self.files <= 0 or self.bytes <= 0


def shown(path: Path | str) -> str:
    """A path as people are told it: one line, without what a terminal would obey."""
    return clean(os.fsencode(str(path)).decode("utf-8", "replace")).replace("\n", "\u240a")[:1000]
