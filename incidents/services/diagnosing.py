"""The evidence of an incident is judged again whenever there is more of it; what changed reaches the timeline."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from celery import current_app
from django.db import transaction
from django.db.models import Exists, F, Max, OuterRef, Q
from django.utils import timezone

from incidents import fabric
from incidents.models import ExpectedTopology, Fleet, Incident, Ranking, Reading
from incidents.models.diagnosis import UNNAMED, same
from incidents.services.looking import look_closer
from incidents.services.timeline import tell
from probes.diagnosis import Diagnoser, Seen
from probes.diagnosis.telling import told
from probes.stored import stored

log = logging.getLogger(__name__)

TASK = "incidents.judge"
LEASE = timedelta(seconds=30)  # how long one worker may take for one judgement
MOVED = 0.1  # a change of the verdict's share that is worth a line; judgement
AT_ONCE = 500  # readings that one query brings
TOLD = 0.5  # below this share a cause is shown, and not told in the timeline; judgement


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
    while lease := _claim(incident_id):
        try:
            count += _judge(incident_id)
        finally:  # not the lease of a worker that took over because this one was too slow
            Incident.objects.filter(pk=incident_id, judging_until=lease).update(judging_until=None)
        if not _behind(incident_id):
            break
    return count


def _free(now: datetime) -> Q:
    """Incidents that no worker judges."""
    return Q(judging_until=None) | Q(judging_until__lt=now)


def _claim(incident_id: int) -> datetime | None:
    """The end of this worker's lease, or None while another one judges."""
    now = timezone.now()
    taken = Incident.objects.filter(_free(now), pk=incident_id).update(judging_until=now + LEASE)
    return now + LEASE if taken else None


def _newest(incident_id: int) -> int:
    return Reading.objects.filter(run__incident=incident_id).aggregate(last=Max("pk"))["last"] or 0


def _behind(incident_id: int) -> bool:
    judged = Incident.objects.values_list("judged_reading", flat=True).get(pk=incident_id)
    return _newest(incident_id) > judged


def _judge(incident_id: int) -> int:
    """Reading and judging outside of any transaction, writing in one."""
    newest = _newest(incident_id)
    incident = Incident.objects.select_related("fleet").get(pk=incident_id)
    if newest <= incident.judged_reading:
        return 0
    upload = incident.uploads.exclude(read_at=None).first()
    asked = [*incident.nodes.values_list("name", flat=True), *(upload.asked if upload else ())]
    stored_topology = fabric.stored_for(incident.fleet)
    expected, _ = fabric.expected_of(stored_topology)
    if expected is None and upload is not None and upload.expected is not None:
        expected = fabric.expected_in_files(upload.expected)
    kept = _kept(incident_id)
    body = told(kept.diagnoser.diagnose(evidence_of(incident, newest, kept.seen), asked, expected))
    ranking = _record(incident, newest, body, stored_topology)
    if ranking is not None:
        look_closer(incident, ranking)
    return 1


Key = tuple[int, datetime]  # a reading's number and time: after a restored backup a number may be another reading's


@dataclass
class _Kept:
    """What this process knows of an incident between two judgements: its readings, and what was said."""

    incident: int
    seen: dict[Key, Seen] = field(default_factory=dict)
    diagnoser: Diagnoser = field(default_factory=Diagnoser)


_last: list[_Kept] = []  # one incident: the evidence of a thousand nodes takes 300 MB


def _kept(incident_id: int) -> _Kept:
    if not _last or _last[0].incident != incident_id:
        _last[:] = [_Kept(incident_id)]
    return _last[0]


def forget() -> None:
    """What this process knows of an incident is read anew at the next judgement."""
    _last.clear()


def evidence_of(incident: Incident, until: int, known: dict[Key, Seen]) -> list[Seen]:
    """The best readings of an incident up to the reading `until`, which a ranking names as its last, and those of its
    files. Those that are `known` are not read again: a reading never changes. What counts no longer is let go of."""
    nodes = Reading.objects.all().evidence(incident, until)
    files = Reading.objects.all().of_files(incident, until)
    best: list[Key] = [key for rows in (nodes, files) for key in rows.order_by("pk").values_list("pk", "recorded_at")]
    for gone in known.keys() - set(best):
        del known[gone]
    new = [key for key in best if key not in known]
    for begin in range(0, len(new), AT_ONCE):
        wanted = [pk for pk, _ in new[begin : begin + AT_ONCE]]
        for row in Reading.objects.filter(pk__in=wanted).select_related("node").defer("out", "err"):
            known[row.pk, row.recorded_at] = _seen(row)
    return [known[key] for key in best if key in known]


def _seen(row: Reading) -> Seen:
    found = stored(row.node_name, row.probe, row.outcome, row.why, row.facts, row.findings)  # type: ignore[arg-type]
    return replace(found, ref=row.file) if row.file else found


@transaction.atomic
def _record(
    incident: Incident, newest: int, body: dict[str, object], topology: ExpectedTopology | None
) -> Ranking | None:
    """Keep a ranking that says something new, else None. The incident's row is locked, so that two cannot cross."""
    row = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    if newest <= row.judged_reading:
        return None
    if fabric.stored_for(row.fleet) != topology:  # stored meanwhile: the incident stays behind, and is judged again
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
        topology=topology,
        cause=first["cause"],
        subject=first["subject"],
        probability=first["probability"],
        body=body,
    )
    _tell(row, ranking, first["says"])
    return ranking


def _tell(incident: Incident, ranking: Ranking, says: str) -> None:
    """A line in the timeline when the verdict is another than the last one told, or much surer or less sure.

    Against the last that was told, not the last: many small steps are a long way too.
    """
    event = incident.events.filter(kind="verdict").order_by("-seq").first()
    last = event.payload if event is not None else None
    now = {"cause": ranking.cause, "subject": ranking.subject}
    if last is None:
        change, worth = "first", ranking.cause not in UNNAMED and ranking.probability >= TOLD
    elif not same(last, now):
        change, worth = "another", ranking.cause in UNNAMED or ranking.probability >= TOLD
    else:
        moved = ranking.probability - last["probability"]
        change, worth = "surer" if moved > 0 else "less sure", abs(moved) >= MOVED
    if worth:
        tell(incident, "verdict", ranking=ranking.pk, **now, probability=ranking.probability, says=says, change=change)
    else:
        tell(incident, "ranking", ranking=ranking.pk)


def judge_again(fleet: Fleet) -> None:
    """What is expected of a fleet's fabric has changed: its open incidents with readings of it are as if never judged.

    Within the transaction that changes it.
    """
    readings = Reading.objects.filter(run__incident=OuterRef("pk"), probe__in=(fabric.PORTS, fabric.SWEEP))
    concerned = Incident.objects.filter(Exists(readings), fleet=fleet, closed_at=None)
    pks = list(concerned.select_for_update(of=("self",)).order_by("pk").values_list("pk", flat=True))
    Incident.objects.filter(pk__in=pks).update(judged_reading=0)
    for pk in pks:
        ring_on_commit(pk)


def sweep_unjudged() -> int:
    """Judge open incidents whose evidence nobody judges: their bells may wait behind whole captures in the queue."""
    newest = Incident.objects.filter(_free(timezone.now()), closed_at=None).annotate(newest=Max("runs__readings__pk"))
    behind = list(newest.filter(newest__gt=F("judged_reading")).values_list("pk", flat=True)[:64])
    return sum(judge(incident_id) for incident_id in behind)
