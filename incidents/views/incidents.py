"""The incident page, the list of incidents, and declaring one."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents import clock
from incidents.models import Incident, User
from incidents.models.endings import HOW, TRAINING_AGAIN, verified
from incidents.queries import alerts, diagnosis, drills, files, paths, people, runbook
from incidents.queries import incident as queries
from incidents.queries.board import needs, word_at_hand
from incidents.queries.lines import lines
from incidents.queries.timeline import HIDDEN
from incidents.services import response
from incidents.services.fleet import Refused
from incidents.views.acting import by, found_or_404, number, post_only

TILES = 3  # incidents in the line "needs a human"
# The parts of the page that live.
SLOTS = (
    "head",
    "phases",
    "scope",
    "verdict",
    "chains",
    "files",
    "runbook",
    "paths",
    "standouts",
    "differences",
    "matrix",
    "tally",
    "timeline",
    "thumb",
)


@never_cache
@require_safe
def incident_list(request: HttpRequest) -> HttpResponse:
    """Open incidents with what waits for a person, and those closed last."""
    return render(request, "incidents/list.html", _list(request))


@never_cache
@require_safe
def list_state(request: HttpRequest) -> HttpResponse:
    """The part of the list that changes by itself: the same partial the page was rendered from."""
    return render(request, "incidents/_list_state.html", _list(request))


def _list(request: HttpRequest) -> dict[str, object]:
    roles = people.roles(request.user)
    now = timezone.now()
    everything = [(incident, queries.current_phase(incident, now)) for incident in queries.open_incidents(list(roles))]
    rows = [row for row in everything if not row[0].drill]
    waiting = needs(rows, now)  # a drill is nobody's trouble but of those who train
    real = [fleet for fleet in roles if not fleet.replay]
    return {
        "rows": rows,
        "training": [row for row in everything if row[0].drill],
        "drills": drills.available() if not rows else [],
        "needs": waiting[:TILES],
        "more_needs": max(0, len(waiting) - TILES),
        "closed": queries.closed_incidents(list(roles)),
        "roles": {fleet.pk: role for fleet, role in roles.items()},
        "several": len(real) > 1,
        "unplaced": alerts.recently_unplaced(list(roles)),
        "now": now,
    }


def context_of(incident: Incident, user: User) -> dict[str, object]:
    found = queries.matrix(incident)
    now = timezone.now()
    verdict = _verdict(incident)
    return {
        **head_of(incident, user, len(found.nodes), now),
        "phases": queries.phases(incident, now),
        "next_phase": clock.TITLES.get(clock.next_phase(incident.phase) or ""),
        "to_next": clock.LEADS_TO.get(clock.next_phase(incident.phase) or ""),
        **verdict,
        "runbook": runbook.panel(incident, verdict.get("lead"), user.pk),
        "word": word_at_hand(incident),
        "scope": queries.scope_wanted(incident) if not found.nodes else None,
        "matrix": found,
        "files": files.panel(incident),
        "standouts": queries.standouts(found),
        "lines": lines(incident),
        "note_key": uuid.uuid4(),
    }


def head_of(incident: Incident, user: User, nodes: int, now: datetime) -> dict[str, object]:
    """What the head of each of an incident's pages shows; `nodes` is their number."""
    return {
        "incident": incident,
        "now": now,
        "t_plus": clock.t_plus(incident.t0, incident.closed_at or now),
        "idle": clock.span(incident.impact_at, incident.t0) if incident.impact_at else "",
        "node_count": nodes,
        "commands": incident.commander_id == user.pk,
        **_endings(incident),
    }


def _endings(incident: Incident) -> dict[str, object]:
    """The ways in which it may be closed now, the likeliest first. "training again" needs a reading that says so."""
    if incident.closed_at is not None:
        return {}
    trains = verified(incident)
    return {"trains": trains, "endings": [how for how in HOW if trains or how != TRAINING_AGAIN]}


def _verdict(incident: Incident) -> dict[str, Any]:
    """Nothing before anything was judged: then the panels are absent."""
    verdict = diagnosis.verdict(incident)
    if verdict is None:
        return {}
    age = clock.span(verdict.ranking.at, timezone.now())
    return {"verdict": verdict, "lead": verdict.lead, "verdict_age": age, "path_counts": paths.counted(verdict.lanes)}


@never_cache
@require_safe
def page(request: HttpRequest, incident: int) -> HttpResponse:
    """The page of one incident. Right after a reload without JavaScript's memory."""
    return render(request, "incidents/incident.html", context_of(found_or_404(incident), by(request)))


@never_cache
@require_safe
def after(request: HttpRequest, incident: int) -> HttpResponse:
    """What changed after a seq: the live parts, rendered as on the page, and how many lines are new."""
    found = found_or_404(incident)
    seq = number(request.GET.get("seq", ""))
    answer: dict[str, object] = {"seq": found.last_seq, "now": timezone.now().isoformat(), "count": 0, "html": {}}
    if found.last_seq > seq:
        context = context_of(found, by(request))
        answer["count"] = found.events.filter(seq__gt=seq).exclude(kind__in=HIDDEN).count()
        answer["html"] = {slot: render_to_string(f"incidents/_{slot}.html", context, request) for slot in SLOTS}
    return JsonResponse(answer)


@post_only
def advance(request: HttpRequest, incident: int) -> HttpResponse:
    found = found_or_404(incident)
    found.phase = request.POST.get("phase", found.phase)  # the phase that the person saw
    try:
        response.advance(found, by(request), request.POST.get("word", ""))
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect("incident", incident)


@post_only
def take_command(request: HttpRequest, incident: int) -> HttpResponse:
    said = request.POST.get("commander", "")
    seen = None if said == "" else number(said)
    try:
        response.take_command(found_or_404(incident), by(request), seen if "commander" in request.POST else ...)
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect("incident", incident)
