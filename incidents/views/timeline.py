"""The whole timeline of an incident, also what the incident page does not show."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents.queries import timeline as queries
from incidents.queries.lines import entry
from incidents.views.acting import found_or_404, number

PAGE = 200  # events


@never_cache
@require_safe
def timeline(request: HttpRequest, incident: int) -> HttpResponse:
    """Events after `?after=seq`, in order, 200 of them. As an address it always shows the same events."""
    found = found_or_404(incident)
    after = number(request.GET.get("after", ""))
    events = queries.events_after(found, after, PAGE)
    until = events[-1].seq if events else after
    context = {
        "incident": found,
        "entries": [entry(found, event) for event in events],
        "after": after,
        "until": until,
        "earlier": max(0, after - PAGE) if after else None,
        "later": until if until < found.last_seq else None,
        "last": (found.last_seq - 1) // PAGE * PAGE if until < found.last_seq else None,
    }
    return render(request, "incidents/timeline.html", context)
