"""Control groups with limits, in which a node of a test may run: of version 1 or 2, as this machine has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.support.wait import until

MakeGroup: TypeAlias = Callable[[str, Mapping[str, str]], Path]


def control_group(controller: str, name: str) -> Path:
    """A control group of this machine with that controller, of either version; skips where none can be made."""
    root = Path("/sys/fs/cgroup")
    place = root / name if (root / "cgroup.controllers").exists() else root / controller / name
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error.strerror}")
    return place


@contextmanager
def control_groups() -> Iterator[MakeGroup]:
    """Makes control groups with limits: names of files, the first that is there counts. Taken away when empty."""
    made: list[Path] = []

    def make(controller: str, limits: Mapping[str, str]) -> Path:
        place = control_group(controller, f"golden15-{os.getpid()}-{controller}")
        made.append(place)
        there = {file: value for file, value in limits.items() if (place / file).exists()}
        if not there:
            pytest.skip(f"this machine has no controller {controller}")
        for file, value in there.items():
            (place / file).write_text(value)
        return place

    yield make
    for place in made:
        until(lambda place=place: not (place / "cgroup.procs").read_text(), 20, "the group to be empty")
        place.rmdir()
