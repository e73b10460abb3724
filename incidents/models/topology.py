"""The fabric as it should be, as somebody said that it is right."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from incidents.models.fleet import Fleet


class ExpectedTopology(models.Model):
    """One version of a fleet's expected topology; the latest counts. Never changed: a new one is stored instead.

    `body` is probes.topology's form: the ports that must be there, each with its cable's other end where that is known.
    """

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="topologies")
    at = models.DateTimeField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    source = models.CharField(max_length=200, help_text="what it was learned from, for people")
    body = models.JSONField()

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"topology {self.pk} of {self.fleet}"
