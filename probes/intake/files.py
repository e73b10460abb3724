"""Every file that people brought: folders of any depth, .gz, and the members of .tar, .tar.gz and .zip.

Units    bytes
Shape    walk(paths) -> Item or Unread
Errors   NoSuchPath. What cannot be read is an Unread with why; nothing else is raised

Nothing is written to a disk, no name of a member is ever opened as a path, and links are not followed: what comes in an
upload is from a stranger. Every limit holds for what comes out of a compressed file, not for its size.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from probes.intake import items
from probes.intake.archives import is_archive, members
from probes.intake.items import Budget, Item, Unread, shown
from probes.intake.names import looks_like_a_node

END_BYTES = 25_165_824  # of a longer one, see end_of
DEPTH = 32  # folders within folders
SKIPPED = {".git", "__pycache__", ".svn", "node_modules"}


class NoSuchPath(ValueError):
    """A path that was given does not exist, or may not be read."""


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


def _file(path: Path, inside: PurePosixPath, budget: Budget, follow: bool = False) -> Iterator[Item | Unread]:
    try:
        # A FIFO must not make us wait, and what was no link a moment ago must not have become one.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
        with os.fdopen(number, "rb") as handle:
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode):
                yield Unread(shown(path), "not a regular file")
                return
            if is_archive(handle.read(512)):
                handle.seek(0)
                yield from members(handle, shown(path), inside, budget, 1)
                return
            handle.seek(0)
            data = handle.read(items.FILE_BYTES + 1)
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
