"""Events of one log, counted: alike ones together, and of each kind a bounded number.

Source   none: what makes two lines the same is judgement
Units    milliseconds in `steady_ms`, `gap_ms` and `apart_ms` of what tells of steps
Shape    Tally: fed one event after the other; events() in the order of their lines
Errors   none
"""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.python import ENDS_ON_NAN, NAN_CHECK
from probes.catalog.logs.runs import run_of
from probes.catalog.logs.shapes import least_ms

FIRST, LAST = 40, 16  # events kept of one kind: the first ones and the last ones
# Of these each rank tells one or a few, and who is missing among them is the question.
OF_EACH_RANK = frozenset(
    ("watchdog_timeout", "watchdog_status", "dump_signal", "nccl_init_start", "nccl_init_done", "nccl_net",
        "step_times", "slow_rank", "nccl_gdr", "nccl_link", "nccl_channels", "nccl_version", "nccl_setting",
        "nccl_topo_file", "nccl_system", "nccl_hop", "nccl_graph", "nccl_graph_file")
)  # fmt: skip
MANY = 1024
# Kinds in which the newest line counts, and what makes two lines the same.
_NEWEST = ("progress", "phase_time", "nccl_call", "bandwidth")
_SUMMED = ("nccl_link", "nccl_propagation")


class Tally:
    """Events, alike ones counted together, and of each kind a bounded number."""

    def __init__(self) -> None:
        self._first: dict[str, dict[object, LogEvent]] = {}
        self._last: dict[str, dict[object, LogEvent]] = {}
        self.left_off = 0

    def add(self, event: LogEvent) -> None:
        key = _key(event)
        first, last = self._first.setdefault(event.kind, {}), self._last.setdefault(event.kind, {})
        for place in (first, last):
            if key in place:
                place[key] = _together(place[key], event)
                return
        if len(first) < (MANY if event.kind in OF_EACH_RANK else FIRST):
            first[key] = event
            return
        last[key] = event
        if len(last) > LAST:
            self.left_off += last.pop(next(iter(last))).count

    def events(self) -> tuple[LogEvent, ...]:
        found = [event for part in (self._first, self._last) for kind in part.values() for event in kind.values()]
        return tuple(sorted(found, key=lambda event: (event.line or 0, event.offset or 0)))


def _key(event: LogEvent) -> object:
    if event.kind in _NEWEST:
        return event.rank, event.op, event.name[:40], run_of(event)
    if event.kind in _SUMMED:
        host, pid = event.more.get("host"), event.more.get("of_pid")
        return event.rank, event.name, event.where, event.code, event.more.get("direction"), host, pid
    if event.kind == "nan":
        return event.rank, event.name if event.name in (NAN_CHECK, ENDS_ON_NAN, "loss scale") else ""
    alike = (event.rank, event.about, event.peer, event.seq, event.op, event.group, event.code, event.name)
    # Addresses and times in a text that no group took apart make two warnings differ: then they are two.
    return *alike, event.where, *(event.more.get(key) for key in ("channel", "comm", "host", "of_pid", "run"))


def _together(one: LogEvent, other: LogEvent) -> LogEvent:
    times = [at for at in (one.last_at, other.last_at) if at is not None]
    base = other if one.kind in _NEWEST else one
    if one.kind == "progress" and base is other:
        since = {"first_stamp": one.more.get("first_stamp", one.stamp)} if one.stamp else {}  # since when it goes on
        took = {"wait_ms": one.more["wait_ms"]} if "wait_ms" in one.more else {}  # the last such part that ended
        base = dataclasses.replace(base, more={**took, **base.more, **_pace(one, other), **since})
    at = one.at if one.at is not None else other.at
    more = base.more
    if one.kind == "progress" and (steps := [ms for event in (one, other) if (ms := least_ms(event)) is not None]):
        more = {**more, "least_ms": min(steps)}  # against which the newest step is slow
    if one.kind in (*_NEWEST, "nan") and (last := other.line or other.offset):
        # A bar writes many pieces into one line: those of it count one after the other.
        pieces = {"piece": other.more["piece"]} if isinstance(other.more.get("piece"), int) else {}
        more = {**more, "last_place": last, **pieces}
    return dataclasses.replace(
        base, at=at, last_at=max(times, default=None), count=one.count + other.count, line=one.line, offset=one.offset,
        more=more,
    )  # fmt: skip


def _pace(one: LogEvent, other: LogEvent) -> dict[str, int]:
    """How long the last steps took, by what they say of it or by the times at which they are told: the shorter of two,
    because between two of them something else may lie. Milliseconds."""
    found: dict[str, int] = {}
    if other.name.lower() == "epoch":
        return found
    told = [event.more.get("step_ms") for event in (one, other)]
    if isinstance(told[0], int) and isinstance(told[1], int):
        found["steady_ms"] = min(told[0], told[1])
    last, now = (_printed(one), _printed(other)) if one.stamp and other.stamp else (one.last_at, other.at)
    steps = (other.seq or 0) - (one.seq or 0)
    if last is not None and now is not None and 0 < steps < 1000 and 0 < now - last < 86_400 * steps:
        gap = round(1000 * (now - last) / steps)
        before = one.more.get("gap_ms")
        found["gap_ms"] = gap
        if isinstance(before, int):
            found["apart_ms"] = min(gap, before)
    return found


def _printed(event: LogEvent) -> float | None:
    """The time as it stands there, of no zone: only differences are made of it."""
    try:
        moment = datetime.fromisoformat(event.stamp if len(event.stamp) > 15 else f"2000-{event.stamp}")
        return moment.replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
