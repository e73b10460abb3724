"""When an event of a kernel log was, in words."""

from __future__ import annotations

from datetime import UTC, datetime

from probes.catalog.kernel.events import Event, KernelLog
from probes.core import Moment


def _time(stamp: str, at: float | None) -> str:
    if at is None:
        return f"{stamp[1:-1]} s after boot" if stamp[:1] == "[" else f"{stamp} (local time)" if stamp else ""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _age(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"


def last(event: Event) -> Moment:
    """When it was last seen, for a finding."""
    return event.last_at, event.last


def when(event: Event, log: KernelLog) -> str:
    """`629 lines in 12 bursts from ... to ..., the last 3 min before this reading`"""
    first, newest = _time(event.first, event.first_at), _time(event.last, event.last_at)
    first = first or newest
    text = f"at {first}" if first else "at an unknown time"
    if event.count > 1:
        text = f"{event.count} times" + (f" in {event.bursts} bursts" if event.bursts > 1 else "")
        text += f" from {first} to {newest}" if first != newest else f" at {first}" if first else ""
    if log.now is not None and event.last_at is not None:
        text += f", {'the last ' if event.count > 1 else ''}{_age(log.now - event.last_at)} before this reading"
    return text
