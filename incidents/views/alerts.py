"""POST /alerts/<source>: where Alertmanager, and what posts like it, delivers.

Alertmanager sends again only after a 5xx and gives up on any 4xx, also 429. So what may pass next time is 503, and
4xx is only for what can never pass. Source: its notify/webhook and notify/util (Retrier).
"""

from __future__ import annotations

import logging

from django.contrib.auth.decorators import login_not_required
from django.db import Error
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from incidents import alertmanager
from incidents.models import AlertSource
from incidents.services import alert_sources, alerts

log = logging.getLogger(__name__)

MOST_BYTES = 256 * 1024


def _answer(status: int, what: str, **more: object) -> JsonResponse:
    answer = JsonResponse({"happened": what, **more}, status=status)
    if status == 401:
        answer["WWW-Authenticate"] = "Bearer"
    return answer


@csrf_exempt
@login_not_required
@never_cache
@require_POST
def receive(request: HttpRequest, source: str) -> JsonResponse:
    """Take an alert in. The answer's `happened` is one word or a sentence; `incidents` are the numbers."""
    try:
        return _receive(request, source)
    except Error as error:
        log.error("an alert of %s could not be taken in, it will be sent again: %s", source, error)
        return _answer(503, "the database does not answer: send it again")


def _receive(request: HttpRequest, slug: str) -> JsonResponse:
    source = AlertSource.objects.filter(slug=slug).first()
    if source is None:
        return _answer(404, "there is no such alert source: manage.py alert_source list")
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not alert_sources.may_send(source, token.strip()):
        return _answer(401, "this source needs its bearer token: manage.py alert_source rotate gives a new one")
    # Not request.body: that reads whatever Django's own, larger limit lets through.
    raw = request.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        return _answer(413, "the body is over 256 KB: set max_alerts in Alertmanager's webhook_configs")
    try:
        text = alertmanager.decoded(raw)
        alertmanager.parsed(text)
    except alertmanager.NotJson as error:
        alert_sources.count_unreadable(source)
        return _answer(400, str(error))
    except alertmanager.NotUnderstood:
        pass  # it is stored with that word
    taken = alerts.take_in(source, text)
    numbers = [incident.pk for incident in taken.incidents]
    return _answer(202, "incident" if numbers else "stored", incidents=numbers, problem=taken.problem)
