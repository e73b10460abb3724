"""The timeline: append-only, gapless per incident, chained by hash, guarded by the database itself."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.conf import settings
from django.db import models

from incidents.models.incident import Incident


class Event(models.Model):
    """One visible happening, or one recorded batch of readings (kind `readings`, not shown to people).

    `seq` counts from 1 without gaps within its incident; "as it was at T" is all events up to a seq. `payload` holds
    what happened as plain values. `hash` is of the event and of the hash before it: see `digest_of`.
    """

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="events")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=40)
    at = models.DateTimeField()
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    payload = models.JSONField(default=dict)
    prev_hash = models.CharField(max_length=64, blank=True)
    hash = models.CharField(max_length=64)

    class Meta:
        ordering = ["incident", "seq"]
        constraints = [models.UniqueConstraint(fields=["incident", "seq"], name="event_seq_once")]

    def __str__(self) -> str:
        return f"{self.incident_id}/{self.seq} {self.kind}"

    def digest(self) -> str:
        """What `hash` must be: SHA-256 of the canonical JSON of the event with the hash before it."""
        said: dict[str, Any] = {
            "incident": self.incident_id,
            "seq": self.seq,
            "kind": self.kind,
            "at": self.at.isoformat(),
            "actor": self.actor_id,
            "payload": self.payload,
            "prev_hash": self.prev_hash,
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
