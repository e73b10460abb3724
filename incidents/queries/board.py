"""Reads for the list of incidents: what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.utils import timezone

from incidents import clock
from incidents.models import Event, Incident
from incidents.queries.incident import PhaseView

SOON = timedelta(seconds=60)
CAPTURE = "capture"


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person. `rank` orders them, 0 the most pressing; `act` is a route that settles it."""

    incident: Incident
    rank: int
    level: str
    says: str
    act: str = ""


Row = tuple[Incident, PhaseView | None]


def needs(rows: list[Row], now: datetime | None = None) -> list[Need]:
    """What waits for a person: one entry per incident, all its reasons joined, the most pressing incident first.

    `rows` are open incidents, each with the phase that runs. Severity counts first; then overdue and "not one node
    could be reached" before "nobody commands", that before a capture that ended without some nodes (until a person
    moves on from it) and what is due within a minute.
    """
    now = now or timezone.now()
    ends = _capture_ends([incident for incident, _ in rows])
    found = [_joined(list(_needs_of(*row, ends.get(row[0].pk), now))) for row in rows]
    return sorted(filter(None, found), key=lambda need: (need.incident.severity, need.rank))


def _joined(of_one: list[Need]) -> Need | None:
    """The needs of one incident as one; the level of the worst, and what settles it where that is a click."""
    if not of_one:
        return None
    ordered = sorted(of_one, key=lambda need: need.rank)
    act = next((need.act for need in ordered if need.act), "")
    level = "bad" if any(need.level == "bad" for need in ordered) else ordered[0].level
    return replace(ordered[0], says="; ".join(need.says for need in ordered), act=act, level=level)


def _needs_of(
    incident: Incident, phase: PhaseView | None, ended: tuple[int, int] | None, now: datetime
) -> Iterator[Need]:
    if phase and now > phase.due_at:
        yield Need(incident, 0, "bad", f"{phase.title} is +{clock.span(phase.due_at, now)} over its time")
    elif phase and phase.due_at - now <= SOON:
        yield Need(incident, 3, "warn", f"{phase.title} is due in {clock.span(now, phase.due_at)}")
    if incident.commander is None:
        yield Need(incident, 1, "warn", f"nobody commands it, for {clock.span(incident.t0, now)}", "take_command")
    if ended is None:
        return
    answered, nodes = ended
    if nodes and not answered:
        says = "its node could not be reached" if nodes == 1 else f"not one of its {nodes} nodes could be reached"
        yield Need(incident, 0, "bad", says)
    elif answered < nodes and incident.phase == CAPTURE:
        yield Need(incident, 2, "warn", f"capture ended, {nodes - answered} of {nodes} nodes did not answer")


def word_at_hand(incident: Incident) -> str:
    """Why the present phase may be over, in words for the form; "" where only a person can say."""
    answered, nodes = _capture_ends([incident]).get(incident.pk, (0, 0))
    if incident.phase != CAPTURE or not nodes or answered < nodes:
        return ""
    return "its node answered" if nodes == 1 else f"all {nodes} nodes answered"


def _capture_ends(incidents: list[Incident]) -> dict[int, tuple[int, int]]:
    """(nodes that answered, nodes asked) of each incident's last capture that ended, by incident. One query."""
    ended = Event.objects.filter(incident__in=incidents, kind="suite_ended", payload__suite=CAPTURE).order_by("seq")
    return {event.incident_id: (event.payload["answered"], event.payload["nodes"]) for event in ended}
