"""One file that people brought, and how much of everything may be read.

Units    bytes
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from probes.core import clean

FILE_BYTES = 67_108_864  # of one file that are looked at: as many as the flight-recorder reader takes
ALL_BYTES = 8_589_934_592  # of everything, unpacked
FILES = 200_000
HEAD = 65_536


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


def shown(path: Path | str) -> str:
    """A path as people are told it: one line, without what a terminal would obey."""
    return clean(os.fsencode(str(path)).decode("utf-8", "replace")).replace("\n", "\u240a")[:1000]
