"""Does training advance? Two looks at all nodes, some seconds apart, and what their comparison says in the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from incidents.models import Incident, SuiteRun, User
from incidents.models.runs import VERIFY
from incidents.services.fleet import Refused
from incidents.services.runs import start_suite
from incidents.services.timeline import tell
from probes.diagnosis.advancing import advancing
from probes.diagnosis.core import Seen, stored

BETWEEN = timedelta(seconds=5)  # from the end of the first look to the second; judgement: longer than most steps


@transaction.atomic
def look_if_it_advances(incident: Incident, by: User | None) -> SuiteRun | None:
    """Begin the first of two looks; the second and the comparison follow by themselves. None while looks are under way.

    Raises Refused when the incident is closed or has no nodes.
    """
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    if _under_way(incident):
        return None
    return _look(incident, by)


def _look(incident: Incident, by: User | None) -> SuiteRun:
    nodes = list(incident.nodes.select_related("fleet"))
    run = start_suite(VERIFY, nodes, by, incident=incident)
    tell(incident, "suite_started", by, run=run.pk, suite=VERIFY, nodes=len(nodes))
    return run


def _looks(incident: Incident) -> list[SuiteRun]:
    """The looks in their order. Each two belong together."""
    return list(incident.runs.filter(suite=VERIFY).order_by("pk"))


def _under_way(incident: Incident) -> bool:
    looks = _looks(incident)
    return len(looks) % 2 == 1 or any(look.finished_at is None for look in looks)


def settle_looks(incident_id: int) -> bool:
    """When a second look has ended: compare it with the first. Whether it did."""
    with transaction.atomic():
        incident = Incident.objects.get(pk=incident_id)
        looks = _looks(incident)
        if len(looks) < 2 or len(looks) % 2 or looks[-1].finished_at is None or _told(incident, looks[-1]):
            return False
    first, second = looks[-2:]
    asked = list(incident.nodes.values_list("name", flat=True))
    found = advancing(_seen(first), _seen(second), asked)  # outside of a transaction: it parses
    with transaction.atomic():
        incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident_id)
        if _told(incident, second):
            return False
        tell(incident, "training", None, state=found.state, says=found.says, seconds=found.seconds, run=second.pk)
    return True


def _told(incident: Incident, look: SuiteRun) -> bool:
    return incident.events.filter(kind="training", payload__run=look.pk).exists()


def _seen(look: SuiteRun) -> Iterator[Seen]:
    rows = look.readings.defer("out", "err").select_related("node").order_by("pk")
    for row in rows.iterator(chunk_size=500):
        yield stored(row.node.name, row.probe, row.outcome, row.why, row.facts, row.findings)  # type: ignore[arg-type]


def sweep_looks() -> int:
    """Second looks that are due, and comparisons whose bell was lost. Returns how many."""
    verified = Incident.objects.filter(closed_at=None, runs__suite=VERIFY).distinct()
    return sum(_second_look(pk) or settle_looks(pk) for pk in verified.values_list("pk", flat=True)[:64])


@transaction.atomic
def _second_look(incident_id: int) -> bool:
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident_id)
    looks = _looks(incident)
    ended = looks[-1].finished_at if len(looks) % 2 else None
    if incident.closed_at is not None or ended is None or timezone.now() - ended < BETWEEN:
        return False
    _look(incident, None)
    return True
