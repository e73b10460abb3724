"""Alerts in: the body is stored first, then understood, then an incident is opened or joined.

Each step is a transaction of its own, so that whatever goes wrong later loses nothing. A body that comes again is gone
through again: what could not be done the first time (no nodes known, a database that failed) is then done.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import DataError, Error, transaction
from django.db.models import F
from django.utils import timezone

from incidents.alertmanager import Body, NotUnderstood, Signal, parsed, read
from incidents.models import Alert, AlertDelivery, AlertSource, Fleet, Incident, Job, Node
from incidents.services.alert_nodes import nodes_or_look
from incidents.services.fleet import Refused
from incidents.services.response import open_incident
from incidents.services.timeline import tell
from probes import log_paths
from probes.core import clean

log = logging.getLogger(__name__)

MOST_JOBS = 20  # incidents that one body may open or join: more is a mistake in the labels
MOST_TOLD = 20  # alerts that one event lists; the others are counted
OLDEST = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of one body: the incidents it opened or joined, and what could not be made of it."""

    delivery: AlertDelivery
    incidents: tuple[Incident, ...]
    problem: str


def take_in(source: AlertSource, raw: str) -> Taken:
    """Store a JSON body of this source and act on it. Raises django.db.Error when the database fails: the sender
    should then send it again. Anything else that goes wrong is said in the delivery's `problem`."""
    delivery = _store(source, raw)
    incidents: list[Incident] = []
    problems: list[str] = []
    body = Body("", "", (), ())
    try:
        body = read(parsed(raw))
    except NotUnderstood as error:
        problems.append(str(error))
    except Exception as error:
        problems.append(_stumbled(error))
    groups = _by_job(body.signals)
    for job_name, signals in list(groups.items())[:MOST_JOBS]:
        try:
            incident = _act(delivery, job_name, signals, body.notes)
            incidents += [incident] if incident is not None else []
        except Refused as refused:
            problems.append(str(refused))
        except Exception as error:
            if isinstance(error, Error) and not isinstance(error, DataError):
                raise
            problems.append(_stumbled(error))
    if len(groups) > MOST_JOBS:
        problems.append(
            f"The body names {len(groups)} jobs; only the first {MOST_JOBS} were acted on. Check its labels."
        )
    return _conclude(delivery, body, incidents, problems)


def _stumbled(error: Exception) -> str:
    log.exception("an alert could not be acted on; it is stored")
    return f"Golden15 stumbled over this body and kept it ({type(error).__name__}: {clean(str(error))[:200]})."


@transaction.atomic
def _store(source: AlertSource, raw: str) -> AlertDelivery:
    """The body, before anything is made of it. Held by the source's row, so that the same body at once is one row."""
    now = timezone.now()
    AlertSource.objects.select_for_update(no_key=True).get(pk=source.pk)
    AlertSource.objects.filter(pk=source.pk).update(last_at=now)
    sha256 = hashlib.sha256(raw.encode()).hexdigest()
    delivery = AlertDelivery.objects.filter(source=source, sha256=sha256).first()
    if delivery is None:
        return AlertDelivery.objects.create(source=source, received_at=now, last_at=now, raw=raw, sha256=sha256)
    AlertDelivery.objects.filter(pk=delivery.pk).update(repeats=F("repeats") + 1, last_at=now)
    return delivery


@transaction.atomic
def _conclude(delivery: AlertDelivery, body: Body, incidents: Sequence[Incident], problems: Sequence[str]) -> Taken:
    problem = "\n".join(dict.fromkeys(problems))
    if (delivery.group_key, delivery.status, delivery.problem) != (body.group_key, body.status, problem):
        delivery.group_key, delivery.status, delivery.problem = body.group_key, body.status, problem
        delivery.save(update_fields=["group_key", "status", "problem"])
    return Taken(delivery, tuple(incidents), problem)


def _by_job(signals: Sequence[Signal]) -> dict[str, list[Signal]]:
    groups: dict[str, list[Signal]] = {}
    for signal in signals:
        groups.setdefault(signal.job, []).append(signal)
    return groups


