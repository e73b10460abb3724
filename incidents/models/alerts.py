"""Alerts from outside: who may send them, what was sent, and which alerts an incident stands on."""

from django.conf import settings
from django.db import models

from incidents.models.fleet import Fleet
from incidents.models.incident import Incident


class AlertSource(models.Model):
    """A program that may send alerts. Only the SHA-256 of its token is kept: who reads the table can send nothing."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="alert_sources")
    name = models.CharField(max_length=60, unique=True)
    slug = models.SlugField(max_length=60, unique=True, help_text="its name in the address it posts to")
    token_sha256 = models.CharField(max_length=64)
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    enabled = models.BooleanField(default=True)
    last_at = models.DateTimeField(null=True, help_text="when it was last heard, readable or not")
    unreadable = models.PositiveIntegerField(default=0, help_text="bodies that were no JSON; nothing of them is kept")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class AlertDelivery(models.Model):
    """One body as it was posted, stored before anything is made of it. The same body again only counts up.

    `raw` is exactly what came and may hold anything that JSON can: clean it before it is shown. `problem` says, for
    people, what could not be made of it and what to do; empty when all of it was understood.
    """

    source = models.ForeignKey(AlertSource, on_delete=models.PROTECT, related_name="deliveries")
    received_at = models.DateTimeField()
    raw = models.TextField(help_text="the JSON text, at most 256 KB")
    sha256 = models.CharField(max_length=64, help_text="of the body's bytes")
    group_key = models.CharField(max_length=300, blank=True, help_text="the sender's own; changes with its routes")
    status = models.CharField(max_length=20, blank=True, help_text="firing or resolved, as the body says of the group")
    repeats = models.PositiveIntegerField(default=0, help_text="how often the same body came again")
    last_at = models.DateTimeField()
    problem = models.TextField(blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "alert deliveries"
        constraints = [models.UniqueConstraint(fields=["source", "sha256"], name="delivery_once_per_body")]

    def __str__(self) -> str:
        return f"delivery {self.pk} from {self.source}"


class Alert(models.Model):
    """One alert (one set of labels) that an incident stands on. A body may carry alerts of several jobs, so this is
    not the delivery; an alert that opened or joined nothing has no row, only its delivery."""

    class Status(models.TextChoices):
        FIRING = "firing", "firing"
        RESOLVED = "resolved", "resolved"

    incident = models.ForeignKey(Incident, on_delete=models.PROTECT, related_name="alerts")
    source = models.ForeignKey(AlertSource, on_delete=models.PROTECT, related_name="alerts")
    delivery = models.ForeignKey(AlertDelivery, on_delete=models.PROTECT, related_name="alerts", help_text="the first")
    fingerprint = models.CharField(max_length=64, help_text="the sender's hash of the labels, or ours")
    name = models.CharField(max_length=200)
    status = models.CharField(max_length=8, choices=Status.choices)
    started_at = models.DateTimeField(null=True, help_text="by the source's clock")
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    repeats = models.PositiveIntegerField(default=0, help_text="how often it came again with nothing new")

    class Meta:
        ordering = ["incident", "id"]
        constraints = [
            models.UniqueConstraint(fields=["incident", "source", "fingerprint"], name="alert_once_per_incident")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.status}) of {self.incident}"
