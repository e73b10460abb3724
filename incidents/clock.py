"""The three phases of the golden 15 minutes and when each is due. Pure: times in, times out.

One budget from T0: due times are absolute, so finishing early banks slack and finishing late eats the next phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from incidents.models.incident import PHASES

TITLES = {"capture": "Capture", "triage": "Triage", "decide": "Decide & act"}
LEADS_TO = {"triage": "To Triage", "decide": "To decision"}  # what the button to a phase says

# Minutes from T0 by which each phase is due, per severity. All the same until a site changes them.
DUE_MINUTES = dict.fromkeys((1, 2, 3, 4), (3, 8, 15))


@dataclass(frozen=True, slots=True)
class Due:
    """When one phase is due; `after` is from T0."""

    phase: str
    after: timedelta
    at: datetime


def due_times(t0: datetime, severity: int) -> tuple[Due, ...]:
    """The due time of each phase, in order. `t0` is aware; `severity` is 1 (worst) to 4."""
    if t0.tzinfo is None:
        raise ValueError("T0 has no time zone")
    afters = (timedelta(minutes=minutes) for minutes in DUE_MINUTES[severity])
    return tuple(Due(phase, after, t0 + after) for phase, after in zip(PHASES, afters, strict=True))


def next_phase(phase: str) -> str | None:
    """The phase after this one, or None after the last."""
    index = PHASES.index(phase) + 1
    return PHASES[index] if index < len(PHASES) else None


def t_plus(t0: datetime, at: datetime) -> str:
    """`T+3:33`, `T-0:41`, and hours above 60 minutes: `T+1:02:03`."""
    seconds = int((at - t0).total_seconds())
    return f"T{'-' if seconds < 0 else '+'}{span(t0, at)}"


def span(one: datetime, other: datetime) -> str:
    """How far two times lie apart, whichever is first: `3:33`, above 60 minutes `1:02:03`."""
    minutes, seconds = divmod(abs(int((other - one).total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def moment(seconds: float) -> str:
    """Seconds since the epoch as a UTC time, or a sentence when a node's clock says what no calendar holds."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, OSError, ValueError):
        return f"{str(seconds)[:40]} seconds since 1970"
