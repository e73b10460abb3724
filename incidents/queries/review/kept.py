"""Everything that a review is made of, read once. The number of queries does not depend on how much there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models.fields.json import KT

from incidents.models import Action, Decision, Event, Incident, Phase, Reading, SuiteRun
from incidents.models.diagnosis import ACCEPT, IS_THIS_IT, same

BATCHES = "readings"  # the kind of event that is no happening


@dataclass(frozen=True, slots=True)
class Judged:
    """One ranking by its first hypothesis."""

    pk: int
    at: datetime
    cause: str
    subject: dict[str, Any]
    says: str
    probability: float

    @property
    def about(self) -> dict[str, Any]:
        """As incidents.models.diagnosis.same takes it."""
        return {"cause": self.cause, "subject": self.subject}


@dataclass(frozen=True, slots=True)
class Ref:
    """A reading that a decision rests on. `sha256` is what was recorded with the decision, `there` what is kept now."""

    pk: int
    name: str  # node/probe
    sha256: str
    there: str


@dataclass(frozen=True, slots=True)
class Kept:
    """`as_of` is when it was closed, else the moment of the last event: never the present, so that the review of one
    record is always the same."""

    incident: Incident
    as_of: datetime
    nodes: list[str]
    events: list[Event]
    phases: list[Phase]
    runs: list[SuiteRun]
    judged: list[Judged]
    decisions: list[Decision]
    actions: list[Action]
    readings: dict[int, Ref] = field(default_factory=dict)

    def first(self, kind: str, **payload: object) -> Event | None:
        """The first event of a kind with these values."""
        return next(self.of(kind, **payload), None)

    def of(self, kind: str, **payload: object) -> Iterator[Event]:
        """Events of a kind with these values, in order."""
        wanted = payload.items()
        return (one for one in self.events if one.kind == kind and all(one.payload.get(k) == v for k, v in wanted))

    @property
    def accepted(self) -> Decision | None:
        """The verdict that people accepted last and did not take back."""
        said = [one for one in self.decisions if one.question == IS_THIS_IT]
        standing = [one for one in said if not any(later.pk > one.pk and about_same(one, later) for later in said)]
        return next((one for one in reversed(standing) if one.chosen == ACCEPT), None)


def about_same(one: Decision, other: Decision) -> bool:
    """Whether two decisions about verdicts are about the same hypothesis."""
    return bool(one.subject and other.subject and same(one.subject, other.subject))


def kept(incident: Incident) -> Kept:
    """Read it. Nine queries."""
    events = list(incident.events.exclude(kind=BATCHES).select_related("actor").order_by("seq"))
    last = events[-1].at if events else incident.t0
    decisions = list(incident.decisions.select_related("by", "ranking__incident").order_by("pk"))
    asked = incident.actions.select_related("node", "asked_by", "approved_by")
    return Kept(
        incident=incident,
        as_of=max(incident.t0, incident.closed_at or last),
        nodes=list(incident.nodes.values_list("name", flat=True)),
        events=events,
        phases=sorted(incident.phases.all(), key=lambda phase: phase.due_at),
        runs=list(incident.runs.order_by("pk")),
        judged=_judged(incident),
        decisions=decisions,
        actions=list(asked.order_by("pk")),
        readings=_refs(decisions),
    )


def _judged(incident: Incident) -> list[Judged]:
    rows = incident.rankings.order_by("pk").annotate(says=KT("body__hypotheses__0__says"))
    return [Judged(**row) for row in rows.values("pk", "at", "cause", "subject", "says", "probability")]


def _refs(decisions: list[Decision]) -> dict[int, Ref]:
    """Those of all decisions, by number. A hash that two decisions recorded differently is that of the later one."""
    said = {int(pk): str(sha) for one in decisions for pk, sha in one.readings}
    rows = Reading.objects.filter(pk__in=said).select_related("node").defer("out", "err", "facts", "findings")
    return {row.pk: Ref(row.pk, row.ref, said[row.pk], row.sha256) for row in rows}
