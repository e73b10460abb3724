"""Holds every request against the policy table, before its view runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed

from incidents import policy
from incidents.models import Fleet
from incidents.queries import people


class PolicyMiddleware:
    """Refuses what the table does not allow, and tells the view the `fleet` and the person's `role` in it.

    Who is not signed in is led to the sign-in page by Django before. What belongs to a fleet that the person is not in
    is answered like what does not exist (404); what their role there does not allow, with 403.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponse | None:
        match = request.resolver_match
        route = match.view_name if match else ""
        method = request.method or ""
        least = policy.least_for(route, method)
        request.fleet, request.role = None, None  # type: ignore[attr-defined]
        if least == policy.ANYBODY:
            return None
        if least is None and route in policy.POLICY:
            return HttpResponseNotAllowed(["GET" if policy.least_for(route, "GET") else "POST"])
        self._place(request, kwargs)
        if least is None or not policy.may(request.role, route, method):  # type: ignore[attr-defined]
            raise PermissionDenied
        return None

    def _place(self, request: Any, kwargs: Mapping[str, Any]) -> None:
        """The fleet that the address names, by itself or by an incident, and who the person is there."""
        if "fleet" in kwargs or "incident" in kwargs:
            if "fleet" in kwargs:
                fleet = Fleet.objects.filter(name=kwargs["fleet"]).first()
            else:
                fleet = Fleet.objects.filter(incidents__pk=kwargs["incident"]).first()
            request.role = people.role_in(request.user, fleet) if fleet else None
            if request.role is None:
                raise Http404
            request.fleet = fleet
        else:
            request.role = people.best_role(request.user)
