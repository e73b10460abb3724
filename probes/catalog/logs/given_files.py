"""Log files by paths that people give, for ranks that are gone. SENT TO THE NODE with rank.log's collector.

The patterns come as an attachment: data, never part of a command. What `*` found is read only where it really lies in
the folder that was given: a link that somebody put there must not lead this login to other people's files.
"""

from __future__ import annotations

import heapq
import json
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

from probes.catalog.logs import reduce
from probes.runner import Absent, attachment, isolate, read

ATTACHMENT = "log-paths"
GIVEN = "given path"
MANY_FILES = 64
MANY_NAMES = 20000  # entries of folders that are looked at for one pattern
LONG_PATH = 1024
LIST_S = 2.0
ONE_RUN_S = 86400.0  # judgement: what was written a day before the newest file is of another run
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/boot", "/run/secrets", "/var/run/secrets", "/run/credentials")


def off_limits(path: str) -> bool:
    """Whether no log is read there, whoever asks: system folders but /dev/shm, and hidden names such as .ssh."""
    if path.startswith("/dev/shm/"):
        path = path[len("/dev/shm") :]
    hidden = any(part.startswith(".") for part in path.split("/"))
    return hidden or any(path == folder or path.startswith(folder + "/") for folder in SYSTEM)


def files_given() -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """(places as _log_places has them, what became of each pattern, files that fit and are left off).

    Newest first. Without patterns all is empty.
    """
    patterns, why = _patterns()
    asked: list[dict[str, Any]] = [{"pattern": pattern, "fits": None, "why": why} for pattern in patterns]
    if why:
        return [], asked, 0
    found: dict[str, tuple[float, str, str]] = {}
    fits = 0
    for said, result in zip(asked, isolate([(one, _lister(one)) for one in patterns], LIST_S, 524288)):  # noqa: B905
        if result["outcome"] != "ok":
            said["why"] = result["why"] + (", it sleeps in " + result["wchan"] if result["wchan"] else "")
            continue
        told = json.loads(result["text"])
        said.update(fits=told["fits"], why=told["why"])
        fits += told["fits"] - len(told["files"])
        for written, path, inode in told["files"]:
            found.setdefault(inode, (written, path, base_of(said["pattern"])))
    newest = sorted(found.values(), reverse=True)
    kept = [one for one in newest if newest[0][0] - one[0] <= ONE_RUN_S][:MANY_FILES]
    places = [_place(path, base) for _, path, base in kept]
    return places, asked, fits + len(newest) - len(kept)


def _place(path: str, base: str) -> dict[str, Any]:
    place = {"path": path, "file": path, "how": GIVEN, "rank": None, "pid": None}
    return dict(place, writers=[], deleted=False, job="", base=base)


def _patterns() -> tuple[list[str], str]:
    """(patterns, why they cannot be used); nothing at all when none were sent."""
    try:
        said = json.loads(read(attachment(ATTACHMENT)))
    except Absent as error:
        return ([""], str(error)) if "cannot be used" in str(error) else ([], "")
    return [pattern for pattern in said if pattern.startswith("/") and not off_limits(pattern)], ""


def base_of(pattern: str) -> str:
    """The folder that people named: what stands before the first part with a wildcard, or before the file's name."""
    parts = pattern.split("/")
    wild = [number for number, part in enumerate(parts) if "*" in part or "?" in part]
    return "/".join(parts[: min(wild + [len(parts) - 1])]) or "/"


def _lister(pattern: str) -> Callable[[], str]:
    """Work for a child: the newest regular files that fit, as [time of the last write, path, inode]."""

    def work() -> str:
        left, denied = [MANY_NAMES], [0]
        seen = []
        for path in _fitting(b"", _bytes(pattern).split(b"/")[1:], left, denied):
            name = path.decode("utf-8", "surrogateescape")
            if len(path) > LONG_PATH or off_limits(name):
                continue
            try:
                status = os.stat(path)
            except PermissionError:
                denied[0] += 1
                continue
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                seen.append([status.st_mtime, name, f"{status.st_dev}:{status.st_ino}"])
        why = "this login may not look into some of its folders" if denied[0] else ""
        why = f"there are over {MANY_NAMES} names; the rest was not looked at" if left[0] < 0 else why
        return json.dumps({"fits": len(seen), "files": heapq.nlargest(MANY_FILES, seen), "why": why})

    return work


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")  # not os.fsencode: before Python 3.7 that is ASCII here


def _fitting(folder: bytes, parts: list[bytes], left: list[int], denied: list[int]) -> Iterator[bytes]:
    """Paths that fit. Within a path a wildcard enters neither links to folders nor what is off limits."""
    name, rest = parts[0], parts[1:]
    if b"*" not in name and b"?" not in name:
        path = folder + b"/" + name
        yield from _fitting(path, rest, left, denied) if rest else [path]
        return
    try:
        entries = os.scandir(folder or b"/")
    except PermissionError:
        denied[0] += 1
        return
    except OSError:
        return
    with entries:
        for entry in entries:
            left[0] -= 1
            if left[0] < 0:
                return
            if not fits(entry.name, name):
                continue
            if not rest:
                yield entry.path
            elif entry.is_dir(follow_symlinks=False) and not off_limits(entry.path.decode("utf-8", "replace")):
                yield from _fitting(entry.path, rest, left, denied)


def fits(name: bytes, pattern: bytes) -> bool:
    """`*` is any number of bytes, `?` one; nothing else is special. At most len(name) * len(pattern) steps."""
    at = place = 0
    star, resume = -1, 0
    while at < len(name):
        if place < len(pattern) and pattern[place] == 42:  # *
            star, resume = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in (63, name[at]):  # ?
            at, place = at + 1, place + 1
        elif star >= 0:
            resume += 1
            at, place = resume, star + 1
        else:
            return False
    return not pattern[place:].strip(b"*")


def reader(place: dict[str, Any], budget: int) -> Callable[[], str]:
    """Work for a child: what `reduce.reduced` gives of this very file, when it lies where people said."""

    def work() -> str:
        os.nice(10)
        held = -1
        try:
            # Held by a descriptor that opens nothing yet: what is looked at here is what is read after it.
            held = os.open(_bytes(place["path"]), os.O_PATH | os.O_CLOEXEC)
            really = os.readlink(b"/proc/self/fd/%d" % held)
            if not stat.S_ISREG(os.fstat(held).st_mode):
                return json.dumps({"outcome": "failed", "why": "it is not a regular file"})
            inside = os.path.realpath(_bytes(place["base"])).rstrip(b"/") + b"/"
            if not really.startswith(inside) or off_limits(really.decode("utf-8", "replace")):
                return json.dumps({"outcome": "failed", "why": "it leads out of " + place["base"]})
            with open(f"/proc/self/fd/{held}", "rb") as handle:
                return reduce.reduced(handle, place["file"], min(budget, 250000))
        except FileNotFoundError:
            return ""
        except PermissionError:
            return json.dumps({"outcome": "denied", "why": "this login may not read it"})

    return work
