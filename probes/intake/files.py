"""Every file that people brought: folders of any depth, compressed files, and the members of archives.

Units    bytes; seconds since the epoch
Shape    walk(paths) -> Item or Unread. An Item can be read on until the next one is taken
Errors   NoSuchPath. What cannot be read is an Unread with why; nothing else is raised

Nothing is written to a disk, no name of a member is ever opened as a path, and links are not followed: what comes in an
upload is from a stranger. Every limit holds for what comes out of a compressed file, not for its size.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from probes.intake.archives import is_archive, members
from probes.intake.items import HEAD, Budget, Item, Unread, shown
from probes.intake.names import looks_like_a_node

DEPTH = 32  # folders within folders
SKIPPED = {".git", "__pycache__", ".svn", "node_modules"}


class NoSuchPath(ValueError):
    """A path that was given does not exist, or may not be read."""


@dataclass(frozen=True, slots=True)
class Given:
    """A file that lies somewhere else than it is called: one of an upload. `mtime` as its browser told it."""

    path: Path
    inside: PurePosixPath
    mtime: float | None = None


def walk(paths: Sequence[Path | Given], budget: Budget | None = None) -> Iterator[Item | Unread]:
    """Every file under these paths, folders in the order of their names. Raises NoSuchPath before anything is read."""
    budget = budget or Budget()
    for one in paths:
        path = one.path if isinstance(one, Given) else one
        try:
            path.stat()
        except OSError as error:
            raise NoSuchPath(f"{path}: {error.strerror or error}") from None
    for one in paths:
        if isinstance(one, Given):
            yield from _file(one.path, one.inside, budget, given=one)
            continue
        # Of several folders each may be a rank's or a node's; a single one is only called what people like.
        about = one.name if one.is_dir() else one.absolute().parent.name
        top = PurePosixPath(about) if len(paths) > 1 or looks_like_a_node(about) else PurePosixPath()
        if one.is_dir():
            yield from _folder(one, top, budget, 0)
        else:
            yield from _file(one, top / one.name, budget, follow=True)


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


def _file(
    path: Path, inside: PurePosixPath, budget: Budget, follow: bool = False, given: Given | None = None
) -> Iterator[Item | Unread]:
    ref = shown(str(given.inside)) if given else shown(path)
    try:
        # A FIFO must not make us wait, and what was no link a moment ago must not have become one.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
        with os.fdopen(number, "rb") as handle:
            about = os.fstat(number)
            if not stat.S_ISREG(about.st_mode):
                yield Unread(ref, "not a regular file")
                return
            head = handle.read(HEAD)
            if is_archive(head):
                handle.seek(0)
                yield from members(handle, ref, inside, budget, 1, about.st_size)
                return
            budget.take(about.st_size)
            mtime = given.mtime if given else about.st_mtime
            item = Item(ref, inside, head, about.st_size, None if given else path, stream=handle, mtime=mtime)
            yield item
            item.close()
    except OSError as error:
        yield Unread(ref, f"cannot be read: {error.strerror}")
