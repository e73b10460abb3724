"""For the supervisor and for monitoring: does this server work?"""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from incidents.queries.health import health


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 while the database answers, else 503. Without the broker pages still work, so that alone is no failure."""
    found = health()
    answer = {True: "ok", False: "no answer"}
    body = {"database": answer[found.database], "broker": answer[found.broker]}
    return JsonResponse(body, status=200 if found.database else 503)
