"""The end of an incident: a person says how it ended; "training again" only when that was read on the nodes."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from incidents.models import Incident, User
from incidents.models.endings import HOW, TRAINING_AGAIN, verified
from incidents.services import actions, response
from incidents.services.fleet import Refused
from incidents.services.timeline import tell

LONGEST = 1000  # characters of a reason
# What an action in such a state keeps open, and what to do about it.
UNSETTLED = {
    "ready": "is about to run. Wait for its end",
    "running": "is running. Wait for its end",
}


@transaction.atomic
def resolve(incident: Incident, by: User, how: str, why: str) -> Incident:
    """Close an incident: `how` is a word of HOW, `why` at most LONGEST characters, needed for all but the first.

    Sent twice by one person with the same words, as by a double click, it is done once. Raises Refused when it is
    closed already, while an action runs, and for "training again" without a reading that says so.
    """
    incident = Incident.objects.select_for_update(of=("self",)).select_related("resolved_by").get(pk=incident.pk)
    said = why.strip()[:LONGEST]
    if incident.closed_at is not None:
        if _is_this(incident, by, how, said):
            return incident
        raise Refused(f"{incident.resolved_by or 'Somebody'} closed INC-{incident.pk} already: {incident.resolution}.")
    if how not in HOW:
        raise Refused("Choose how the incident ended.", "how")
    if how != TRAINING_AGAIN and not said:
        raise Refused(f"Say why it ends as “{how}”: the next person will ask.", "why")
    _refuse_unsettled(incident)
    if how == TRAINING_AGAIN and verified(incident) is None:
        raise Refused(
            "Nothing read after the last action says that training advances. Verify it first, or choose another end.",
            "how",
        )
    actions.decline_waiting(incident, by)
    _close(incident, by, how)
    tell(incident, "resolved", by, how=how, why=said)
    return incident


def _is_this(incident: Incident, by: User, how: str, why: str) -> bool:
    last = incident.events.filter(kind="resolved").last()
    return last is not None and last.actor_id == by.pk and last.payload == {"how": how, "why": why}


def _refuse_unsettled(incident: Incident) -> None:
    action = incident.actions.filter(state__in=UNSETTLED).select_related("node").first()
    if action is not None:
        raise Refused(f"{action.remedy} on {action.node} {UNSETTLED[action.state]}, then resolve.")


def _close(incident: Incident, by: User, how: str) -> None:
    now = max(timezone.now(), incident.t0)
    running = incident.phases.filter(started_at__isnull=False, ended_at=None)
    overdue = running.filter(due_at__lt=now, overdue_told_at=None).first()
    if overdue is not None:  # the sweeper did not come by in time
        response.say_overdue(incident, overdue, now)
    running.update(ended_at=now)
    incident.closed_at, incident.resolution, incident.resolved_by = now, how, by
    incident.save(update_fields=["closed_at", "resolution", "resolved_by"])
