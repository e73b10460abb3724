"""The evidence of an incident is judged again whenever there is more of it; what changed reaches the timeline."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

from celery import current_app
from django.db import transaction
from django.db.models import F, Max, Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from incidents.models import Incident, Ranking, Reading
from incidents.services.looking import look_closer
from incidents.services.timeline import tell
from probes.diagnosis import Seen, diagnose
from probes.diagnosis.core import stored
from probes.diagnosis.telling import told

log = logging.getLogger(__name__)

TASK = "incidents.judge"
LEASE = timedelta(seconds=30)  # how long one worker may take for one judgement
MOVED = 0.1  # a change of the first hypothesis' share that is worth a line; judgement


def ring_on_commit(incident_id: int) -> None:
    """There is new evidence. A bell that is lost costs seconds: the sweeper finds what was not judged."""
    transaction.on_commit(lambda: _ring(incident_id), robust=True)


def _ring(incident_id: int) -> None:
    try:
        current_app.send_task(TASK, [incident_id], retry=False)
    except Exception as error:  # whatever the broker's client raises
        log.warning("the broker does not answer (%s): the sweeper will see to the verdict", error)


def judge(incident_id: int) -> int:
    """Judge until nothing new is there; returns how often. Does nothing while another worker does."""
    count = 0
    while _claim(incident_id):
        try:
            count += _judge(incident_id)
        finally:
            Incident.objects.filter(pk=incident_id).update(judging_until=None)
        if not _behind(incident_id):
            break
    return count


def _claim(incident_id: int) -> bool:
    now = timezone.now()
    free = Q(judging_until=None) | Q(judging_until__lt=now)
    return bool(Incident.objects.filter(free, pk=incident_id).update(judging_until=now + LEASE))


def _newest(incident_id: int) -> int:
    return Reading.objects.filter(run__incident=incident_id).aggregate(last=Max("pk"))["last"] or 0


def _behind(incident_id: int) -> bool:
    judged = Incident.objects.values_list("judged_reading", flat=True).get(pk=incident_id)
    return _newest(incident_id) > judged


def _judge(incident_id: int) -> int:
    """Reading and judging outside of any transaction, writing in one."""
    newest = _newest(incident_id)
    incident = Incident.objects.get(pk=incident_id)
    if newest <= incident.judged_reading:
        return 0
    body = told(diagnose(evidence_of(incident)))
    ranking = _record(incident, newest, body)
    if ranking is not None:
        look_closer(incident, ranking)
    return 1


def evidence_of(incident: Incident) -> Iterator[Seen]:
    """Of every node and probe of an incident the latest reading that answered, else the latest. One query.

    A later look that failed takes nothing away from what an earlier one saw.
    """
    asked = Reading.objects.filter(run__incident=incident).values("node_id", "probe")
    latest = asked.annotate(best=Coalesce(Max("id", filter=Q(outcome="ok")), Max("id"))).values("best")
    rows = Reading.objects.filter(pk__in=latest).select_related("node").defer("out", "err").order_by("pk")
    for row in rows.iterator(chunk_size=500):
        yield stored(row.node.name, row.probe, row.outcome, row.why, row.facts, row.findings)  # type: ignore[arg-type]


@transaction.atomic
def _record(incident: Incident, newest: int, body: dict[str, object]) -> Ranking | None:
    """Keep a ranking that says something new, else None. The incident's row is locked, so that two cannot cross."""
    row = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    if newest <= row.judged_reading:
        return None
    Incident.objects.filter(pk=row.pk).update(judged_reading=newest)
    before = row.rankings.first()
    if before is not None and before.body == body:
        return None
    first = body["hypotheses"][0]  # type: ignore[index]
    ranking = Ranking.objects.create(
        incident=row,
        at=timezone.now(),
        readings=newest,
        cause=first["cause"],
        subject=first["subject"],
        probability=first["probability"],
        body=body,
    )
    if _worth_a_line(before, ranking):
        tell(row, "verdict", ranking=ranking.pk, cause=ranking.cause, subject=ranking.subject,
            probability=ranking.probability, says=first["says"])  # fmt: skip
    else:
        tell(row, "ranking", ranking=ranking.pk)
    return ranking


def _worth_a_line(before: Ranking | None, now: Ranking) -> bool:
    if before is None:
        return now.cause not in ("unknown", "none")
    changed = (before.cause, before.subject) != (now.cause, now.subject)
    return changed or abs(before.probability - now.probability) >= MOVED


def sweep_unjudged() -> int:
    """Ring for open incidents with evidence that nobody judges."""
    now = timezone.now()
    free = Q(judging_until=None) | Q(judging_until__lt=now)
    newest = Incident.objects.filter(free, closed_at=None).annotate(newest=Max("runs__readings__pk"))
    behind = list(newest.filter(newest__gt=F("judged_reading")).values_list("pk", flat=True)[:64])
    for incident_id in behind:
        _ring(incident_id)
    return len(behind)
