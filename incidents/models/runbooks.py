"""A runbook that was started in an incident, as it was then."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from incidents.models.incident import Incident


class RunbookRun(models.Model):
    """One runbook at work in one incident.

    `body` is the whole runbook as it was when it was started (see incidents.runbook): a file that is changed later
    changes nothing here. `subject` is what the verdict blamed then, from which commands take their parameters.
    `step` is the question that waits now, "" when it came to its end.
    """

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="runbook_runs")
    runbook = models.CharField(max_length=60)
    body = models.JSONField()
    subject = models.JSONField(default=dict)
    step = models.CharField(max_length=60, blank=True)
    started_at = models.DateTimeField()
    started_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    ended_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.runbook} in INC-{self.incident_id}"
