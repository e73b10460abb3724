"""A profile's calls as the boxes of a flame graph: each as wide as its share of the samples, callers above.

Units    percent of the width; pixels down
Shape    profiles(facts) -> Drawable of each that can be drawn; flame(profile, at) -> Flame
Errors   none
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ROW = 20  # pixels
NARROW = 0.25  # percent; narrower boxes are not drawn
LABELLED = 2.5  # percent; below, there is no room for a word
HEAVIEST = 12


@dataclass(frozen=True, slots=True)
class Box:
    """`kind`: python, native, or above for the callers of the call that is looked at."""

    place: int  # counted from 1, as in the page's address
    name: str
    says: str
    kind: str
    x: float
    y: int
    width: float

    @property
    def label(self) -> str:
        return self.name if self.width >= LABELLED else ""


@dataclass(frozen=True, slots=True)
class Heavy:
    """A frame by the samples that it took itself, wherever it was called from. `place`: its largest box."""

    place: int
    name: str
    share: str


@dataclass(frozen=True, slots=True)
class Flame:
    boxes: tuple[Box, ...]
    height: int
    total: int
    at: str  # name of the call that is looked at, "" for all
    heaviest: tuple[Heavy, ...]


@dataclass(frozen=True, slots=True)
class Drawable:
    """A profile that has calls. `name`: what it is of, "" where it is the only one."""

    name: str
    profile: dict[str, Any]
    pid: int | None
    rank: int | None


def profiles(facts: Any) -> list[Drawable]:
    """One of a file, several of the ranks of a node."""
    if not isinstance(facts, dict):
        return []
    if facts.get("tree"):
        return [Drawable("", facts, None, facts.get("rank"))]
    rows = facts.get("profiles")
    found = [one for one in rows if isinstance(one, dict)] if isinstance(rows, list) else []
    with_calls = (one for one in found if (one.get("profile") or {}).get("tree"))
    return [Drawable(_of(one), one["profile"], one["pid"], one["rank"]) for one in with_calls]


def _of(one: dict[str, Any]) -> str:
    who = f"process {one['pid']}" if one["rank"] is None else f"rank {one['rank']}"
    return f"{who}, holder of the lock" if one["lock"] else f"{who}, running threads"


def without_calls(facts: Any) -> Any:
    """The facts as a table shows them: hundreds of calls are for the graph."""
    if isinstance(facts, dict):
        return {key: without_calls(value) for key, value in facts.items() if key != "tree"}
    return [without_calls(one) for one in facts] if isinstance(facts, list) else facts


def flame(profile: dict[str, Any], at: int = -1) -> Flame:
    """The graph of all calls of a profile that has some, or of those below the call at this place."""
    rows = profile["tree"]
    starts, depths, total = _placed(rows)
    at = at if -1 <= at < len(rows) else -1
    callers = set(_callers(rows, at))
    first, whole = (starts[at], rows[at]["samples"]) if at >= 0 else (0, total)
    boxes = []
    for place, row in enumerate(rows):
        inside = at < 0 or (place >= at and first <= starts[place] < first + whole and depths[place] >= depths[at])
        if place in callers:
            boxes.append(_box(row, place, total, 0.0, 100.0, depths[place], "above"))
        elif inside and 100 * row["samples"] >= NARROW * whole:
            x, width = 100 * (starts[place] - first) / whole, 100 * row["samples"] / whole
            boxes.append(_box(row, place, total, x, width, depths[place], ""))
    height = max(box.y for box in boxes) + ROW
    return Flame(tuple(boxes), height, total, rows[at]["name"] if at >= 0 else "", tuple(_heaviest(rows, total)))


def _placed(rows: list[dict[str, Any]]) -> tuple[list[int], list[int], int]:
    """(samples left of each call, how deep it lies, samples in all). Each call stands after its caller."""
    starts: list[int] = []
    depths: list[int] = []
    edges: list[int] = []  # where the next call of the same caller begins
    total = 0
    for row in rows:
        parent = row["parent"]
        start = total if parent < 0 else edges[parent]
        if parent < 0:
            total += row["samples"]
        else:
            edges[parent] += row["samples"]
        starts.append(start)
        edges.append(start)
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return starts, depths, total


def _callers(rows: list[dict[str, Any]], at: int) -> Iterator[int]:
    here = rows[at]["parent"] if at >= 0 else -1
    while here >= 0:
        yield here
        here = rows[here]["parent"]


def _box(row: dict[str, Any], place: int, total: int, x: float, width: float, depth: int, kind: str) -> Box:
    name, samples = row["name"], row["samples"]
    says = f"{name}: {100 * samples / total:.1f} %, {samples} of {total} samples"
    kind = kind or ("python" if ".py" in name or name.startswith("py::") else "native")
    return Box(place + 1, name, says, kind, round(x, 3), depth * ROW, round(width, 3))


def _heaviest(rows: list[dict[str, Any]], total: int) -> Iterator[Heavy]:
    own = [row["samples"] for row in rows]
    for row in rows:
        if row["parent"] >= 0:
            own[row["parent"]] -= row["samples"]
    by_name: dict[str, int] = {}
    largest: dict[str, int] = {}
    for place, (row, samples) in enumerate(zip(rows, own, strict=True)):
        name = row["name"]
        by_name[name] = by_name.get(name, 0) + samples
        if name not in largest or row["samples"] > rows[largest[name]]["samples"]:
            largest[name] = place
    for name, samples in sorted(by_name.items(), key=lambda one: -one[1])[:HEAVIEST]:
        if samples * 100 >= total:
            yield Heavy(largest[name] + 1, name, f"{100 * samples / total:.0f} %")
