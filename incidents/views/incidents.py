"""The incident page, the list of incidents, and declaring one."""

from __future__ import annotations

import json
import zlib

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents import clock, policy
from incidents.forms import DeclareForm
from incidents.models import Incident, Job, User
from incidents.queries import alerts, people
from incidents.queries import incident as queries
from incidents.queries.lines import lines
from incidents.queries.timeline import HIDDEN
from incidents.services import response
from incidents.services.fleet import Refused
from incidents.views.acting import by, post_only
from probes.core import clean

SLOTS = ("head", "phases", "standouts", "matrix", "timeline")  # the parts of the page that live


@never_cache
@require_safe
def incident_list(request: HttpRequest) -> HttpResponse:
    """Open incidents with what waits for a person, and those closed last."""
    fleets = people.fleets(request.user)
    rows = [(incident, queries.current_phase(incident)) for incident in queries.open_incidents(fleets)]
    context = {
        "rows": rows,
        "needs": queries.needs(rows)[:3],
        "closed": queries.closed_incidents(fleets),
        "several": len(fleets) > 1,
        "unplaced": alerts.recently_unplaced(fleets),
    }
    return render(request, "incidents/list.html", context)


@never_cache
def declare(request: HttpRequest) -> HttpResponse:
    """One field: a job or nodes. Everything else has a default."""
    fleets = people.fleets(request.user, policy.least_for("declare", "POST") or "")
    form = DeclareForm(request.POST or None, fleets=fleets)
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        try:
            incident = response.declare(said["fleet"], said["what"], by(request), int(said["severity"]), said["title"])
        except Refused as refused:
            form.add_error("what", str(refused))
        else:
            return redirect("incident", incident.pk)
    status = 422 if request.method == "POST" else 200
    jobs = Job.objects.filter(fleet__in=fleets)[:50]
    return render(request, "incidents/declare.html", {"form": form, "jobs": jobs}, status=status)


def _context(incident: Incident, user: User) -> dict[str, object]:
    found = queries.matrix(incident)
    now = timezone.now()
    return {
        "incident": incident,
        "now": now,
        "t_plus": clock.t_plus(incident.t0, incident.closed_at or now),
        "phases": queries.phases(incident, now),
        "next_phase": clock.TITLES.get(clock.next_phase(incident.phase) or ""),
        "matrix": found,
        "standouts": queries.standouts(found),
        "lines": lines(incident),
        "commands": incident.commander_id == user.pk,
    }


def _found(incident: int) -> Incident:
    return get_object_or_404(Incident.objects.select_related("commander", "job", "fleet"), pk=incident)


@never_cache
@require_safe
def page(request: HttpRequest, incident: int) -> HttpResponse:
    """The page of one incident. Right after a reload without JavaScript's memory."""
    return render(request, "incidents/incident.html", _context(_found(incident), by(request)))


@never_cache
@require_safe
def after(request: HttpRequest, incident: int) -> HttpResponse:
    """What changed after a seq: the live parts, rendered as on the page, and how many lines are new."""
    found = _found(incident)
    seen = request.GET.get("seq", "")
    seq = int(seen) if seen.isdigit() and len(seen) < 10 else 0
    answer: dict[str, object] = {"seq": found.last_seq, "now": timezone.now().isoformat(), "count": 0, "html": {}}
    if found.last_seq > seq:
        context = _context(found, by(request))
        answer["count"] = found.events.filter(seq__gt=seq).exclude(kind__in=HIDDEN).count()
        answer["html"] = {slot: render_to_string(f"incidents/_{slot}.html", context, request) for slot in SLOTS}
    return JsonResponse(answer)


@post_only
def advance(request: HttpRequest, incident: int) -> HttpResponse:
    found = _found(incident)
    found.phase = request.POST.get("phase", found.phase)  # the phase that the person saw
    try:
        response.advance(found, by(request), request.POST.get("word", ""))
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect("incident", incident)


@post_only
def take_command(request: HttpRequest, incident: int) -> HttpResponse:
    try:
        response.take_command(_found(incident), by(request))
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect("incident", incident)


@never_cache
@require_safe
def evidence(request: HttpRequest, incident: int, reading: int) -> HttpResponse:
    """One reading: how it was taken, what came back, what was read out of it. As a page, or its part for the drawer."""
    found = _found(incident)
    kept = queries.reading(found, reading)
    if kept is None:
        raise Http404
    context = {
        "incident": found,
        "reading": kept,
        "age": clock.span(kept.recorded_at, timezone.now()),
        "taken": clock.t_plus(found.t0, kept.recorded_at),
        "by_hand": queries.by_hand(kept.probe),
        "output": clean(zlib.decompress(kept.out).decode("utf-8", "replace")),
        "facts": json.dumps(kept.facts, indent=2, ensure_ascii=False) if kept.facts is not None else "",
    }
    part = request.headers.get("X-Part") == "drawer"
    return render(request, "incidents/_evidence.html" if part else "incidents/evidence.html", context)
