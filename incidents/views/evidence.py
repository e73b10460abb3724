"""One reading: how it was taken, what came back, what was read out of it."""

from __future__ import annotations

import json
import re
import zlib

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents import clock
from incidents.models import Incident, Reading
from incidents.queries import evidence as queries
from incidents.queries import files
from incidents.queries import flame as flames
from incidents.queries import operators as traces
from incidents.queries.incident import reading as reading_of
from incidents.queries.port_rates import port_rates
from incidents.services.files import contents
from incidents.views.acting import found_or_404, number
from probes.core import clean


def _kept(incident: int, reading: int) -> tuple[Incident, Reading]:
    found = found_or_404(incident)
    kept = reading_of(found, reading)
    if kept is None:
        raise Http404
    return found, kept


@never_cache
@require_safe
def evidence(request: HttpRequest, incident: int, reading: int) -> HttpResponse:
    """As a page, or its part for the drawer."""
    found, kept = _kept(incident, reading)
    now = timezone.now()
    profiles = flames.profiles(kept.facts)
    of = min(number(request.GET.get("of", "")), max(0, len(profiles) - 1))
    drawn = flames.flame(profiles[of].profile, number(request.GET.get("frame", "")) - 1) if profiles else None
    operators = traces.operators(kept)
    whose = profiles[of] if profiles else operators
    process = traces.process_of(kept, whose.pid, whose.rank) if whose is not None else None
    facts = kept.facts if operators is None else traces.without_rows(kept.facts)
    context = {
        "incident": found,
        "reading": kept,
        "now": now,
        "age": clock.span(kept.recorded_at, now),
        "taken": clock.t_plus(found.t0, kept.recorded_at),
        "meaning": queries.meaning(kept),
        "offset": queries.offset(kept),
        "findings": queries.findings(kept),
        "by_hand": queries.by_hand(kept),
        "flame": drawn,
        "flame_of": of,
        "profiles": [one.name for one in profiles],
        "operators": operators,
        "port_rates": port_rates(kept),
        "process": process,
        "process_age": clock.span(process.reading.recorded_at, now) if process else "",
        "drawn": drawn is not None or operators is not None,
        "facts": queries.facts(flames.without_calls(facts) if drawn else facts),
        "raw_facts": json.dumps(kept.facts, indent=2, ensure_ascii=False) if kept.facts is not None else "",
        "output": clean(zlib.decompress(kept.out).decode("utf-8", "replace")) if kept.out else "",
        "brought": files.brought_file(kept),
    }
    part = request.headers.get("X-Part") == "drawer"
    return render(request, "incidents/_evidence.html" if part else "incidents/evidence.html", context)


@never_cache
@require_safe
def output(request: HttpRequest, incident: int, reading: int) -> HttpResponse:
    """The raw output as a file, byte for byte. Hostile: never shown by a browser, whatever it looks like."""
    found, kept = _kept(incident, reading)
    brought = files.brought_file(kept)
    what = f"{kept.node_name}-{kept.probe}.txt" if brought is None else brought.name.rpartition("/")[2][-120:]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", f"INC-{found.pk}-{what}")
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    if brought is not None:
        return HttpResponse(b"".join(contents(brought)), content_type="application/octet-stream", headers=headers)
    return HttpResponse(zlib.decompress(kept.out), content_type="text/plain; charset=utf-8", headers=headers)
