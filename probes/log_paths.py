"""Log files that people name, for jobs whose ranks are gone: patterns, checked before anything is done with them.

They go to the nodes as data; catalog/logs/given_files.py says how they are looked up there.
"""

from __future__ import annotations

from collections.abc import Iterable

from probes.catalog.logs.given_files import off_limits

MOST, LONGEST, MOST_WILDCARDS = 8, 400, 8


class LogPathError(ValueError):
    """This is no pattern of log files. The text says which one, why, and what to give instead."""


def checked(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns in order, each once, without blank ones. Raises LogPathError."""
    found = tuple(dict.fromkeys(_checked(pattern.strip()) for pattern in patterns if pattern.strip()))
    if len(found) > MOST:
        raise LogPathError(f"{len(found)} log paths are too many: give at most {MOST}. * and ? stand for many files.")
    return found


def _checked(pattern: str) -> str:
    shown = ascii(pattern[:60])
    if len(pattern) > LONGEST:
        raise LogPathError(f"Log path {shown}... has {len(pattern)} characters; at most {LONGEST} are taken.")
    if not pattern.isprintable():
        raise LogPathError(f"Log path {shown} holds a control character. Type it anew.")
    if not pattern.startswith("/"):
        raise LogPathError(f"Log path {shown} does not begin with /. Give the whole path, as the nodes see it.")
    parts = pattern.split("/")[1:]
    if ".." in parts or "." in parts:
        raise LogPathError(f"Log path {shown} has a part . or .. in it. Give the path without.")
    if not parts[-1]:
        raise LogPathError(f"Log path {shown} is a folder. Give files, such as {pattern.rstrip('/')}/*.log")
    if pattern.count("*") + pattern.count("?") > MOST_WILDCARDS:
        raise LogPathError(f"Log path {shown} has over {MOST_WILDCARDS} of * and ?. Give a narrower one.")
    path = "/" + "/".join(filter(None, parts))
    if off_limits(path):
        raise LogPathError(f"Log path {shown} leads into a system folder or a hidden one: no log is read there.")
    return path
