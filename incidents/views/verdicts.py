"""What people say to a verdict."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from incidents.services import deciding
from incidents.services.fleet import Refused
from incidents.views.acting import by, found_or_404, number, post_only


@post_only
def decide_verdict(request: HttpRequest, incident: int) -> HttpResponse:
    """Accept the hypothesis that was on the screen, or say with a reason that it is not this."""
    ranking, index = (number(request.POST.get(name, "")) for name in ("ranking", "index"))
    role = str(request.role)  # type: ignore[attr-defined]  # set by PolicyMiddleware
    chosen, why = request.POST.get("chosen", ""), request.POST.get("why", "")
    try:
        deciding.decide_verdict(found_or_404(incident), by(request), role, ranking, index, chosen, why)
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect("incident", incident)
