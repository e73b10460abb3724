"""Reads for the incident page: phases, the matrix of nodes and probes, what stands out, the evidence of one reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Max
from django.utils import timezone

from incidents import clock
from incidents.models import Fleet, Incident, Node, Reading
from probes import catalog, suites
from probes.core import SEVERITIES

UNKNOWN = ("failed", "timeout", "hung", "denied", "unreachable", "skipped")
WORDS = {
    "ok": "healthy",
    "warn": "suspect",
    "bad": "implicated",
    "unknown": "no answer",
    "absent": "not there",
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
    left: str  # "4:27 left" or "+1:12 over" when rendered; the page counts on from there
    share: int  # percent of the phase's time that is used, 0 to 100


def phases(incident: Incident, now: datetime | None = None) -> list[PhaseView]:
    """The three phases, in order."""
    now = now or timezone.now()
    begin = incident.t0
    found = []
    for phase in incident.phases.order_by("due_at"):
        state = "done" if phase.ended_at else "now" if phase.started_at else "next"
        until = phase.ended_at or now
        length = max((phase.due_at - begin).total_seconds(), 1)
        share = min(100, max(0, round(100 * (until - (phase.started_at or begin)).total_seconds() / length)))
        found.append(
            PhaseView(
                name=phase.name,
                title=clock.TITLES[phase.name],
                state=state,
                due_at=phase.due_at,
                due=clock.t_plus(incident.t0, phase.due_at),
                ended=clock.t_plus(incident.t0, phase.ended_at) if phase.ended_at else "",
                late=until > phase.due_at,
                left=left(phase.due_at, now),
                share=0 if state == "next" else share,
            )
        )
        begin = phase.due_at
    return found


def left(due_at: datetime, now: datetime) -> str:
    """`4:27 left`, or `+1:12 over`: overdue counts up and blocks nothing."""
    span = clock.span(due_at, now)
    return f"+{span} over" if now > due_at else f"{span} left"


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


@dataclass(frozen=True, slots=True)
class Matrix:
    """Nodes by probes, with the counts that stand above it."""

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
    """The latest reading of every node and probe that was asked in this incident. Four queries at any size."""
    nodes = list(incident.nodes.all())
    runs = list(incident.runs.order_by("id"))
    probes = list(dict.fromkeys(name for run in runs for name in suites.suite_or_probe(run.suite).probes))
    latest = Reading.objects.filter(run__in=runs).values("node_id", "probe").annotate(last=Max("id")).values("last")
    readings = {
        (reading.node_id, reading.probe): reading
        for reading in Reading.objects.filter(pk__in=latest).defer("out", "facts", "err")
    }
    rows = [(probe, [_cell(node, probe, readings.get((node.pk, probe))) for node in nodes]) for probe in probes]
    tally = Counter(cell.level for _, cells in rows for cell in cells)
    asked = len(nodes) * len(probes)
    return Matrix([node.name for node in nodes], rows, tally, asked - tally[""] - tally["unknown"], asked)


def _cell(node: Node, probe: str, reading: Reading | None) -> Cell:
    if reading is None:
        return Cell(node.name, probe, "", "asked, no answer yet", None)
    if reading.outcome in UNKNOWN:
        return Cell(node.name, probe, "unknown", f"{reading.outcome}: {reading.why}"[:300], reading.pk)
    if reading.outcome == "absent":
        return Cell(node.name, probe, "absent", reading.why[:300] or "not there", reading.pk)
    worst = max(reading.findings, key=lambda f: SEVERITIES.index(f["severity"]), default=None)
    if worst is None or worst["severity"] == "info":
        return Cell(node.name, probe, "ok", "healthy", reading.pk)
    return Cell(node.name, probe, worst["severity"], worst["says"][:300], reading.pk)


@dataclass(frozen=True, slots=True)
class Standout:
    """Something the readings say, with the nodes it is true of."""

    level: str
    says: str
    nodes: list[str]
    reading: int


def standouts(found: Matrix, limit: int = 12) -> list[Standout]:
    """What is not healthy, worst first; nodes that say the same are one line."""
    same: dict[tuple[str, str], list[Cell]] = {}
    for _, cells in found.rows:
        for cell in cells:
            if cell.level in ("bad", "warn", "unknown"):
                same.setdefault((cell.level, cell.says), []).append(cell)
    order = ("bad", "warn", "unknown")
    ranked = sorted(same.items(), key=lambda item: (order.index(item[0][0]), len(item[1])))
    return [
        Standout(level, says, list(dict.fromkeys(c.node for c in cells)), cells[0].reading or 0)
        for (level, says), cells in ranked[:limit]
    ]


def reading(incident: Incident, pk: int) -> Reading | None:
    """One reading of this incident with all that was kept of it, or None."""
    found = Reading.objects.select_related("node", "run").filter(pk=pk, run__incident=incident)
    return found.first()


def by_hand(probe: str) -> str:
    """What a person types on the node to see the same; "" for a probe that is not in the catalogue any more."""
    known = catalog.load().get(probe)
    return known.by_hand if known else ""


def open_incidents(fleets: Sequence[Fleet]) -> list[Incident]:
    """Incidents of these fleets that are not closed, the worst first."""
    found = Incident.objects.filter(fleet__in=fleets, closed_at=None).select_related("commander", "job", "fleet")
    return list(found.order_by("severity", "t0"))


def closed_incidents(fleets: Sequence[Fleet], limit: int = 50) -> list[Incident]:
    """The incidents of these fleets that were closed last."""
    found = Incident.objects.filter(fleet__in=fleets).exclude(closed_at=None).select_related("commander", "fleet")
    return list(found.order_by("-closed_at")[:limit])


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person."""

    incident: Incident
    level: str
    says: str


def needs(rows: list[tuple[Incident, PhaseView | None]], now: datetime | None = None) -> list[Need]:
    """What waits for a person, most pressing first: overdue, nobody commands, due within a minute.

    `rows` are open incidents, each with the phase that runs.
    """
    now = now or timezone.now()
    found = []
    for incident, phase in rows:
        if phase and now > phase.due_at:
            over = clock.span(phase.due_at, now)
            found.append((0, Need(incident, "bad", f"{phase.title} is +{over} over its time")))
        elif phase and phase.due_at - now <= timedelta(seconds=60):
            found.append((2, Need(incident, "warn", f"{phase.title} is due in {clock.span(now, phase.due_at)}")))
        if incident.commander is None:
            found.append((1, Need(incident, "warn", f"nobody commands it, for {clock.span(incident.t0, now)}")))
    return [need for _, need in sorted(found, key=lambda pair: (pair[0], pair[1].incident.severity))]
