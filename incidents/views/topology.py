"""The topology tab: the rail matrix, its sentence and words, one node's card, and what is expected of the fabric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from csp.decorators import csp_update
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents.models import Incident, User
from incidents.queries import node_card
from incidents.queries import topology as queries
from incidents.services import topology as services
from incidents.services.fleet import Refused
from incidents.views.acting import by, found_or_404, number, post_only
from incidents.views.incidents import head_of

PARTS = ("title", "says", "figure", "words", "expected", "card")
SLOTS = ("head", *(f"topology_{part}" for part in PARTS))
# What Plotly 4.1.1 needs beyond the policy of every page, found by leaving it out and reading Chromium's console: a
# heatmap is drawn as a picture of its own making. Its styles are in static/plotly.css.
PLOTLY = {"img-src": ["data:"]}


def _context(incident: Incident, user: User, node: str, port: str) -> dict[str, Any]:
    found = queries.page(incident)
    nodes = list(found.view.nodes)
    if not node and found.pattern.kind in ("port", "node"):
        node = found.pattern.ports[0].port.node
    return {
        **head_of(incident, user, len(nodes), timezone.now()),
        "topology": found,
        "card": node_card.card(incident, found, node, port) if node else None,
        "asked_node": node,
        "wanted_node": found.seen.fabric_node or (nodes[0] if nodes else ""),
    }


@never_cache
@require_safe
@csp_update(PLOTLY)  # type: ignore[arg-type]  # its types know no view with a place in its address
def page(request: HttpRequest, incident: int) -> HttpResponse:
    """The whole tab; `?node=gpu-017&port=mlx5_3:1` opens a node's card."""
    node, port = request.GET.get("node", "")[:253], request.GET.get("port", "")[:80]
    found = found_or_404(incident)
    after_url = reverse("topology_after", args=[incident])
    if node and "/" not in node:
        after_url = reverse("topology_node_after", args=[incident, f"{node}:{port}" if port else node])
    return render(request, "incidents/topology.html", {**_context(found, by(request), node, port), "after": after_url})


@never_cache
@require_safe
def after(request: HttpRequest, incident: int, name: str = "") -> HttpResponse:
    """What changed after a seq: the live parts, rendered as on the page. `name` is the node of the card, with its port
    behind a colon."""
    found = found_or_404(incident)
    seq = number(request.GET.get("seq", ""))
    answer: dict[str, object] = {"seq": found.last_seq, "now": timezone.now().isoformat(), "count": 0, "html": {}}
    if found.last_seq > seq:
        node, _, port = name.partition(":")
        context = _context(found, by(request), node, port)
        answer["html"] = {slot: render_to_string(f"incidents/_{slot}.html", context, request) for slot in SLOTS}
    return JsonResponse(answer)


def _done(request: HttpRequest, incident: int, work: Callable[[Incident, User], object]) -> HttpResponse:
    try:
        work(found_or_404(incident), by(request))
    except Refused as refused:
        messages.error(request, str(refused))
    return redirect("topology", incident)


@post_only
def ask_fabric(request: HttpRequest, incident: int) -> HttpResponse:
    """Ask one node, by its name, for the fabric as it sees it."""
    name = request.POST.get("node", "")
    return _done(request, incident, lambda found, who: services.ask_fabric(found, who, name))


@post_only
def ask_ports(request: HttpRequest, incident: int) -> HttpResponse:
    return _done(request, incident, services.ask_ports)


@post_only
def learn_topology(request: HttpRequest, incident: int) -> HttpResponse:
    """ "This is how it should be", about the readings that were on the screen."""
    not_up, newest = request.POST.get("not_up", ""), number(request.POST.get("newest", ""))
    return _done(request, incident, lambda found, who: services.learn_topology(found, who, not_up, newest))
