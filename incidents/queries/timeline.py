"""Reads of the timeline: what came after a seq, and whether the chain still holds."""

from __future__ import annotations

from collections.abc import Iterator

from incidents.models import Event, Incident

HIDDEN = ("readings", "ranking")  # kinds that keep the record whole and are not shown to people


def events_after(incident: Incident, seq: int, limit: int = 500) -> list[Event]:
    """Events with a greater seq, in order, at most `limit`."""
    return list(incident.events.filter(seq__gt=seq).select_related("actor")[:limit])


def broken_links(incident: Incident) -> Iterator[str]:
    """What is wrong with an incident's timeline, one sentence each; nothing when the record is whole.

    A changed, removed, added or reordered event is found. A tail that was cut together with the incident's own
    `last_seq` and `head` is found only by comparing `head` with a copy kept elsewhere.
    """
    before, expected = "", 1
    for event in incident.events.order_by("seq").iterator(chunk_size=1000):
        if event.seq != expected:
            yield f"INC-{incident.pk}: event {expected} is missing"
        if event.prev_hash != before:
            yield f"INC-{incident.pk}: event {event.seq} does not follow the one before it"
        if event.digest() != event.hash:
            yield f"INC-{incident.pk}: event {event.seq} is not what was recorded"
        before, expected = event.hash, event.seq + 1
    if (incident.last_seq, incident.head) != (expected - 1, before):
        yield f"INC-{incident.pk}: the timeline ends at {expected - 1}, the incident says {incident.last_seq}"


def last_seq(incident_id: int) -> int | None:
    """How far an incident's timeline is; None when there is no such incident."""
    return Incident.objects.filter(pk=incident_id).values_list("last_seq", flat=True).first()
