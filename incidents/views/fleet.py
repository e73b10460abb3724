"""The fleet page: nodes in and out, the check, and host keys to accept."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents.forms import AddNodesForm, NodeForm, PasteKeysForm
from incidents.models import Node
from incidents.queries import fleet as queries
from incidents.services import fleet as services
from incidents.services.runs import start_suite
from incidents.views.acting import by, post_only
from probes import nodeset


def _context() -> dict[str, object]:
    found = queries.states()
    tally = queries.tally(found)
    keys = queries.waiting_keys()
    return {
        "states": found,
        "total": len(found),
        "ready": tally["ok"],
        "unwell": tally["bad"] + tally["warn"],
        "unchecked": tally["unknown"],
        "keys": keys,
        "before": queries.trusted_fingerprints(keys),
        "check": queries.latest_check(),
    }


@never_cache
@require_safe
def fleet(request: HttpRequest) -> HttpResponse:
    """The page. Without JavaScript it is right after a reload."""
    return _page(request, AddNodesForm(), PasteKeysForm())


def _page(request: HttpRequest, add: AddNodesForm, paste: PasteKeysForm, status: int = 200) -> HttpResponse:
    context = {**_context(), "add": add, "paste": paste, "ignored": queries.ignored_ssh_options()}
    return render(request, "incidents/fleet.html", context, status=status)


@never_cache
@require_safe
def fleet_state(request: HttpRequest) -> HttpResponse:
    """The part of the page that changes while a check runs: the same partial the page was rendered from."""
    return render(request, "incidents/_fleet_state.html", {**_context(), "paste": PasteKeysForm()})


@post_only
def add_nodes(request: HttpRequest) -> HttpResponse:
    form = AddNodesForm(request.POST)
    if form.is_valid():
        try:
            added = services.add_nodes(form.cleaned_data["nodes"], form.login, by(request))
        except services.Refused as refused:
            form.add_error(refused.field or "nodes", str(refused))
        else:
            messages.success(request, _added(added))
            return redirect("fleet")
    return _page(request, form, PasteKeysForm(), status=422)


def _added(added: services.Added) -> str:
    parts = [
        f"{len(names)} {'node' if len(names) == 1 else 'nodes'} {word}: {nodeset.fold(names)}"
        for names, word in ((added.new, "added"), (added.changed, "changed"), (added.same, "there already"))
        if names
    ]
    return ". ".join(parts) + "."


@post_only
def check_fleet(request: HttpRequest) -> HttpResponse:
    try:
        start_suite("check", list(Node.objects.all()), by(request))
    except services.Refused as refused:
        messages.error(request, str(refused))
    return redirect("fleet")


@post_only
def accept_key(request: HttpRequest, key_id: int) -> HttpResponse:
    try:
        key = services.accept_key(key_id, by(request), request.POST.get("reason", ""))
        messages.success(request, f"The key of {key.node} is accepted. Check the fleet to use it.")
    except services.Refused as refused:
        messages.error(request, str(refused))
    return redirect("fleet")


@post_only
def accept_pasted(request: HttpRequest) -> HttpResponse:
    form = PasteKeysForm(request.POST)
    if form.is_valid():
        try:
            pasted = services.accept_pasted(form.cleaned_data["keys"], by(request))
        except services.Refused as refused:
            form.add_error("keys", str(refused))
        else:
            _tell_pasted(request, pasted)
            return redirect("fleet")
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
def node(request: HttpRequest, name: str) -> HttpResponse:
    """One node: how it is reached, and its last check. POST changes how it is reached."""
    found = next((state for state in queries.states(name) if state.node.name == name), None)
    if found is None:
        raise Http404
    before = {field: getattr(found.node, field) for field in ("address", "user", "port", "jump")}
    form = NodeForm(request.POST or None, initial=before)
    if request.method == "POST" and form.is_valid():
        try:
            services.change_node(name, form.cleaned_data["address"], form.login)
        except services.Refused as refused:
            form.add_error(refused.field or None, str(refused))
        else:
            messages.success(request, f"{name} is changed. Check the fleet to see whether it answers.")
            return redirect("fleet")
    status = 422 if request.method == "POST" else 200
    context = {
        "state": found,
        "form": form,
        "node_keys": queries.keys_of(found.node),
        "readings": queries.last_readings(found.node),
    }
    return render(request, "incidents/node.html", context, status=status)


@post_only
def remove_node(request: HttpRequest, name: str) -> HttpResponse:
    try:
        if services.remove_nodes([name]):
            messages.success(request, f"{name} was taken out of the fleet.")
    except services.Refused as refused:
        messages.error(request, str(refused))
    return redirect("fleet")
