"""What the evidence said at a moment, and what people decided about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q

from incidents.models.incident import PHASES, Incident
from incidents.models.runbooks import RunbookRun
from incidents.models.runs import Reading
from incidents.models.topology import ExpectedTopology

# The question that every verdict asks, and its answers.
IS_THIS_IT = "Is this the cause?"
ACCEPT, NOT_THIS = "accept", "not this"
UNNAMED = ("none", "unknown")  # causes that name nothing: there is no word to say about them


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two hypotheses, each with `cause` and `subject`, are about the same thing.

    One may know more of its subject: a rank whose node came to light later is the same rank. Which process it is does
    not count: that changes with a restart.
    """
    here, there = ({key: one["subject"][key] for key in one["subject"] if key != "pid"} for one in (one, other))
    part = here.items() <= there.items() or there.items() <= here.items()
    return bool(one["cause"] == other["cause"] and bool(here) == bool(there) and part)


class Ranking(models.Model):
    """One judgement of all evidence that there was. Never changed: new evidence makes a new one, the latest counts.

    `body` is what `python -m probes explain --json` prints (docs/explain.md), so hypotheses and paths are read in one
    way everywhere. `cause`, `subject` and `probability` are those of its first hypothesis. `topology` is what was
    expected of the fabric when it was judged.
    """

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="rankings")
    at = models.DateTimeField()
    readings = models.PositiveBigIntegerField(help_text="the last reading that it rests on")
    topology = models.ForeignKey(ExpectedTopology, on_delete=models.PROTECT, null=True, related_name="+")
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

    def rests_on(self, refs: Iterable[str]) -> dict[str, Reading]:
        """The readings that these names ("node/probe", or a file) stood for when this was judged. A few queries; a name
        without a reading, such as that of a folder, is left out."""
        wanted = set(refs)
        nodes, probes = ({ref.rpartition("/")[place] for ref in wanted} for place in (0, 2))
        named = Reading.objects.filter(node__name__in=nodes, probe__in=probes, pk__lte=self.readings)
        rows = named.filter(run__incident=self.incident_id).best().select_related("node")
        found = {row.ref: row for row in rows.defer("out", "err", "facts", "findings")}
        files = Reading.objects.all().of_files(self.incident, self.readings).filter(file__in=wanted)
        found |= {row.file: row for row in files.defer("out", "err", "facts", "findings").order_by("-pk")}
        return {ref: found[ref] for ref in wanted if ref in found}


class Decision(models.Model):
    """What somebody decided, on which evidence. Nothing is edited: a change of mind is a new decision.

    `options` are those that were offered, `subject` has cause, subject and sentence of the hypothesis, `ranking` is
    what was on the screen, `readings` are those that its reasons stand on, each with the hash of its output.
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
    runbook_run = models.ForeignKey(RunbookRun, on_delete=models.PROTECT, null=True, related_name="decisions")
    step = models.CharField(max_length=60, blank=True, help_text="of the runbook")

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.question} {self.chosen}"
