"""Declaring an incident."""

from __future__ import annotations

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache

from incidents import policy
from incidents.forms import DeclareForm
from incidents.models import Incident, Job
from incidents.queries import incident as queries
from incidents.queries import people
from incidents.services import response, scoping
from incidents.services.fleet import Refused
from incidents.views.acting import by, found_or_404, number, post_only


@never_cache
def declare(request: HttpRequest) -> HttpResponse:
    """One field: a job or nodes. Everything else has a default."""
    fleets = people.fleets(request.user, policy.least_for("declare", "POST") or "")
    jobs = Job.objects.filter(fleet__in=fleets, nodes__isnull=False).select_related("fleet").distinct()
    filled = _of_job(jobs, number(request.GET.get("job", "")))
    form = DeclareForm(request.POST or None, fleets=fleets, initial=filled)
    asks: dict[str, object] = {}
    if request.method == "POST" and form.is_valid():
        said = form.cleaned_data
        may_add = policy.may(people.role_in(request.user, said["fleet"]), "add_nodes")
        try:
            incident = response.declare(
                said["fleet"],
                said["what"],
                by(request),
                int(said["severity"]),
                said["title"],
                form.patterns,
                add=may_add and (said["add"] or not said["fleet"].nodes.exists()),
            )
        except response.NotInFleet as unsure:
            form.add_error("what", str(unsure))
            asks = {"unsure": unsure.folded, "may_add": may_add}
        except Refused as refused:
            form.add_error(refused.field if refused.field in form.fields else "what", str(refused))
        else:
            _tell_others(request, incident)
            return redirect("incident", incident.pk)
    status = 422 if request.method == "POST" else 200
    context = {"form": form, "jobs": jobs[:50], "several": len(fleets) > 1, **asks}
    return render(request, "incidents/declare.html", context, status=status)


@post_only
def set_scope(request: HttpRequest, incident: int) -> HttpResponse:
    """The nodes of an incident whose job was not found."""
    may_add = policy.may(request.role, "add_nodes")  # type: ignore[attr-defined]  # set by PolicyMiddleware
    add = may_add and request.POST.get("add") == "yes"
    try:
        scoping.set_scope(found_or_404(incident), request.POST.get("what", "").strip(), by(request), add)
    except response.NotInFleet as unsure:
        advice = "Correct it, or add them on the Fleet page first." if may_add else "A commander can add them."
        messages.error(request, f"{unsure} {advice}")
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect("incident", incident)


def _of_job(jobs: QuerySet[Job], pk: int) -> dict[str, str]:
    """The form filled in for a job that is known, with the log files that were given for it last."""
    job = jobs.filter(pk=pk).first() if pk else None
    if job is None:
        return {}
    return {"what": job.name, "fleet": job.fleet.name, "log_paths": "\n".join(job.log_paths)}


def _tell_others(request: HttpRequest, incident: Incident) -> None:
    """Other open incidents on the same nodes: two teams may be at work on one trouble."""
    for other, count in queries.overlapping(incident):
        on = "its node" if count == 1 else f"{count} of its nodes"
        messages.warning(request, f"INC-{other.pk} ({other.title}) is open too, on {on}.")
