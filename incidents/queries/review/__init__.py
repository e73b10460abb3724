"""The review of an incident: one model, from which the page and the Markdown are made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import Length

from incidents import clock
from incidents.lanes import Span
from incidents.models import Incident, Reading
from incidents.models.diagnosis import same
from incidents.queries.lines import Line, line
from incidents.queries.review.decisions import DecisionView, decisions
from incidents.queries.review.facts import Fact, facts
from incidents.queries.review.kept import Kept, kept
from incidents.queries.review.lanes import spans
from incidents.queries.timeline import HIDDEN, broken_links
from probes import nodeset

__all__ = ["Cause", "DecisionView", "Fact", "Record", "Review", "review"]

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # SHA-256 of nothing: no raw output
MOST_BROKEN = 5  # sentences about a broken chain that are shown


@dataclass(frozen=True, slots=True)
class Because:
    """One reason. `reading` is what it links to, None where that is not kept under this name any more."""

    says: str
    name: str  # node/probe
    reading: int | None


@dataclass(frozen=True, slots=True)
class Cause:
    """What people accepted as the root cause, with the reasons that the evidence gave then."""

    says: str
    who: str
    at: str
    why: str
    because: list[Because]
    against: list[Because]
    consequences: list[str]


@dataclass(frozen=True, slots=True)
class Record:
    """What is kept. `broken`: what is wrong with the chain of events; nothing when it is whole."""

    events: int
    head: str
    broken: list[str]
    readings: int
    outputs: int
    stored: int  # bytes of the outputs as they are kept, compressed


@dataclass(frozen=True, slots=True)
class Review:
    """All of it. `as_of`: when it was closed, else the last event; `ended` is None while it is open."""

    incident: Incident
    name: str
    nodes: str
    count: int
    as_of: datetime
    lasted: str
    ended: Line | None
    why: str
    facts: list[Fact]
    spans: list[Span]
    decisions: list[DecisionView]
    cause: Cause | None
    accepted: dict[str, Any] | None  # cause and subject of the verdict that people took
    record: Record
    story: list[Line]

    @property
    def open(self) -> bool:
        return self.incident.closed_at is None


def review(incident: Incident) -> Review:
    """The review as the record has it now. The number of queries is the same for every incident."""
    found = kept(incident)
    story = [line(incident, event) for event in found.events if event.kind not in HIDDEN]
    closing = found.first("resolved")
    return Review(
        incident=incident,
        name=f"INC-{incident.pk}",
        nodes=nodeset.fold(found.nodes) if found.nodes else "",
        count=len(found.nodes),
        as_of=found.as_of,
        lasted=clock.t_plus(incident.t0, found.as_of),
        ended=line(incident, closing) if closing is not None else None,
        why=str(closing.payload.get("why", "")) if closing is not None else "",
        facts=facts(found),
        spans=spans(found),
        decisions=decisions(found),
        cause=_cause(found),
        accepted=found.accepted.subject if found.accepted is not None else None,
        record=_record(incident),
        story=story,
    )


def _cause(found: Kept) -> Cause | None:
    accepted = found.accepted
    if accepted is None:
        return None
    body = accepted.ranking.body if accepted.ranking is not None else {"hypotheses": []}
    said = next((one for one in body["hypotheses"] if same(one, accepted.subject)), None) or {}
    names = [reason["reading"] for key in ("because", "against") for reason in said.get(key, ())]
    rows = accepted.ranking.rests_on(names) if accepted.ranking is not None and names else {}

    def reasons(key: str) -> list[Because]:
        return [
            Because(one["says"], one["reading"], rows[one["reading"]].pk if one["reading"] in rows else None)
            for one in said.get(key, ())
        ]

    return Cause(
        says=accepted.subject["says"],
        who=accepted.by.get_username(),
        at=clock.t_plus(found.incident.t0, accepted.at),
        why=accepted.why,
        because=reasons("because"),
        against=reasons("against"),
        consequences=[one["says"] for one in said.get("consequences", ())],
    )


def _record(incident: Incident) -> Record:
    broken = list(broken_links(incident))
    printed = ~Q(sha256=EMPTY)
    told = Reading.objects.filter(run__incident=incident).aggregate(
        readings=Count("pk"), outputs=Count("pk", filter=printed), stored=Sum(Length("out"), filter=printed)
    )
    more = [f"and {len(broken) - MOST_BROKEN} more"] if len(broken) > MOST_BROKEN else []
    shown = broken[:MOST_BROKEN] + more
    return Record(incident.last_seq, incident.head, shown, told["readings"], told["outputs"], told["stored"] or 0)
