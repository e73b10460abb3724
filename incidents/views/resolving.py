"""Closing an incident."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from incidents.services import resolving
from incidents.services.fleet import Refused
from incidents.views.acting import by, found_or_404, post_only


@post_only
def resolve(request: HttpRequest, incident: int) -> HttpResponse:
    """Close it with how it ended and why."""
    how, why = request.POST.get("how", ""), request.POST.get("why", "")
    try:
        resolving.resolve(found_or_404(incident), by(request), how, why)
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect("incident", incident)
