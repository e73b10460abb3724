"""Reads for the list of incidents: what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db.models import Max
from django.db.models.fields.json import KT
from django.utils import timezone
from django.utils.text import Truncator

from incidents import clock
from incidents.models import Action, Decision, Event, Incident, Ranking
from incidents.models.diagnosis import IS_THIS_IT, UNNAMED, same
from incidents.queries.diagnosis import share_said
from incidents.queries.incident import PhaseView
from probes.remedies import shown

SOON = timedelta(seconds=60)
CAPTURE = "capture"
LIKELY = 0.8  # a verdict from this share on waits for somebody's word; judgement
LONGEST = 160  # characters of a verdict's sentence


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person. `rank` orders them, 0 the most pressing; `act` is a route that settles it."""

    incident: Incident
    rank: int
    level: str
    says: str
    act: str = ""


Row = tuple[Incident, PhaseView | None]


def needs(rows: list[Row], now: datetime | None = None) -> list[Need]:
    """What waits for a person: one entry per incident, all its reasons joined, the most pressing incident first.

    `rows` are open incidents, each with the phase that runs. Severity counts first; then overdue and "not one node
    could be reached" before "nobody commands", that before a capture that ended without some nodes (until a person
    moves on from it), a verdict that nobody said a word about, and what is due within a minute.
    """
    now = now or timezone.now()
    incidents = [incident for incident, _ in rows]
    ends = _capture_ends(incidents)
    every = [need for row in rows for need in _needs_of(*row, ends.get(row[0].pk), now)]
    every += _commands_that_wait(incidents, now)
    every += _verdicts_that_wait([incident for incident in incidents if incident.phase != CAPTURE])
    found = [_joined([need for need in every if need.incident == incident]) for incident in incidents]
    return sorted(filter(None, found), key=lambda need: (need.incident.severity, need.rank))


def _joined(of_one: list[Need]) -> Need | None:
    """The needs of one incident as one; the level of the worst, and what settles it where that is a click."""
    if not of_one:
        return None
    ordered = sorted(of_one, key=lambda need: need.rank)
    act = next((need.act for need in ordered if need.act), "")
    level = "bad" if any(need.level == "bad" for need in ordered) else ordered[0].level
    return replace(ordered[0], says="; ".join(need.says for need in ordered), act=act, level=level)


def _needs_of(
    incident: Incident, phase: PhaseView | None, ended: tuple[int, int] | None, now: datetime
) -> Iterator[Need]:
    if phase and now > phase.due_at:
        yield Need(incident, 0, "bad", f"{phase.title} is +{clock.span(phase.due_at, now)} over its time")
    elif phase and phase.due_at - now <= SOON:
        yield Need(incident, 3, "warn", f"{phase.title} is due in {clock.span(now, phase.due_at)}")
    if incident.commander is None:
        yield Need(incident, 1, "warn", f"nobody commands it, for {clock.span(incident.t0, now)}", "take_command")
    if ended is None:
        return
    answered, nodes = ended
    if nodes and not answered:
        says = "its node could not be reached" if nodes == 1 else f"not one of its {nodes} nodes could be reached"
        yield Need(incident, 0, "bad", says)
    elif answered < nodes and incident.phase == CAPTURE:
        yield Need(incident, 2, "warn", f"capture ended, {nodes - answered} of {nodes} nodes did not answer")


def _commands_that_wait(incidents: list[Incident], now: datetime) -> Iterator[Need]:
    """Commands that wait for a second person, one per incident. One query."""
    by_pk = {incident.pk: incident for incident in incidents}
    rows = Action.objects.filter(incident__in=incidents, state="waiting", expires_at__gte=now).select_related("node")
    for action in rows.order_by("expires_at"):
        left = clock.span(now, action.expires_at or now)
        says = f"“{shown(action.argv)}” on {action.node} waits for a second person, {left} left"
        yield Need(by_pk[action.incident_id], 0, "warn", says)


def _verdicts_that_wait(incidents: list[Incident]) -> Iterator[Need]:
    """The likely verdicts that nobody accepted or rejected. Two queries."""
    by_pk = {incident.pk: incident for incident in incidents}
    latest = Ranking.objects.filter(incident__in=incidents).order_by().values("incident").annotate(last=Max("pk"))
    likely = Ranking.objects.filter(pk__in=latest.values("last"), probability__gte=LIKELY).exclude(cause__in=UNNAMED)
    rows = likely.values("incident", "cause", "subject", "probability", says=KT("body__hypotheses__0__says"))
    said = list(Decision.objects.filter(incident__in=incidents, question=IS_THIS_IT).values("incident", "subject"))
    for row in rows:
        about = [one["subject"] for one in said if one["incident"] == row["incident"]]
        if not any(same(one, row) for one in about):
            share = share_said(row["probability"])
            says = f"a verdict waits for a word: {Truncator(row['says']).chars(LONGEST)} ({share})"
            yield Need(by_pk[row["incident"]], 2, "warn", says)


def word_at_hand(incident: Incident) -> str:
    """Why the present phase may be over, in words for the form; "" where only a person can say."""
    answered, nodes = _capture_ends([incident]).get(incident.pk, (0, 0))
    if incident.phase != CAPTURE or not nodes or answered < nodes:
        return ""
    return "its node answered" if nodes == 1 else f"all {nodes} nodes answered"


def _capture_ends(incidents: list[Incident]) -> dict[int, tuple[int, int]]:
    """(nodes that answered, nodes asked) of each incident's last capture that ended, by incident. One query."""
    ended = Event.objects.filter(incident__in=incidents, kind="suite_ended", payload__suite=CAPTURE).order_by("seq")
    return {event.incident_id: (event.payload["answered"], event.payload["nodes"]) for event in ended}
