"""Reads of drills: what there is to train, and which part of a recording answers a run."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db.models import Max

from incidents import runbook
from incidents.models import Event, Incident, SuiteRun
from probes import drills
from probes.core import Capture
from probes.reference import rows
from probes.transport import replay

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DrillView:
    """A drill that can be started. `last`: the incident that it was last started as."""

    drill: drills.Drill
    last: Incident | None

    @property
    def size(self) -> str:
        """`64 nodes`"""
        count = len(self.drill.nodes)
        return f"{count} node{'' if count == 1 else 's'}"


def available() -> list[DrillView]:
    """The drills that Golden15 brings, the smallest first. One that is broken is left out, and said in the log."""
    found = []
    for name in drills.names():
        try:
            found.append(drills.named(name))
        except (drills.DrillError, OSError) as error:
            log.warning("a drill is left out: %s", error)
    found.sort(key=lambda drill: (len(drill.nodes), drill.name))
    latest = Incident.objects.exclude(drill="").order_by().values("drill").annotate(last=Max("pk")).values("last")
    last = {one.drill: one for one in Incident.objects.filter(pk__in=latest)}
    return [DrillView(drill, last.get(drill.name)) for drill in found]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The part of a recording that answers one run: the how-manieth of its suite within the stage."""

    folder: Path
    stage: str
    look: int


def recorded(run_id: int) -> Recorded | None:
    """What answers this run; None where its incident has no recording. A run that was started before a stage began is
    answered from the part before."""
    run = SuiteRun.objects.select_related("incident").get(pk=run_id)
    incident = run.incident
    if incident is None or not incident.recording:
        return None
    begun = _stage_of(incident, run)
    since = begun.payload["run"] if begun is not None else 0
    look = incident.runs.filter(suite=run.suite, pk__gt=since, pk__lte=run.pk).count()
    return Recorded(Path(incident.recording), begun.payload["stage"] if begun is not None else "", look)


def _stage_of(incident: Incident, run: SuiteRun) -> Event | None:
    """The beginning of the stage that this run is in."""
    begun = incident.events.filter(kind="drill_stage").order_by("-seq")
    return next((event for event in begun if event.payload["run"] < run.pk), None)


def answers_of(found: Recorded, node: str) -> dict[str, Capture]:
    """What the recording answers for a node, by probe. Raises BundleError and OSError."""
    return replay.answers(found.folder, node, found.stage, found.look)


@functools.lru_cache(16)
def _described(folder: str) -> drills.Drill | None:
    """A recording as it was when the first page asked; None where it cannot be read."""
    try:
        return drills.load(Path(folder))
    except (drills.DrillError, OSError):
        return None


def off_the_rails(incident: Incident) -> str:
    """The choice after which the recording of a drill goes on, "" while it does or where there is none."""
    drill = _described(incident.recording) if incident.recording and not incident.stage else None
    labels = [_label(stage.after) for stage in drill.stages] if drill is not None else []
    return " or ".join(f"“{label}”" for label in labels if label)


def _label(after: str) -> str:
    """The answer of a runbook that a stage comes after: its own, or the one that runs a remedy."""
    book, _, option = after.rpartition(".")
    for one in runbook.load().values():
        for step in one.steps.values():
            for answer in step.options:
                if (one.id, answer.id) == (book, option) or (not book and answer.remedy == after):
                    return answer.label
    return ""


@dataclass(frozen=True, slots=True)
class Solution:
    """What was broken in a drill, for after it. `right`: what people accepted is it; None: nobody accepted anything."""

    says: str
    right: bool | None
    decoys: tuple[drills.Decoy, ...]


def solution(incident: Incident, accepted: Mapping[str, Any] | None) -> Solution | None:
    """The truth of a drill that is closed. `accepted`: cause and subject of the verdict that people took."""
    drill = _described(incident.recording) if incident.recording and incident.closed_at is not None else None
    if drill is None or drill.truth is None:
        return None
    title = next((row["title"] for row in rows("causes") if row["id"] == drill.truth.cause), drill.truth.cause)
    where = ", ".join(f"{key} {value}" for key, value in drill.truth.subject.items())
    right = None
    if accepted is not None:
        named = drill.truth.subject.items() <= accepted["subject"].items()
        right = accepted["cause"] == drill.truth.cause and named
    return Solution(f"{title}: {where}", right, drill.decoys)
