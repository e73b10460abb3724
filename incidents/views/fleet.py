"""The fleet page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def fleet(request: HttpRequest) -> HttpResponse:
    return render(request, "incidents/fleet.html")
