"""The files door: what people already have becomes readings, the same as from nodes.

Shape    read(paths) -> Intake
Errors   NoSuchPath

Any layout: each file is recognised by its content (kinds), read by the parser of its probe (sorting), given to a rank
and a node by what names and contents say together (who), and becomes a reading whose ref is the file (readings).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from probes.core import Reading
from probes.intake.clues import earlier_attempts
from probes.intake.files import Given, NoSuchPath
from probes.intake.items import Unread
from probes.intake.readings import readings
from probes.intake.sorting import sort
from probes.intake.who import Who
from probes.topology import Topology

__all__ = ["Given", "Intake", "NoSuchPath", "Unread", "read"]


@dataclass(frozen=True, slots=True)
class Intake:
    """`readings`: (file, reading). `unread`: files that told nothing, by their names. `asked`: nodes that captures say
    were asked, also those that gave none. `expected`: how the fabric should be, where an evidence bundle says it."""

    readings: tuple[tuple[str, Reading], ...]
    unread: tuple[Unread, ...]
    asked: tuple[str, ...] = ()
    expected: Topology | None = None


def read(paths: Sequence[Path | Given], seen: Callable[[int], None] = lambda files: None) -> Intake:
    """Everything under these paths. Raises NoSuchPath. `seen` is told now and then how many files were looked at."""
    brought = sort(paths, seen)
    who = Who(brought)
    if old := earlier_attempts(who.names):
        brought.drop(old, "of an attempt before the last one: the job was started again after it")
        who = Who(brought)
    found: list[tuple[str, Reading]] = []
    unread = list(brought.unread)
    for one in readings(brought, who):
        if isinstance(one, Unread):
            unread.append(one)
        else:
            found.append(one)
    left = tuple(sorted(set(unread), key=lambda one: one.file))
    return Intake(tuple(found), left, tuple(brought.asked), brought.expected)
