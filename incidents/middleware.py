"""Holds every request against the policy table, before its view runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from incidents import policy


class PolicyMiddleware:
    """Refuses (403) what the table does not allow. Who is not signed in is led to the sign-in page by Django before."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> None:
        match = request.resolver_match
        route = match.view_name if match else ""
        method = request.method or ""
        if method not in ("GET", "HEAD", "OPTIONS") and policy.POLICY.get(route, ("", ""))[1] is None:
            return  # the view itself answers 405: nothing can be done there
        if not policy.may(request.user, route, method):
            raise PermissionDenied
