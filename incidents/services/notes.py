"""What people write down during an incident, and after it."""

from __future__ import annotations

import uuid

from django.db import transaction

from incidents.models import Event, Incident, User
from incidents.services.fleet import Refused
from incidents.services.timeline import tell

LONGEST = 2000  # characters


@transaction.atomic
def add_note(incident: Incident, by: User, text: str, key: str) -> Event:
    """Put a note into the timeline, once however often it is sent. A closed incident takes notes too.

    `key` is a UUID that the page made for this text: sent again with the same words it returns the event that is there.
    `text` is kept as typed, 1 to 2000 characters; only line ends become \\n, and NUL, which no database keeps, visible.
    Raises Refused when the text or the key cannot be one.
    """
    text = text.replace("\r\n", "\n").replace("\x00", "\u2400")
    if not text.strip():
        raise Refused("The note is empty.", "text")
    if len(text) > LONGEST:
        raise Refused(f"The note has {len(text)} characters, {LONGEST} fit. Split it.", "text")
    try:
        key = str(uuid.UUID(key))
    except ValueError as error:
        raise Refused("This page is too old to send a note. Copy the text and reload the page.", "key") from error
    # Locked, so that of two that arrive at once the second sees the first.
    locked = Incident.objects.select_for_update().get(pk=incident.pk)
    there = locked.events.filter(kind="note", payload__key=key).first()
    if there is None:
        return tell(locked, "note", by, text=text, key=key)
    if there.actor_id != by.pk:
        raise Refused("Somebody else sent a note from this field. Send yours once more.", "key")
    if there.payload["text"] != text:
        raise Refused("A note with other words was sent from this field a moment ago. Send this one once more.", "key")
    return there
