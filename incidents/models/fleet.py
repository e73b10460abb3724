"""Fleets, their nodes, and the host keys that people accepted for them."""

from django.conf import settings
from django.db import models
from django.db.models import Q


class Fleet(models.Model):
    """The nodes of one cluster or team, with their jobs, incidents and alert sources. People have roles per fleet.

    The nodes of a replay fleet exist only in recordings: its incidents are drills. There everybody has the highest role
    that they have anywhere.
    """

    name = models.SlugField(max_length=40, unique=True)
    replay = models.BooleanField(default=False)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Node(models.Model):
    """One machine of a fleet, by its hostname. Empty fields are left to the SSH configuration."""

    fleet = models.ForeignKey(Fleet, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=253)
    address = models.CharField(
        max_length=253, blank=True, help_text="host name or IP address, when the name is not enough"
    )
    user = models.CharField(max_length=32, blank=True)
    port = models.PositiveIntegerField(null=True, blank=True)
    jump = models.CharField(max_length=300, blank=True, help_text="[user@]host[:port], several with commas")
    changed_at = models.DateTimeField(help_text="when it was added, or last given another way to reach it")
    added_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["fleet", "name"], name="node_name_once_per_fleet")]

    def __str__(self) -> str:
        return self.name


class HostKey(models.Model):
    """A host key that a node showed. It opens nothing until a person accepted it.

    `line` is the known_hosts line (sshd(8)) that trusts it, with the name and port the SSH configuration resolved to.
    A row keeps who accepted it, when, how and why. A key that comes back after it was replaced gets a new row.
    """

    class How(models.TextChoices):
        ONE = "one", "one by one"
        LIST = "list", "by a pasted list"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="host_keys")
    line = models.TextField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the line: lines are too long for an index")
    fingerprint = models.CharField(max_length=80, help_text="SHA256:..., as ssh-keygen -l prints it")
    changed = models.BooleanField(default=False, help_text="shown in place of a key that was known before")
    offered_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    accepted_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    how = models.CharField(max_length=4, choices=How.choices, blank=True)
    reason = models.TextField(blank=True, help_text="why a changed key was accepted")
    replaced_at = models.DateTimeField(null=True, help_text="when another key was accepted in its place")

    class Meta:
        ordering = ["node__name", "offered_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["node", "digest"], condition=Q(replaced_at=None), name="host_key_once_per_node"
            ),
            models.CheckConstraint(
                condition=Q(accepted_at=None) | (Q(accepted_by__isnull=False) & ~Q(how="")),
                name="host_key_accepted_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.node}: {self.fingerprint}"

    @property
    def kind(self) -> str:
        """The key's type, such as ssh-ed25519."""
        return self.line.split()[1]