@transaction.atomic
def _act(delivery: AlertDelivery, job_name: str, signals: list[Signal], notes: Sequence[str]) -> Incident | None:
    """Open or join the incident of these alerts, which name the same job or none. None when there is nothing to do:
    all are over and there is no open incident. Raises Refused when no node can be found to ask."""
    fleet = delivery.source.fleet
    job = _locked_job(fleet, job_name) if job_name else None
    incident = _open_of_job(job) if job else _open_of_alerts(delivery.source, signals)
    firing = [signal for signal in signals if signal.firing]
    if incident is None and not firing:
        return None
    notes = [*notes, *_job_notes(signals)]
    if incident is None:
        nodes, odd = nodes_or_look(fleet, firing, job)
        # Locked in the order of their keys: two bodies that name the same node at once open one incident.
        locked = Node.objects.select_for_update().filter(pk__in=[node.pk for node in nodes]).order_by("pk")
        if job is None:
            incident = _open_of_nodes(list(locked))
        if incident is None:
            return _open(delivery, job, nodes, firing, [*notes, *odd])
    _join(incident, delivery, signals, notes)
    return incident


def _locked_job(fleet: Fleet, name: str) -> Job:
    """The job's row, made if need be, and held: two alerts of one job at once open one incident."""
    job, _ = Job.objects.get_or_create(fleet=fleet, name=name)
    return Job.objects.select_for_update(no_key=True).get(pk=job.pk)


def _open_of_job(job: Job) -> Incident | None:
    return Incident.objects.real().select_for_update().filter(job=job, closed_at=None).order_by("id").last()


def _open_of_alerts(source: AlertSource, signals: Sequence[Signal]) -> Incident | None:
    """The open incident that one of these very alerts opened or joined."""
    prints = [signal.fingerprint for signal in signals]
    known = Alert.objects.filter(source=source, fingerprint__in=prints, incident__closed_at=None, incident__drill="")
    newest = known.order_by("incident_id").values_list("incident_id", flat=True).last()
    return Incident.objects.select_for_update().filter(pk=newest, closed_at=None).first() if newest else None


def _open_of_nodes(nodes: Sequence[Node]) -> Incident | None:
    """An alert without a job joins the open incident that is about one of its nodes."""
    open_ones = Incident.objects.real().filter(nodes__in=nodes, closed_at=None)
    found = open_ones.order_by("id").values_list("id", flat=True).last()
    return Incident.objects.select_for_update().filter(pk=found, closed_at=None).first() if found else None


def _job_notes(signals: Sequence[Signal]) -> list[str]:
    if signals[0].job_label != "job":
        return []
    return [
        "the job's name is from the label `job`, which is Prometheus' scrape job: give the alert a label `job_name`"
    ]


def _open(
    delivery: AlertDelivery, job: Job | None, nodes: Sequence[Node], firing: Sequence[Signal], notes: Sequence[str]
) -> Incident:
    now = timezone.now()
    impact_at, odd = _impact(firing, now)
    worst = min(firing, key=lambda signal: signal.severity)
    paths, refused = _log_paths(firing)
    said = _said(delivery, firing, [], [*notes, *odd, *refused])
    incident = open_incident(
        delivery.source.fleet,
        job,
        nodes,
        None,
        severity=worst.severity,
        title=worst.summary,
        impact_at=impact_at,
        log_paths=paths,
        looking_for="" if nodes or job is None else job.name,
        alert=said,
    )
    Alert.objects.bulk_create([_row(incident, delivery, signal, now) for signal in firing])
    return incident


