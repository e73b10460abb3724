"""Notes: sent by the page's script, or by the form alone."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render

from incidents.services import notes
from incidents.services.fleet import Refused
from incidents.views.acting import by, found_or_404, post_only
from incidents.views.incidents import context_of


@post_only
def add_note(request: HttpRequest, incident: int) -> HttpResponse:
    """Answers a script in JSON: the event's seq, or why not. Without one the page comes back, with what was refused."""
    found = found_or_404(incident)
    scripted = request.accepts("application/json") and not request.accepts("text/html")
    text = request.POST.get("text", "")
    try:
        event = notes.add_note(found, by(request), text, request.POST.get("key", ""))
    except Refused as refused:
        if scripted:
            return JsonResponse({"error": str(refused), "field": refused.field}, status=422)
        context = {**context_of(found, by(request)), "note_text": text, "note_error": str(refused)}
        return render(request, "incidents/incident.html", context, status=422)
    return JsonResponse({"seq": event.seq}) if scripted else redirect("incident", incident)
