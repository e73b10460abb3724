"""How the shape of one line is written down, and how a line that has it becomes an event."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ahocorasick_rs

from probes.catalog.logs.events import KINDS, LogEvent
from probes.catalog.logs.lines import Line
from probes.core import clean

TEXT = 400
_NUMBERS = frozenset(("seq", "code"))
_WORDS = frozenset(("op", "peer", "group", "name", "where"))
_RANKS = re.compile(r"\d{1,7}")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_MANY_RANKS = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """`needle` stands in every such line: it is looked for first, because that is cheap.

    The pattern's named groups fill the fields of that name. `about` takes every number in it, `size` and
    `size_out` become sizes, `dims` a list of sizes; every other group goes to `more`, as a number where it is one.
    """

    kind: str
    needle: str
    pattern: re.Pattern[str]
    secondary: bool = False
    name: str = ""

    def read(self, line: Line) -> LogEvent | None:
        if self.needle not in line.text:
            return None
        found = self.pattern.search(line.text)
        if not found:
            return None
        groups = {key: value for key, value in found.groupdict().items() if value is not None}
        return event(self.kind, line, groups, self.secondary, self.name)


def shape(kind: str, needle: str, pattern: str = "", secondary: bool = False, name: str = "") -> Shape:
    """A shape; without a pattern the needle is enough. Raises KeyError on a kind that is not in KINDS."""
    KINDS[kind]
    return Shape(kind, needle, re.compile(pattern or re.escape(needle)), secondary, name)


def event(kind: str, line: Line, groups: dict[str, str], secondary: bool = False, name: str = "") -> LogEvent:
    """An event of a line from what its pattern found. Text of the node is cleaned and cut here, once."""
    words = {key: clean(value).strip()[:200] for key, value in groups.items() if key in _WORDS}
    numbers = {key: number(value) for key, value in groups.items() if key in _NUMBERS}
    sizes = tuple(int(groups[key]) for key in ("size", "size_out") if key in groups)
    if "dims" in groups:
        sizes = tuple(int(part) for part in re.findall(r"\d{1,18}", groups["dims"])[:16])
    taken = _WORDS | _NUMBERS | {"about", "size", "size_out", "dims", "rank"}
    more = {key: _plain(value) for key, value in groups.items() if key not in taken}
    rank = line.rank if line.rank is not None else number(groups.get("rank", ""))
    return LogEvent(
        kind,
        clean(line.text.strip())[:TEXT],
        rank=rank,
        about=ranks_in(groups.get("about", "")),
        peer=words.get("peer", ""),
        seq=numbers.get("seq"),
        op=words.get("op", ""),
        sizes=sizes,
        group=words.get("group", ""),
        code=numbers.get("code"),
        name=words.get("name", name),
        where=words.get("where", ""),
        at=line.at,
        last_at=line.at,
        clock=line.clock,
        stamp=line.stamp,
        line=line.number,
        offset=line.offset,
        secondary=secondary,
        more=more,
    )


def ranks_in(text: str) -> tuple[int, ...]:
    """`0, 1, 5` and `[0, 1, 5]` as numbers, 64 at most."""
    return tuple(int(word) for word in _RANKS.findall(text)[:_MANY_RANKS])


def number(text: str) -> int | None:
    """A whole number of at most 18 digits, with a sign; None for anything else."""
    return int(text) if _WHOLE.fullmatch(text) else None


def _plain(text: str) -> str | int:
    as_number = number(text)
    return clean(text)[:200] if as_number is None else as_number


class Shapes:
    """Shapes that are tried in their order. The needles of all are looked for at once (Aho and Corasick): most lines
    have none of hundreds."""

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._shapes = tuple(shapes)
        places: dict[str, list[int]] = {}
        for place, one in enumerate(self._shapes):
            places.setdefault(one.needle, []).append(place)
        self._places = tuple(places.values())
        self._needles = ahocorasick_rs.BytesAhoCorasick([needle.encode() for needle in places])

    def first(self, line: Line) -> LogEvent | None:
        """The event of the first shape that the line has."""
        text = line.text.encode("utf-8", "surrogatepass")  # an error.json may spell half a character
        needles = {needle for needle, _, _ in self._needles.find_matches_as_indexes(text, overlapping=True)}
        places = sorted(place for needle in needles for place in self._places[needle])
        return next((found for place in places if (found := self._shapes[place].read(line))), None)


Reader = Callable[[Line], LogEvent | None]


def least_ms(event: LogEvent) -> int | None:
    """Of a step, or of steps that were counted together: what the quickest took."""
    least = event.more.get("least_ms", event.more.get("step_ms"))
    return least if isinstance(least, int) and least > 0 else None
