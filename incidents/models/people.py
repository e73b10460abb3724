"""People, their roles in fleets, and the one-time links they sign in with."""

from django.contrib.auth.models import AbstractUser
from django.db import models

from incidents.models.fleet import Fleet

ROLES = ("viewer", "responder", "commander", "admin")  # each may do what those before it may


class User(AbstractUser):
    """A person. Our own model from the first migration on: replacing Django's later is a migration nobody wants.

    What a person may see and do is in their memberships. Superusers, who run this server, are admin of every fleet.
    """


class Membership(models.Model):
    """A person's role in one fleet. Who has none there sees nothing of it, not even that it exists."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    fleet = models.ForeignKey(Fleet, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(
        max_length=9,
        choices=[(role, role) for role in ROLES],
        help_text="what this person may do there, see incidents.policy",
    )

    class Meta:
        ordering = ["fleet__name", "user__username"]
        constraints = [
            models.UniqueConstraint(fields=["user", "fleet"], name="one_role_per_fleet"),
            models.CheckConstraint(condition=models.Q(role__in=ROLES), name="a_role_that_there_is"),
        ]

    def __str__(self) -> str:
        return f"{self.user}, {self.role} of {self.fleet}"


class SignInToken(models.Model):
    """A sign-in link that works once. Only the token's SHA-256 is kept: who reads the table can sign in nowhere."""

    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the token, hexadecimal")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_in_tokens")
    created = models.DateTimeField()
    expires = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(expires__gt=models.F("created")), name="token_expires_later"),
        ]

    def __str__(self) -> str:
        return f"link for {self.user}, expires {self.expires:%Y-%m-%d %H:%M:%S} UTC"
