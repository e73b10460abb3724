"""Does training advance? Two looks at all nodes, some seconds apart, and what their comparison says in the timeline.

Looks belong together by name: the event that starts a second look names the first. The latest first look counts; one
before it that got no second is given up.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from incidents.models import Incident, SuiteRun, User
from incidents.models.runs import VERIFY
from incidents.services.fleet import Refused
from incidents.services.runs import start_told
from incidents.services.timeline import tell
from probes.diagnosis.advancing import advancing
from probes.diagnosis.core import Seen
from probes.stored import stored

BETWEEN = timedelta(seconds=5)  # from the end of the first look to the second; judgement: longer than most steps


@transaction.atomic
def look_if_it_advances(incident: Incident, by: User | None, anew: bool = False) -> SuiteRun | None:
    """Begin the first of two looks; the second and the comparison follow by themselves. None while looks are under way,
    unless `anew`: what was seen before now no longer tells.

    Raises Refused when the incident is closed or has no nodes.
    """
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    if not anew and under_way(incident):
        return None
    return _look(incident, by)


def _look(incident: Incident, by: User | None, second_of: int | None = None) -> SuiteRun:
    nodes = list(incident.nodes.select_related("fleet"))
    return start_told(incident, VERIFY, nodes, by, second_of=second_of)


def _pair(incident: Incident) -> tuple[SuiteRun | None, SuiteRun | None]:
    """The latest first look and its second."""
    started = incident.events.filter(kind="suite_started", payload__suite=VERIFY)
    first = started.filter(payload__second_of=None).order_by("-seq").first()
    if first is None:
        return None, None
    second = started.filter(payload__second_of=first.payload["run"]).first()
    runs = incident.runs.in_bulk([one.payload["run"] for one in (first, second) if one is not None])
    return runs.get(first.payload["run"]), runs.get(second.payload["run"]) if second is not None else None


def under_way(incident: Incident) -> bool:
    """Whether looks were begun and not compared yet."""
    first, _ = _pair(incident)
    return first is not None and not _told(incident, first)


def _told(incident: Incident, first: SuiteRun) -> bool:
    return incident.events.filter(kind="training", payload__first=first.pk).exists()


def settle_looks(incident_id: int) -> bool:
    """When a second look has ended: compare it with the first. Whether it did."""
    incident = Incident.objects.get(pk=incident_id)
    first, second = _pair(incident)
    if first is None or second is None or second.finished_at is None or _told(incident, first):
        return False
    asked = list(incident.nodes.values_list("name", flat=True))
    found = advancing(_seen(first), _seen(second), asked)  # outside of a transaction: it parses
    with transaction.atomic():
        incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident_id)
        if _told(incident, first):
            return False
        about = {"first": first.pk, "run": second.pk}
        tell(incident, "training", None, state=found.state, says=found.says, seconds=found.seconds, **about)
    return True


def _seen(look: SuiteRun) -> Iterator[Seen]:
    rows = look.readings.defer("out", "err").select_related("node").order_by("pk")
    for row in rows.iterator(chunk_size=500):
        yield stored(row.node_name, row.probe, row.outcome, row.why, row.facts, row.findings)  # type: ignore[arg-type]


def sweep_looks() -> int:
    """Second looks that are due, and comparisons whose bell was lost. Returns how many."""
    verified = Incident.objects.filter(closed_at=None, runs__suite=VERIFY).distinct()
    return sum(_second_look(pk) or settle_looks(pk) for pk in verified.values_list("pk", flat=True)[:64])


@transaction.atomic
def _second_look(incident_id: int) -> bool:
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident_id)
    first, second = _pair(incident)
    ended = first.finished_at if first is not None and second is None else None
    if incident.closed_at is not None or first is None or ended is None or timezone.now() - ended < BETWEEN:
        return False
    _look(incident, None, first.pk)
    return True