def _log_paths(firing: Sequence[Signal]) -> tuple[list[str], list[str]]:
    """Patterns of log files that the alerts give, and notes on those that are not taken: an incident opens anyway."""
    found: dict[str, None] = {}
    odd: dict[str, None] = {}
    for pattern in dict.fromkeys(pattern for signal in firing for pattern in signal.log_paths):
        try:
            found |= dict.fromkeys(log_paths.checked([pattern]))
        except log_paths.LogPathError as error:
            odd[str(error)] = None
    if len(found) > log_paths.MOST:
        odd[f"its alerts give {len(found)} log paths; the first {log_paths.MOST} were taken"] = None
    return list(found)[: log_paths.MOST], list(odd)[:5]


def _impact(firing: Sequence[Signal], now: datetime) -> tuple[datetime | None, list[str]]:
    """Since when training does not advance: the earliest start that can be true, by the source's clock."""
    starts = [signal.started_at for signal in firing if signal.started_at is not None]
    possible = [at for at in starts if now - OLDEST <= at <= now]
    if len(possible) == len(starts):
        return min(possible, default=None), []
    odd = min((at for at in starts if at not in possible), key=lambda at: abs(now - at))
    when = "in the future" if odd > now else "over 24 hours ago"
    return min(possible, default=None), [
        f"the source's clock is suspect: it says that an alert began {odd:%F %T} UTC, {when}"
    ]


def _join(incident: Incident, delivery: AlertDelivery, signals: Sequence[Signal], notes: Sequence[str]) -> None:
    """One event for what is new in it, none for what was told before. The incident's row is held."""
    now = timezone.now()
    rows = {
        row.fingerprint: row
        for row in Alert.objects.filter(
            incident=incident, source=delivery.source, fingerprint__in=[signal.fingerprint for signal in signals]
        )
    }
    new = [_row(incident, delivery, signal, now) for signal in signals if signal.fingerprint not in rows]
    Alert.objects.bulk_create(new)
    fresh = {row.fingerprint for row in new}
    same = []
    for signal in signals:
        row = rows.get(signal.fingerprint)
        if row is None:
            continue
        if row.status == _status(signal):
            same.append(row.pk)
            continue
        row.status, row.started_at, row.last_at = _status(signal), signal.started_at, now
        row.save(update_fields=["status", "started_at", "last_at"])
        fresh.add(row.fingerprint)
    Alert.objects.filter(pk__in=same).update(repeats=F("repeats") + 1, last_at=now)
    told = [signal for signal in signals if signal.fingerprint in fresh]
    if told:
        firing = [signal for signal in told if signal.firing]
        tell(incident, "alert", None, **_said(delivery, firing, [s for s in told if not s.firing], notes))


def _row(incident: Incident, delivery: AlertDelivery, signal: Signal, now: datetime) -> Alert:
    return Alert(
        incident=incident,
        source=delivery.source,
        delivery=delivery,
        fingerprint=signal.fingerprint,
        name=signal.name,
        status=_status(signal),
        started_at=signal.started_at,
        first_at=now,
        last_at=now,
    )


def _status(signal: Signal) -> str:
    return Alert.Status.FIRING if signal.firing else Alert.Status.RESOLVED


def _said(
    delivery: AlertDelivery, firing: Sequence[Signal], resolved: Sequence[Signal], notes: Sequence[str]
) -> dict[str, object]:
    """What an event holds of alerts: `says` for people, the rest for programs. All of it is clean text."""
    parts = [
        f"{word}: {'; '.join(dict.fromkeys(signal.summary for signal in listed[:3]))}"
        + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
        for word, listed in (("fires", firing), ("no longer fires", resolved))
        if listed
    ]
    return {
        "source": delivery.source.name,
        "delivery": delivery.pk,
        "says": ". ".join(parts),
        "firing": [_brief(signal) for signal in firing[:MOST_TOLD]],
        "resolved": [_brief(signal) for signal in resolved[:MOST_TOLD]],
        "alerts": len(firing) + len(resolved),
        "notes": list(notes),
    }


def _brief(signal: Signal) -> dict[str, str]:
    return {
        "fingerprint": signal.fingerprint,
        "name": signal.name,
        "summary": signal.summary,
        "nodes": (signal.nodes or signal.instance)[:300],
    }
