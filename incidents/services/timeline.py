"""How a line gets into the timeline. Every service that changes something of an incident ends in `tell`."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from incidents.models import Event, Incident, User


def tell(incident: Incident, kind: str, by: User | None = None, **payload: Any) -> Event:
    """Add one event. Must run inside the transaction of what it tells, and holds the incident's row until its end.

    `incident` gets the new `last_seq` and `head`. The clock is this server's; people see it, order is by seq.
    """
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("an event belongs into the transaction of what it tells")
    row = Incident.objects.select_for_update().only("last_seq", "head").get(pk=incident.pk)
    event = Event(
        incident_id=row.pk,
        seq=row.last_seq + 1,
        kind=kind,
        at=timezone.now(),
        actor=by,
        payload=payload,
        prev_hash=row.head,
    )
    event.hash = event.digest()
    event.save(force_insert=True)
    Incident.objects.filter(pk=row.pk).update(last_seq=event.seq, head=event.hash)
    incident.last_seq, incident.head = event.seq, event.hash
    return event
