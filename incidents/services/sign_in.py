"""One-time sign-in links: made in the terminal, used once in a browser."""

import hashlib
import secrets
from datetime import timedelta
from enum import StrEnum

from django.db import transaction
from django.utils import timezone

from incidents.models import SignInToken, User

LIFETIME = timedelta(minutes=15)
KEEP_OLD = timedelta(days=1)


class Refusal(StrEnum):
    """Why a link does not sign in."""

    UNKNOWN = "unknown"
    USED = "used"
    EXPIRED = "expired"
    INACTIVE = "inactive"


class LinkRefused(Exception):
    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


@transaction.atomic
def issue_first_link(username: str = "admin") -> str:
    """A token for the user who runs this server. Makes that superuser, without a password, when there is none."""
    user, made = User.objects.get_or_create(username=username, defaults={"is_staff": True, "is_superuser": True})
    if made:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return issue_link(user)


@transaction.atomic
def issue_link(user: User) -> str:
    """A new token (43 characters, URL-safe) that signs `user` in once within 15 minutes. Forgets old ones."""
    token = secrets.token_urlsafe(32)
    now = timezone.now()
    user.sign_in_tokens.filter(expires__lt=now - KEEP_OLD).delete()
    user.sign_in_tokens.create(digest=_digest(token), created=now, expires=now + LIFETIME)
    return token


@transaction.atomic
def redeem(token: str) -> User:
    """Use the link up and return its user. Raises LinkRefused with the reason.

    The conditional update decides, not the read before it: of two browsers at the same moment one gets in.
    """
    now = timezone.now()
    found = SignInToken.objects.select_related("user").filter(digest=_digest(token)).first()
    if found is None:
        raise LinkRefused(Refusal.UNKNOWN)
    if found.used_at is not None:
        raise LinkRefused(Refusal.USED)
    if found.expires <= now:
        raise LinkRefused(Refusal.EXPIRED)
    if not found.user.is_active:
        raise LinkRefused(Refusal.INACTIVE)
    if SignInToken.objects.filter(pk=found.pk, used_at=None).update(used_at=now) != 1:
        raise LinkRefused(Refusal.USED)
    return found.user


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
