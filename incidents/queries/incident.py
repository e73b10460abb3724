"""Reads for the incident page: phases, the matrix of nodes and probes, what stands out, the evidence of one reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max
from django.utils import timezone

from incidents import clock
from incidents.models import Fleet, Incident, Node, Phase, Reading, Shard, SuiteRun
from incidents.models.runs import FILES
from probes import suites
from probes.core import SEVERITIES

UNKNOWN = ("failed", "timeout", "hung", "denied", "unreachable", "skipped")
WORDS = {
    "ok": "healthy",
    "warn": "suspect",
    "bad": "implicated",
    "unknown": "no answer",
    "absent": "not there",
    "unasked": "not asked",
    "": "asked",
}


@dataclass(frozen=True, slots=True)
class PhaseView:
    """One phase as the strip shows it. `state` is done, now or next; due times are absolute."""

    name: str
    title: str
    state: str
    due_at: datetime
    due: str  # T+3:00
    ended: str  # T+2:12, or ""
    late: bool
    left: str  # "4:27", or "+1:12" when it is over, at the time of rendering; the page counts on from there
    word: str  # what `left` is: "left" or "over"
    began_at: datetime | None
    share: int  # percent of the time between its beginning and its due time that is used, 0 to 100


def phases(incident: Incident, now: datetime | None = None) -> list[PhaseView]:
    """The three phases, in order."""
    now = now or timezone.now()
    return [_phase(incident, phase, now) for phase in sorted(incident.phases.all(), key=lambda phase: phase.due_at)]


def _phase(incident: Incident, phase: Phase, now: datetime) -> PhaseView:
    until = phase.ended_at or incident.closed_at or now
    late = until > phase.due_at  # overdue counts up and blocks nothing
    span = clock.span(phase.due_at, until)
    return PhaseView(
        name=phase.name,
        title=clock.TITLES[phase.name],
        state="done" if phase.ended_at else "now" if phase.started_at else "next",
        due_at=phase.due_at,
        due=clock.t_plus(incident.t0, phase.due_at),
        ended=clock.t_plus(incident.t0, phase.ended_at) if phase.ended_at else "",
        late=late,
        left=f"+{span}" if late else span,
        word="over" if late else "left",
        began_at=phase.started_at,
        share=_share(phase.started_at, phase.due_at, until) if phase.started_at else 0,
    )


def _share(began_at: datetime, due_at: datetime, until: datetime) -> int:
    if due_at <= began_at:  # it began when its time was over already
        return 100
    return min(100, max(0, round(100 * (until - began_at) / (due_at - began_at))))


def current_phase(incident: Incident, now: datetime | None = None) -> PhaseView | None:
    """The phase that runs, or None."""
    return next((phase for phase in phases(incident, now) if phase.state == "now"), None)


@dataclass(frozen=True, slots=True)
class Cell:
    """One node's latest reading of one probe. `level` is a key of WORDS; `reading` is None while it is asked."""

    node: str
    probe: str
    level: str
    says: str
    reading: int | None
    kind: str = ""  # what nodes have in common whose words differ: the code of a finding, or why there is no answer


@dataclass(frozen=True, slots=True)
class Matrix:
    """Nodes by probes, with the counts that stand above it. A probe may have been asked of some of the nodes only."""

    nodes: list[str]
    rows: list[tuple[str, list[Cell]]]
    tally: Counter[str]
    answered: int
    asked: int

    @property
    def columns(self) -> list[tuple[str, list[Cell]]]:
        """The same turned: (node, its cells). For the table of words."""
        return [(node, [cells[i] for _, cells in self.rows]) for i, node in enumerate(self.nodes)]


def matrix(incident: Incident) -> Matrix:
    """The latest reading of every node and probe that was asked in this incident. Five queries at any size."""
    nodes = list(incident.nodes.all())
    runs = list(incident.runs.exclude(suite=FILES).order_by("id"))
    probes = list(dict.fromkeys(name for run in runs for name in suites.suite_or_probe(run.suite).probes))
    latest = Reading.objects.filter(run__in=runs).values("node_id", "probe").annotate(last=Max("id")).values("last")
    readings = {
        (reading.node_id, reading.probe): reading
        for reading in Reading.objects.filter(pk__in=latest).defer("out", "facts", "err")
    }
    asked_of = _asked_of(runs)
    rows = [
        (
            probe,
            [_cell(node, probe, readings.get((node.pk, probe)), node.pk in asked_of.get(probe, ())) for node in nodes],
        )
        for probe in probes
    ]
    tally = Counter(cell.level for _, cells in rows for cell in cells)
    asked = len(nodes) * len(probes) - tally["unasked"]
    return Matrix([node.name for node in nodes], rows, tally, asked - tally[""] - tally["unknown"], asked)


