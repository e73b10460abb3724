"""What every page that changes something shares: who acts, and that it is done by POST."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from incidents.models import User


def by(request: HttpRequest) -> User:
    """The person who acts."""
    assert isinstance(request.user, User)  # every page here needs a signed-in person
    return request.user


def post_only(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """What changes something is done by POST; whoever comes there by GET (a reload, a bookmark) is led to the page."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return view(request, *args, **kwargs) if request.method == "POST" else redirect("fleet")

    return guarded
