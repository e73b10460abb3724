"""Collapses the lines of one event into one record."""

from __future__ import annotations

from typing import Any, TypeAlias

from probes.catalog.kernel.events import Event
from probes.catalog.kernel.lines import Line

Key: TypeAlias = tuple[Any, ...]

# NVSentinel: an event stays open for 3 h; within it, lines more than 3 min apart (Xid 31) or 15 s apart (Xid 13) are
# new bursts. One fault printed 629 lines of Xid 13 in a recorded log.
STICKY_S = 3 * 3600.0
BURST_S = 180.0
MOST_EVENTS = 500  # of all kinds together: hostile or endless logs must not fill the memory


class Record:
    """One event that is still being read."""

    def __init__(self, kind: type[Event], line: Line, fields: dict[str, Any]):
        self.kind = kind
        self.fields = fields
        self.first = self.last = line
        self.count = 0
        self.bursts = 1

    def add(self, name: str, value: Any, most: int = 16) -> None:
        """Append to a tuple field, each value once."""
        if value not in self.fields[name] and len(self.fields[name]) < most:
            self.fields[name] = (*self.fields[name], value)

    def freeze(self) -> Event:
        return self.kind(
            count=max(1, self.count),
            bursts=self.bursts,
            first=self.first.stamp,
            last=self.last.stamp,
            first_at=self.first.at,
            last_at=self.last.at,
            text=self.first.text[:500],
            **self.fields,
        )


class Tally:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self._open: dict[Key, Record] = {}

    def find(self, kind: type[Event], *key: Any) -> Record | None:
        return self._open.get((kind, *key))

    def note(self, kind: type[Event], key: Key, line: Line, /, burst_s: float = BURST_S, **fields: Any) -> Record:
        """The open record of this kind and key, or a new one with `fields`. Does not count: see `count`."""
        record = self._open.get((kind, *key))
        pause = _pause(record.last, line) if record else 0.0
        if record is None or pause > STICKY_S:
            record = Record(kind, line, fields)
            if len(self.records) < MOST_EVENTS:
                self.records.append(record)
                self._open[(kind, *key)] = record
        elif pause > burst_s:
            record.bursts += 1
        record.last = line if line.stamp or line.order is not None else record.last
        return record

    def count(self, kind: type[Event], key: Key, line: Line, /, burst_s: float = BURST_S, **fields: Any) -> Record:
        record = self.note(kind, key, line, burst_s, **fields)
        record.count += 1
        return record

    def of(self, kind: type[Any]) -> tuple[Any, ...]:
        return tuple(record.freeze() for record in self.records if record.kind is kind)


def _pause(before: Line, line: Line) -> float:
    return 0.0 if before.order is None or line.order is None else line.order - before.order
