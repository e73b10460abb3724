"""Reads of who somebody is, and of what they are in which fleet."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from django.conf import settings
from django.contrib import auth
from django.db.models import QuerySet

from incidents import policy
from incidents.models import Fleet, Membership, User


def signed_in(session_key: str | None) -> User | None:
    """The active person whose session this is, as the database has it now; None once it was ended or they were."""
    if not session_key:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = auth.get_user(SimpleNamespace(session=session))  # type: ignore[arg-type]
    return user if isinstance(user, User) and user.is_active else None


def role_in(user: Any, fleet: Fleet) -> str | None:
    """The person's role in this fleet; None for strangers to it, also when they are not signed in or switched off."""
    if not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return "admin"
    if fleet.replay:
        return best_role(user)
    return Membership.objects.filter(user=user, fleet=fleet).values_list("role", flat=True).first()


def role_at(user: Any, incident_id: int) -> str | None:
    """The person's role in the fleet of this incident; None as above, and when there is no such incident."""
    fleet = Fleet.objects.filter(incidents__pk=incident_id).first()
    return role_in(user, fleet) if fleet else None


def roles(user: Any) -> dict[Fleet, str]:
    """The person's fleets, by name, with their role in each. In a fleet of recordings they may do what they may do
    anywhere: whoever answers for real nodes may train on them."""
    if not user.is_authenticated or not user.is_active:
        return {}
    if user.is_superuser:
        return dict.fromkeys(Fleet.objects.all(), "admin")
    found = {one.fleet: one.role for one in _memberships(user).select_related("fleet")}
    if best := _best(found.values()):
        found |= dict.fromkeys(Fleet.objects.filter(replay=True), best)
    return dict(sorted(found.items(), key=lambda item: item[0].name))


def fleets(user: Any, least: str = "viewer") -> list[Fleet]:
    """The fleets of real nodes in which the person has at least this role, by name."""
    return [fleet for fleet, role in roles(user).items() if policy.has(role, least) and not fleet.replay]


def best_role(user: Any) -> str | None:
    """The highest role that the person has anywhere."""
    if _runs_all(user):
        return "admin"
    if not user.is_authenticated or not user.is_active:
        return None
    return _best(_memberships(user).values_list("role", flat=True))


def _memberships(user: Any) -> QuerySet[Membership]:
    return Membership.objects.filter(user=user, role__in=policy.ROLES)


def _best(roles: Iterable[str]) -> str | None:
    return max(roles, key=policy.ROLES.index, default=None)


def _runs_all(user: Any) -> bool:
    return bool(user.is_authenticated and user.is_active and user.is_superuser)
