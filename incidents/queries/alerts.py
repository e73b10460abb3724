"""Reads of who sends alerts to a fleet, and of what came and could not be placed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, QuerySet
from django.utils import timezone

from incidents import alertmanager
from incidents.models import AlertDelivery, AlertSource, Fleet
from probes.core import clean

RECENT = timedelta(hours=24)
SHOWN = 50
LONGEST = 20_000  # characters of a body that the page shows; the database keeps all of it


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A delivery that could not be acted on, or not wholly: what is wrong, and the body in a form for people."""

    delivery: AlertDelivery
    problems: list[str]
    body: str
    cut: bool


def sources(fleet: Fleet) -> list[AlertSource]:
    """The sources of a fleet, each with `bodies`: how many different ones it sent."""
    return list(fleet.alert_sources.annotate(bodies=Count("deliveries")))


def unplaced(fleet: Fleet) -> list[Unplaced]:
    """What could not be placed, the last first."""
    found = _troubled([fleet]).select_related("source").order_by("-last_at")[:SHOWN]
    return [_for_people(delivery) for delivery in found]


def recently_unplaced(fleets: Sequence[Fleet]) -> dict[Fleet, int]:
    """How many deliveries of the last day could not be placed, by fleet; none where all could."""
    recent = _troubled(fleets).filter(last_at__gte=timezone.now() - RECENT)
    counts = dict(recent.values_list("source__fleet").annotate(Count("id")))
    return {fleet: counts[fleet.pk] for fleet in fleets if fleet.pk in counts}


def _troubled(fleets: Sequence[Fleet]) -> QuerySet[AlertDelivery]:
    return AlertDelivery.objects.filter(source__fleet__in=fleets).exclude(problem="")


def _for_people(delivery: AlertDelivery) -> Unplaced:
    text = delivery.raw[:LONGEST]
    if len(delivery.raw) <= LONGEST:
        with contextlib.suppress(alertmanager.NotJson, alertmanager.NotUnderstood):
            # Only what is small, and not nested deeply: indenting costs the square of the depth.
            text = json.dumps(alertmanager.parsed(text), indent=2, ensure_ascii=False)[:LONGEST]
    problems = [clean(line) for line in delivery.problem.splitlines()]
    return Unplaced(delivery, problems, clean(text), len(delivery.raw) > LONGEST)
