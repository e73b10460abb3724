"""How an incident ends, and what must be known for the best of the ways."""

from __future__ import annotations

from django.db.models import Max

from incidents.models.incident import Incident
from incidents.models.runs import SuiteRun
from incidents.models.timeline import Event

TRAINING_AGAIN = "training again"
HOW = (TRAINING_AGAIN, "handed over", "false alarm", "other")
ADVANCES = "advances"


def verified(incident: Incident) -> Event | None:
    """The event since which training is known to advance: None unless that was read last, and after the last action.

    Both looks must have begun after the last action had ended; whatever else was read later takes it back.
    """
    ended = incident.actions.exclude(begun_at=None).aggregate(last=Max("ended_at"))["last"]
    told = incident.events.filter(kind="training").select_related("actor").order_by("seq")
    looks = dict(SuiteRun.objects.filter(incident=incident).values_list("pk", "started_at"))
    since: Event | None = None
    for event in told:
        began = looks.get(event.payload.get("first", event.payload.get("run")), event.at)
        if event.payload.get("state") != ADVANCES:
            since = None
        elif ended is None or min(began, event.at) >= ended:
            since = since or event
    return since
