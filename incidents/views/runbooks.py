"""What people do with runbooks: start one, answer its questions, approve commands, look whether training advances."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from incidents.services import actions, runbooks, verifying
from incidents.services.fleet import Refused
from incidents.views.acting import by, found_or_404, number, post_only


def _told(request: HttpRequest, incident: int, act: Callable[[], object]) -> HttpResponse:
    """Do it; what was refused is said on the page that comes back."""
    try:
        act()
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect(f"{reverse('incident', args=[incident])}#runbook-title")


@post_only
def start_runbook(request: HttpRequest, incident: int) -> HttpResponse:
    ranking, index = (number(request.POST.get(name, "")) for name in ("ranking", "index"))
    name = request.POST.get("runbook", "")
    found = found_or_404(incident)
    return _told(request, incident, lambda: runbooks.start(found, by(request), name, ranking, index))


@post_only
def leave_runbook(request: HttpRequest, incident: int) -> HttpResponse:
    run, why = number(request.POST.get("run", "")), request.POST.get("why", "")
    return _told(request, incident, lambda: runbooks.leave(found_or_404(incident), by(request), run, why))


@post_only
def choose_option(request: HttpRequest, incident: int) -> HttpResponse:
    """Answer the question that waits, with the command that was shown."""
    said = request.POST
    run, ranking = (number(said.get(name, "")) for name in ("run", "ranking"))
    step, option, why = (said.get(name, "") for name in ("step", "option", "why"))
    role = str(request.role)  # type: ignore[attr-defined]  # set by PolicyMiddleware
    found, argv = found_or_404(incident), _words(said.get("argv", "[]"))
    seen = [number(one) for one in said.get("seen", "").split(",")]
    shown: dict[str, Any] = {"ranking_id": ranking, "argv": argv, "seen": seen}
    return _told(request, incident, lambda: runbooks.choose(found, by(request), role, run, step, option, why, **shown))


def _words(text: str) -> list[str]:
    """The command that the form sends back; what is none fits no command."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return ["?"]
    return [str(word) for word in said] if isinstance(said, list) else ["?"]


@post_only
def ask_for_step(request: HttpRequest, incident: int) -> HttpResponse:
    run = number(request.POST.get("run", ""))
    return _told(request, incident, lambda: runbooks.ask_for_step(found_or_404(incident), by(request), run))


@post_only
def look_if_it_advances(request: HttpRequest, incident: int) -> HttpResponse:
    return _told(request, incident, lambda: verifying.look_if_it_advances(found_or_404(incident), by(request)))


@post_only
def approve_action(request: HttpRequest, incident: int, action: int) -> HttpResponse:
    role = str(request.role)  # type: ignore[attr-defined]  # set by PolicyMiddleware
    return _told(request, incident, lambda: actions.approve(found_or_404(incident), action, by(request), role))


@post_only
def decline_action(request: HttpRequest, incident: int, action: int) -> HttpResponse:
    return _told(request, incident, lambda: actions.decline(found_or_404(incident), action, by(request)))
