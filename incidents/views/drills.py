"""The page of drills, and starting one."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents.queries import drills as queries
from incidents.services import drilling
from incidents.services.fleet import Refused
from incidents.views.acting import by


@never_cache
@require_safe
def drills(request: HttpRequest) -> HttpResponse:
    """What there is to train, and when somebody last did."""
    return render(request, "incidents/drills.html", {"drills": queries.available()})


@never_cache
def start_drill(request: HttpRequest, drill: str) -> HttpResponse:
    """Begin a drill that Golden15 brings: names only, never a path. By GET it leads to the page."""
    if request.method != "POST":
        return redirect("drills")
    try:
        return redirect("incident", drilling.start_drill(drill, by(request)).pk)
    except Refused as refused:
        messages.error(request, f"The drill was not started: {refused}")
        return redirect("drills")
