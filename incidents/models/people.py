"""People, and the one-time links they sign in with."""

from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """A person. Our own model from the first migration on: replacing Django's later is a migration nobody wants."""

    role = models.CharField(
        max_length=9,
        choices=[(role, role) for role in ("viewer", "responder", "commander", "admin")],
        default="viewer",
        help_text="what this person may do, see incidents.policy",
    )


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
