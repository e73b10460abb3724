"""What every page shares: who acts, in which fleet, as what, and that what changes something is done by POST."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from incidents.models import Fleet, Incident, User


def by(request: HttpRequest) -> User:
    """The person who acts."""
    assert isinstance(request.user, User)  # every page here needs a signed-in person
    return request.user


def fleet_of(request: HttpRequest) -> Fleet:
    """The fleet of the address, or of the incident in it, which the person may see."""
    fleet = request.fleet  # type: ignore[attr-defined]  # set by PolicyMiddleware
    assert isinstance(fleet, Fleet)
    return fleet


def who(request: HttpRequest) -> dict[str, object]:
    """For every template: the person's `role` here, as `{% if role|may:"declare" %}` asks it. A context processor."""
    return {"role": getattr(request, "role", None)}


def found_or_404(incident: int) -> Incident:
    """The incident of the address. Whether the person may see it was settled before."""
    return get_object_or_404(Incident.objects.select_related("commander", "job", "fleet"), pk=incident)


def number(text: str) -> int:
    """A whole number that an address or form gives; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def post_only(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """What changes something is done by POST; whoever comes there by GET (a reload, a bookmark) is led to the page."""

    @wraps(view)
    def guarded(request: HttpRequest, **place: Any) -> HttpResponse:
        if request.method == "POST":
            return view(request, **place)
        page = "incident" if "incident" in place else "fleet"
        return redirect(page, place[page])

    return guarded
