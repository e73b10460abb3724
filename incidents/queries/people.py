"""Reads of who somebody is."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

from django.conf import settings
from django.contrib import auth

from incidents.models import User


def signed_in(session_key: str | None) -> User | None:
    """The active person whose session this is, as the database has it now; None once it was ended or they were."""
    if not session_key:
        return None
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    user = auth.get_user(SimpleNamespace(session=session))  # type: ignore[arg-type]
    return user if isinstance(user, User) else None
