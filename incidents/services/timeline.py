"""How a line gets into the timeline. Every service that changes something of an incident ends in `tell`."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from incidents import live
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
    _ring_on_commit(row.pk)
    return event


class _Bell:
    """Rings once per transaction, whichever of its savepoints survive, with what was in fact committed."""

    def __init__(self, incident_id: int) -> None:
        self.incident_id = incident_id
        self.rung = False

    def __call__(self) -> None:
        if not self.rung:
            self.rung = True
            seq = Incident.objects.values_list("last_seq", flat=True).get(pk=self.incident_id)
            live.publish(self.incident_id, seq)


def _ring_on_commit(incident_id: int) -> None:
    waiting = (entry[1] for entry in reversed(transaction.get_connection().run_on_commit))
    bells = (hook for hook in waiting if isinstance(hook, _Bell) and hook.incident_id == incident_id)
    transaction.on_commit(next(bells, None) or _Bell(incident_id), robust=True)
