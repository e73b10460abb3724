"""Pages for what went wrong. Each says what happened and what to do next."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.csrf import requires_csrf_token

_TEMPLATE = "incidents/error.html"


def _page(request: HttpRequest, status: int, title: str, advice: str) -> HttpResponse:
    context = {"title": title, "advice": advice}
    return render(request, _TEMPLATE, context, status=status)


@requires_csrf_token
def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, 400, "This request cannot be read", "Go back, reload the page and try again.")


@requires_csrf_token
def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    advice = "Your role in this fleet does not allow it. Ask an admin of the fleet."
    return _page(request, 403, "You may not do this", advice)


@requires_csrf_token
def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, 404, "There is no such page", "Check the address, or begin again at the start page.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return _page(
        request,
        403,
        "This form is out of date",
        "Nothing was changed. Go back, reload the page and send it again. If it stays, allow cookies for this site.",
    )


def server_error(request: HttpRequest) -> HttpResponse:
    """Plain: no user, no database, no context, for any of them may be what failed."""
    from django.template import loader

    return HttpResponse(loader.get_template("incidents/server_error.html").render({}), status=500)
