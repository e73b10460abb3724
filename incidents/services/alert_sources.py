"""Programs that may send alerts: added, given a new token, switched off."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.text import slugify

from incidents.models import AlertSource, Fleet, User
from incidents.services.fleet import RECORDED, Refused


@transaction.atomic
def add_source(fleet: Fleet, name: str, by: User | None) -> tuple[AlertSource, str]:
    """A new source, and its token (43 characters, URL-safe), which is not kept and cannot be shown again."""
    if fleet.replay:
        raise Refused(RECORDED)
    name = name.strip()
    slug = slugify(name)
    if not slug or len(name) > 60:
        raise Refused(
            "Give the source a name of at most 60 characters with letters or digits in it, such as cluster-1."
        )
    if there := AlertSource.objects.filter(slug=slug).first():
        raise Refused(f"There is a source {there.name} already. Its token can be replaced: alert_source rotate {slug}")
    token = secrets.token_urlsafe(32)
    source = AlertSource.objects.create(
        fleet=fleet,
        name=name,
        slug=slug,
        token_sha256=_digest(token),
        created_at=timezone.now(),
        created_by=by,
    )
    return source, token


@transaction.atomic
def rotate_source(name: str) -> tuple[AlertSource, str]:
    """A new token; the old one ends at once. A source that was switched off is on again."""
    source = _named(name)
    token = secrets.token_urlsafe(32)
    source.token_sha256, source.enabled = _digest(token), True
    source.save(update_fields=["token_sha256", "enabled"])
    return source, token


@transaction.atomic
def disable_source(name: str) -> AlertSource:
    """Take nothing more from this source. What it sent stays."""
    source = _named(name)
    source.enabled = False
    source.save(update_fields=["enabled"])
    return source


def _named(name: str) -> AlertSource:
    source = AlertSource.objects.select_for_update().filter(slug=slugify(name)).first()
    if source is None:
        known = ", ".join(AlertSource.objects.values_list("slug", flat=True)) or "none yet"
        raise Refused(f"There is no alert source {name[:60]}. Sources: {known}.")
    return source


def may_send(source: AlertSource, token: str) -> bool:
    """Whether this token opens this source now. Takes the same time whatever the token is."""
    right = hmac.compare_digest(_digest(token), source.token_sha256)
    return right and source.enabled


@transaction.atomic
def count_unreadable(source: AlertSource) -> None:
    """Something came that is no JSON: nothing of it is kept but that it came."""
    AlertSource.objects.filter(pk=source.pk).update(unreadable=F("unreadable") + 1, last_at=timezone.now())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