def _asked_of(runs: Sequence[SuiteRun]) -> dict[str, set[int]]:
    """probe -> the nodes that it was asked of."""
    probes = {run.pk: suites.suite_or_probe(run.suite).probes for run in runs}
    found: dict[str, set[int]] = {}
    for run, node in Shard.nodes.through.objects.filter(shard__run__in=probes).values_list("shard__run_id", "node_id"):
        for probe in probes[run]:
            found.setdefault(probe, set()).add(node)
    return found


def _cell(node: Node, probe: str, reading: Reading | None, asked: bool) -> Cell:
    if reading is None and not asked:
        return Cell(node.name, probe, "unasked", "not asked of this node", None)
    if reading is None:
        return Cell(node.name, probe, "", "asked, no answer yet", None)
    if reading.outcome in UNKNOWN:
        kind = f"{reading.outcome} {reading.reason or probe}"
        return Cell(node.name, probe, "unknown", f"{reading.outcome}: {reading.why}"[:300], reading.pk, kind)
    if reading.outcome == "absent":
        return Cell(node.name, probe, "absent", reading.why[:300] or "not there", reading.pk)
    worst = max(reading.findings, key=lambda f: SEVERITIES.index(f["severity"]), default=None)
    if worst is None or worst["severity"] == "info":
        return Cell(node.name, probe, "ok", "healthy", reading.pk)
    return Cell(node.name, probe, worst["severity"], worst["says"][:300], reading.pk, worst["code"])


@dataclass(frozen=True, slots=True)
class Standout:
    """Something the readings say, with the nodes it is true of. `alike`: other nodes say it in other words."""

    level: str
    says: str
    nodes: list[str]
    reading: int
    alike: bool = False


def standouts(found: Matrix) -> list[Standout]:
    """What is not healthy, worst first, then what is true of few nodes. Nodes that say the same kind of thing are one
    line, in the words of the first of them."""
    same: dict[tuple[str, str], list[Cell]] = {}
    for _, cells in found.rows:
        for cell in cells:
            if cell.level in ("bad", "warn", "unknown"):
                same.setdefault((cell.level, cell.kind), []).append(cell)
    order = ("bad", "warn", "unknown")
    ranked = sorted(same.items(), key=lambda item: (order.index(item[0][0]), len(item[1])))
    return [
        Standout(
            level,
            cells[0].says,
            list(dict.fromkeys(cell.node for cell in cells)),
            cells[0].reading or 0,
            len({cell.says for cell in cells}) > 1,
        )
        for (level, _), cells in ranked
    ]


def scope_wanted(incident: Incident) -> dict[str, Any] | None:
    """What the look at the fleet saw when it did not find the job; None before it has ended."""
    event = incident.events.filter(kind="scope_wanted").last()
    return dict(event.payload) if event is not None else None


def reading(incident: Incident, pk: int) -> Reading | None:
    """One reading of this incident with all that was kept of it, or None."""
    found = Reading.objects.select_related("node", "run").filter(pk=pk, run__incident=incident)
    return found.first()


def open_incidents(fleets: Sequence[Fleet]) -> list[Incident]:
    """Incidents of these fleets that are not closed, the worst first."""
    found = Incident.objects.filter(fleet__in=fleets, closed_at=None).select_related("commander", "job", "fleet")
    found = found.prefetch_related("phases")
    return list(found.order_by("severity", "t0"))


def overlapping(incident: Incident) -> list[tuple[Incident, int]]:
    """Other open incidents of the fleet on nodes of this one, with how many; the three with the most. Not drills."""
    others = Incident.objects.real().filter(fleet=incident.fleet, closed_at=None).exclude(pk=incident.pk)
    shared = others.filter(nodes__in=incident.nodes.all()).annotate(shared=Count("nodes")).order_by("-shared", "-pk")
    counts = dict(shared.values_list("pk", "shared")[:3])
    found = Incident.objects.in_bulk(list(counts))
    return [(found[pk], count) for pk, count in counts.items()]


def closed_incidents(fleets: Sequence[Fleet], limit: int = 50) -> list[Incident]:
    """The incidents of these fleets that were closed last."""
    found = Incident.objects.filter(fleet__in=fleets).exclude(closed_at=None).select_related("commander", "fleet")
    return list(found.order_by("-closed_at")[:limit])
