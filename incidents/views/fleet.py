"""The fleet page: nodes in and out, the check, and host keys to accept."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents.forms import AddNodesForm, NodeForm, PasteKeysForm
from incidents.models import Fleet, Node
from incidents.queries import alerts, people
from incidents.queries import fleet as queries
from incidents.services import fleet as services
from incidents.services.runs import start_suite
from incidents.views.acting import by, fleet_of, post_only
from probes import nodeset


def _context(fleet: Fleet) -> dict[str, object]:
    found = queries.states(fleet)
    tally = queries.tally(found)
    keys = queries.waiting_keys(fleet)
    return {
        "fleet": fleet,
        "states": found,
        "total": len(found),
        "ready": tally["ok"],
        "unwell": tally["bad"] + tally["warn"],
        "unchecked": tally["unknown"],
        "keys": keys,
        "before": queries.trusted_fingerprints(keys),
        "check": queries.latest_check(fleet),
    }


@never_cache
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Where somebody begins: at the incidents, or at their fleet while it has no nodes."""
    anything = Node.objects.filter(fleet__in=people.fleets(request.user)).exists()
    return redirect("incidents" if anything else "fleets")


@never_cache
@require_safe
def fleets(request: HttpRequest) -> HttpResponse:
    """The person's fleets; the page of the only one."""
    found = people.fleets(request.user)
    if len(found) == 1:
        return redirect("fleet", found[0])
    return render(request, "incidents/fleets.html", {"rows": queries.sizes(found)})


@never_cache
@require_safe
def fleet(request: HttpRequest, fleet: str) -> HttpResponse:
    """The page. Without JavaScript it is right after a reload."""
    return _page(request, AddNodesForm(), PasteKeysForm())


def _page(request: HttpRequest, add: AddNodesForm, paste: PasteKeysForm, status: int = 200) -> HttpResponse:
    context = {
        **_context(fleet_of(request)),
        "add": add,
        "paste": paste,
        "ignored": queries.ignored_ssh_options() if by(request).is_superuser else [],
    }
    return render(request, "incidents/fleet.html", context, status=status)


@never_cache
@require_safe
def fleet_state(request: HttpRequest, fleet: str) -> HttpResponse:
    """The part of the page that changes while a check runs: the same partial the page was rendered from."""
    return render(request, "incidents/_fleet_state.html", {**_context(fleet_of(request)), "paste": PasteKeysForm()})


@never_cache
@require_safe
def fleet_alerts(request: HttpRequest, fleet: str) -> HttpResponse:
    """Who sends alerts to this fleet, and what came and could not be placed."""
    place = fleet_of(request)
    context = {
        "fleet": place,
        "site": settings.SITE_URL,
        "sources": alerts.sources(place),
        "unplaced": alerts.unplaced(place),
    }
    return render(request, "incidents/alerts.html", context)


@post_only
def add_nodes(request: HttpRequest, fleet: str) -> HttpResponse:
    form = AddNodesForm(request.POST)
    if form.is_valid():
        try:
            added = services.add_nodes(fleet_of(request), form.cleaned_data["nodes"], form.login, by(request))
        except services.Refused as refused:
            form.add_error(refused.field or "nodes", str(refused))
        else:
            messages.success(request, _added(added))
            return redirect("fleet", fleet)
    return _page(request, form, PasteKeysForm(), status=422)


def _added(added: services.Added) -> str:
    parts = [
        f"{len(names)} {'node' if len(names) == 1 else 'nodes'} {word}: {nodeset.fold(names)}"
        for names, word in ((added.new, "added"), (added.changed, "changed"), (added.same, "there already"))
        if names
    ]
    return ". ".join(parts) + "."


@post_only
def check_fleet(request: HttpRequest, fleet: str) -> HttpResponse:
    try:
        start_suite("check", list(fleet_of(request).nodes.select_related("fleet")), by(request))
    except services.Refused as refused:
        messages.error(request, str(refused))
    return redirect("fleet", fleet)


@post_only
def accept_key(request: HttpRequest, fleet: str, key_id: int) -> HttpResponse:
    try:
        key = services.accept_key(fleet_of(request), key_id, by(request), request.POST.get("reason", ""))
        messages.success(request, f"The key of {key.node} is accepted. Check the fleet to use it.")
    except services.Refused as refused:
        messages.error(request, str(refused))
    return redirect("fleet", fleet)


@post_only
def accept_pasted(request: HttpRequest, fleet: str) -> HttpResponse:
    form = PasteKeysForm(request.POST)
    if form.is_valid():
        try:
            pasted = services.accept_pasted(fleet_of(request), form.cleaned_data["keys"], by(request))
        except services.Refused as refused:
            form.add_error("keys", str(refused))
        else:
            _tell_pasted(request, pasted)
            return redirect("fleet", fleet)
    return _page(request, AddNodesForm(), form, status=422)


def _tell_pasted(request: HttpRequest, pasted: services.Pasted) -> None:
    if pasted.accepted:
        messages.success(
            request, f"Accepted by your list: {nodeset.fold(pasted.accepted)}. Check the fleet to use them."
        )
    if pasted.refused:
        messages.error(
            request, f"Not accepted, your list holds ANOTHER key: {nodeset.fold(pasted.refused)}. Find out why first."
        )
    if pasted.not_listed:
        messages.warning(request, f"Still waiting, not on your list: {nodeset.fold(pasted.not_listed)}.")


@never_cache
def node(request: HttpRequest, fleet: str, name: str) -> HttpResponse:
    """One node: how it is reached, and its last check. POST changes how it is reached."""
    found = next((state for state in queries.states(fleet_of(request), name) if state.node.name == name), None)
    if found is None:
        raise Http404
    before = {field: getattr(found.node, field) for field in ("address", "user", "port", "jump")}
    form = NodeForm(request.POST or None, initial=before)
    if request.method == "POST" and form.is_valid():
        try:
            services.change_node(fleet_of(request), name, form.cleaned_data["address"], form.login)
        except services.Refused as refused:
            form.add_error(refused.field or None, str(refused))
        else:
            messages.success(request, f"{name} is changed. Check the fleet to see whether it answers.")
            return redirect("fleet", fleet)
    status = 422 if request.method == "POST" else 200
    context = {
        "fleet": fleet_of(request),
        "state": found,
        "form": form,
        "node_keys": queries.keys_of(found.node),
        "readings": queries.last_readings(found.node),
    }
    return render(request, "incidents/node.html", context, status=status)


@post_only
def remove_node(request: HttpRequest, fleet: str, name: str) -> HttpResponse:
    try:
        if services.remove_nodes(fleet_of(request), [name]):
            messages.success(request, f"{name} was taken out of the fleet.")
    except services.Refused as refused:
        messages.error(request, str(refused))
    return redirect("fleet", fleet)
