"""What the evidence said at a moment, and what people decided about it."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from incidents.models.incident import PHASES, Incident

# The question that every verdict asks, and its answers.
IS_THIS_IT = "Is this the cause?"
ACCEPT, NOT_THIS = "accept", "not this"


# The question that every verdict asks, and its answers.
IS_THIS_IT = "Is this the cause?"
ACCEPT, NOT_THIS = "accept", "not this"


class Ranking(models.Model):
    """One judgement of all evidence that there was. Never changed: new evidence makes a new one, the latest counts.

    `body` is what `python -m probes explain --json` prints (docs/explain.md), so hypotheses and paths are read in one
    way everywhere. `cause`, `subject` and `probability` are those of its first hypothesis.
    """

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="rankings")
    at = models.DateTimeField()
    readings = models.PositiveBigIntegerField(help_text="the last reading that it rests on")
    cause = models.CharField(max_length=40)
    subject = models.JSONField(default=dict)
    probability = models.FloatField()
    body = models.JSONField()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(probability__gte=0, probability__lte=1), name="probability_0_to_1"),
        ]

    def __str__(self) -> str:
        return f"{self.cause} ({self.probability:.2f}) in INC-{self.incident_id}"


class Decision(models.Model):
    """What somebody decided, on which evidence. Nothing is edited: a change of mind is a new decision.

    `options` are those that were offered, `ranking` what was on the screen, `readings` the readings that its reasons
    stand on, each with the hash of its output.
    """

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="decisions")
    question = models.CharField(max_length=300)
    options = models.JSONField()
    chosen = models.CharField(max_length=100)
    why = models.TextField(blank=True)
    at = models.DateTimeField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    role = models.CharField(max_length=9, help_text="what the person was in this fleet then")
    phase = models.CharField(max_length=8, choices=[(phase, phase) for phase in PHASES])
    ranking = models.ForeignKey(Ranking, on_delete=models.PROTECT, null=True, related_name="decisions")
    subject = models.JSONField(default=dict, help_text="what the choice is about: cause and subject of a hypothesis")
    readings = models.JSONField(default=list)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.question} {self.chosen}"
