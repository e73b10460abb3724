"""The numbers of a review: how long each thing took and what it cost, each with how it was computed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from incidents import clock
from incidents.models import Event, Reading
from incidents.models.diagnosis import same
from incidents.models.endings import verified
from incidents.queries.diagnosis import share_said
from incidents.queries.review.kept import Kept
from probes.diagnosis.gpus import GPU_PROBES

NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Fact:
    """One number with what it counts, how it came about in one sentence, and the events (seq) that it rests on."""

    value: str
    name: str
    how: str
    events: tuple[int, ...] = ()

    @property
    def known(self) -> bool:
        return self.value != NOT_KNOWN


def facts(kept: Kept) -> list[Fact]:
    """The five of the first row. Four queries."""
    again = verified(kept.incident)
    return [_opened(kept), _verdict(kept), _decision(kept), _again(kept, again), _cost(kept, again)]


def _seqs(*events: Event | None) -> tuple[int, ...]:
    return tuple(event.seq for event in events if event is not None)


def _opened(kept: Kept) -> Fact:
    incident, event = kept.incident, kept.first("declared")
    name = "from the first sign to the incident"
    if incident.impact_at is None:
        by = f"declared by {incident.declared_by}" if incident.declared_by else "opened by an alert"
        return Fact(NOT_KNOWN, name, f"{by}; nothing says since when training stood still", _seqs(event))
    told = "the recording says that it began" if incident.drill else "the alert says that it began, by its own clock"
    how = f"T0 minus {_time(incident.impact_at)}, when {told}"
    return Fact(clock.span(incident.impact_at, incident.t0), name, how, _seqs(event))


def _verdict(kept: Kept) -> Fact:
    name, accepted = "from T0 to the right verdict", kept.accepted
    if accepted is None:
        return Fact(NOT_KNOWN, name, "right is what people accepted, and nobody accepted a verdict")
    who = kept.first("decision", decision=accepted.pk)
    when = f"{accepted.by} accepted at {clock.t_plus(kept.incident.t0, accepted.at)}"
    led = next((one for one in kept.judged if same(one.about, accepted.subject)), None)
    if led is None:
        return Fact("never", name, f"what {when} did not lead in any ranking", _seqs(who))
    told = kept.first("verdict", ranking=led.pk) or kept.first("ranking", ranking=led.pk)
    how = f"when what {when} led for the first time ({share_said(led.probability)})"
    return Fact(clock.span(kept.incident.t0, led.at), name, how, _seqs(told, who))


def _decision(kept: Kept) -> Fact:
    name = "from T0 to the first decision"
    if not kept.decisions:
        return Fact(NOT_KNOWN, name, "no decision was recorded")
    first = kept.decisions[0]
    event = kept.first("decision", decision=first.pk)
    how = f"{first.by}: {first.question} {first.chosen}"
    return Fact(clock.span(kept.incident.t0, first.at), name, how, _seqs(event))


def _again(kept: Kept, again: Event | None) -> Fact:
    name = "from T0 to training again"
    if again is None:
        return Fact(NOT_KNOWN, name, "no reading after the last action says that training advances")
    how = f"first reading after the last action that says so: {again.payload.get('says', 'training advances')}"
    return Fact(clock.span(kept.incident.t0, again.at), name, how, _seqs(again))


def _cost(kept: Kept, again: Event | None) -> Fact:
    incident, (gpus, silent) = kept.incident, _gpus(kept)
    name, declared = "GPU time lost", kept.first("declared")
    if not gpus:
        return Fact(NOT_KNOWN, name, "no node told how many GPUs it has", ())
    of = f"{gpus} GPU{'' if gpus == 1 else 's'}"
    if again is None:
        return Fact(NOT_KNOWN, name, f"{of}, but not how long they stood idle: no reading ends it", _seqs(declared))
    since = incident.impact_at or incident.t0
    idle = max(0.0, (again.at - since).total_seconds())
    began = "impact" if incident.impact_at else "T0: nothing says when it began before that"
    how = f"{of} × {clock.span(since, again.at)} idle, from {began}, to training again; redone steps are not in it"
    if silent:
        how = f"{how}. At least: {silent} of {len(kept.nodes)} nodes did not tell their GPUs"
    value = f"{gpus * idle / 3600:.1f} GPU·h"
    return Fact(f"≥ {value}" if silent else value, name, how, _seqs(declared, again))


def _gpus(kept: Kept) -> tuple[int, int]:
    """(GPUs of the incident's nodes, nodes of which that is not known)."""
    mine = Reading.objects.filter(run__incident=kept.incident, probe__in=GPU_PROBES, node__name__in=kept.nodes).best()
    told = list(mine.values_list("outcome", "facts"))
    known = list(_counts(told))
    return sum(known), len(kept.nodes) - len(known)


def _counts(told: list[tuple[str, Any]]) -> Iterator[int]:
    for outcome, said in told:
        if outcome == "ok" and isinstance(said, dict):
            counts = [len(said.get("gpus") or ()) or None, said.get("attached"), said.get("on_pci")]
            told_here = [count for count in counts if count is not None]
            if told_here:  # else its driver did not answer: that is not a node without GPUs
                yield max(told_here)
        elif outcome == "absent":  # the node answered: there is none
            yield 0


def _time(at: datetime) -> str:
    return at.strftime("%H:%M:%S UTC")
