"""The clock of the golden 15 minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from incidents import clock

T0 = datetime(2026, 11, 29, 23, 58, 30, tzinfo=UTC)  # across midnight


def test_due_times_are_absolute_from_t0() -> None:
    assert [(due.phase, due.at) for due in clock.due_times(T0, 1)] == [
        ("capture", datetime(2026, 11, 30, 0, 1, 30, tzinfo=UTC)),
        ("triage", datetime(2026, 11, 30, 0, 6, 30, tzinfo=UTC)),
        ("decide", datetime(2026, 11, 30, 0, 13, 30, tzinfo=UTC)),
    ]


def test_a_t0_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        clock.due_times(datetime(2026, 1, 1), 1)


def test_phases_follow_each_other_and_end() -> None:
    assert [clock.next_phase(phase) for phase in ("capture", "triage", "decide")] == ["triage", "decide", None]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "T+0:00"), (213, "T+3:33"), (-41, "T-0:41"), (3599, "T+59:59"), (3723, "T+1:02:03"), (-3723, "T-1:02:03")],
)
def test_times_are_told_from_t0(seconds: int, shown: str) -> None:
    assert clock.t_plus(T0, T0 + timedelta(seconds=seconds)) == shown
