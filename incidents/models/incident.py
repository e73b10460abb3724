"""An incident, its phases, and the job that broke."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from incidents.models.fleet import Fleet, Node

PHASES = ("capture", "triage", "decide")


class Job(models.Model):
    """A training job by its name, with the nodes it runs on: the map that turns an alert's job name into nodes."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="jobs")
    name = models.CharField(max_length=200)
    nodes = models.ManyToManyField(Node, related_name="jobs")
    log_paths = models.JSONField(default=list, help_text="patterns of log files, as they were given last")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["fleet", "name"], name="job_name_once_per_fleet")]

    def __str__(self) -> str:
        return self.name


class IncidentQuerySet(models.QuerySet["Incident"]):
    """Reads that several parts make of incidents."""

    def real(self) -> IncidentQuerySet:
        """Without drills: what is counted, and what alerts may join."""
        return self.filter(drill="")


class Incident(models.Model):
    """The thing responded to. T0 is the moment it was accepted; the alert's own start is impact before T0.

    `last_seq` and `head` are the end of its timeline; whoever adds an event holds this row's lock.
    """

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="incidents")
    title = models.CharField(max_length=300)
    severity = models.PositiveSmallIntegerField(default=2, help_text="SEV1, the worst, to SEV4")
    job = models.ForeignKey(Job, on_delete=models.PROTECT, null=True, related_name="incidents")
    nodes = models.ManyToManyField(Node, related_name="incidents")
    looking_for = models.CharField(max_length=200, blank=True, help_text="name of a job whose nodes nobody recorded")
    t0 = models.DateTimeField()
    impact_at = models.DateTimeField(null=True, help_text="since when training does not advance, as the alert says")
    log_paths = models.JSONField(default=list, help_text="patterns of log files that its nodes are asked for")
    phase = models.CharField(max_length=8, choices=[(phase, phase) for phase in PHASES], default=PHASES[0])
    closed_at = models.DateTimeField(null=True)
    declared_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    commander = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    drill = models.CharField(max_length=100, blank=True, help_text="name of the drill; none: this is real")
    from_files = models.BooleanField(default=False, help_text="opened to judge files: no node is asked for it")
    recording = models.CharField(max_length=1000, blank=True, help_text="folder whose captures answer for its nodes")
    stage = models.CharField(
        max_length=60, blank=True, help_text="part of the recording that answers now; none: the first"
    )
    resolution = models.CharField(max_length=20, blank=True, help_text="how it ended, see incidents.services.resolving")
    resolved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    judged_reading = models.PositiveBigIntegerField(default=0, help_text="the last reading that a verdict rests on")
    judging_until = models.DateTimeField(null=True, help_text="the lease of the worker that judges now")
    last_seq = models.PositiveIntegerField(default=0)
    head = models.CharField(max_length=64, blank=True, help_text="hash of the last event")

    objects = IncidentQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(severity__range=(1, 4)), name="severity_1_to_4"),
            models.CheckConstraint(condition=Q(closed_at=None) | Q(closed_at__gte=F("t0")), name="closed_after_t0"),
        ]

    def __str__(self) -> str:
        return f"INC-{self.pk} {self.title}"


class Phase(models.Model):
    """One of the three phases of an incident. Due times are absolute; overdue never closes or blocks anything."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="phases")
    name = models.CharField(max_length=8, choices=[(phase, phase) for phase in PHASES])
    due_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    overdue_told_at = models.DateTimeField(null=True, help_text="when the timeline was told that it is overdue")

    class Meta:
        ordering = ["incident", "due_at"]
        constraints = [
            models.UniqueConstraint(fields=["incident", "name"], name="phase_once_per_incident"),
            models.CheckConstraint(
                condition=Q(ended_at=None) | Q(started_at__isnull=False, ended_at__gte=F("started_at")),
                name="phase_ends_after_start",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.incident}"
