"""A command that changes something on a node: asked for, approved, run at most once."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from incidents.models.diagnosis import Decision
from incidents.models.fleet import Node
from incidents.models.incident import Incident

# waiting: for a second person. ready: a worker may take it, once. running: it was begun, or was about to.
# done: it ran and said so. failed: it ran and failed, or it is certain that it never began. unknown: it may have run.
# declined, expired: it never began.
STATES = ("waiting", "ready", "running", "done", "failed", "unknown", "declined", "expired")
OPEN = ("waiting", "ready", "running")


class Action(models.Model):
    """One remediation command on one node.

    `argv` is the command word for word as it was shown and will run; `undo` that which takes it back, empty where
    nothing does. `guard` holds what must still be true on the node for it to be run at all, such as a process' start
    time. Never run twice: what may have been run is `unknown`, and looked at, not repeated.
    """

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="actions")
    decision = models.ForeignKey(Decision, on_delete=models.PROTECT, related_name="actions")
    remedy = models.CharField(max_length=60)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="+")
    argv = models.JSONField()
    undo = models.JSONField(default=list)
    guard = models.JSONField(default=dict)
    destructive = models.BooleanField()
    state = models.CharField(max_length=8, choices=[(state, state) for state in STATES])
    asked_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    asked_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, help_text="when nobody may approve it any more")
    approved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    approved_at = models.DateTimeField(null=True)
    begun_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    says = models.TextField(blank=True, help_text="how it ended, for people")
    out = models.TextField(blank=True, help_text="what it printed, cleaned and capped")

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=STATES), name="action_state_known"),
            models.CheckConstraint(
                condition=Q(destructive=False)
                | Q(state__in=("waiting", "declined", "expired"))
                | (Q(approved_by__isnull=False) & ~Q(approved_by=F("asked_by"))),
                name="destructive_needs_a_second_person",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.remedy} on {self.node}: {self.state}"
