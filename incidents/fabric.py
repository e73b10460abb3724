"""What the readings of an incident, or of a fleet, say of its fabric, and what is expected of it. Only reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Max

from incidents.models import ExpectedTopology, Fleet, Incident, Reading
from incidents.models.runs import ReadingQuerySet
from probes.catalog.network.ib_fabric_facts import Fabric
from probes.topology import Answer, FormError, Topology, View, compare
from probes.topology.sources import fabric_of, ports_of

PORTS, SWEEP = "ib.ports", "ib.fabric"


@dataclass(frozen=True, slots=True)
class FabricSeen:
    """The latest answers. `readings`: node -> the reading its ports are of. `newest`: the last reading of all this.

    `fabric` is the last sweep that answered; `failed` a later one that did not, as "gpu-001: denied, ...".
    """

    nodes: tuple[str, ...]
    answers: dict[str, Answer] = field(default_factory=dict)
    readings: dict[str, int] = field(default_factory=dict)
    fabric: Fabric | None = None
    fabric_node: str = ""
    fabric_at: datetime | None = None
    fabric_reading: int = 0
    failed: str = ""
    failed_reading: int = 0
    newest: int = 0

    def view(self, expected: Topology | None) -> View:
        """States of the ports of these nodes."""
        at = self.fabric_at.timestamp() if self.fabric_at else 0.0
        return compare(self.nodes, expected, self.answers, self.fabric, at)


def seen_in(incident: Incident) -> FabricSeen:
    """What the nodes of an incident said in it. A look that failed counts: what is there now is not known."""
    nodes = list(incident.nodes.values_list("name", flat=True))
    return _seen(nodes, Reading.objects.filter(run__incident=incident))


def seen_of(fleet: Fleet) -> FabricSeen:
    """What the nodes of a fleet said last, in whatever they were asked."""
    nodes = list(fleet.nodes.values_list("name", flat=True))
    return _seen(nodes, Reading.objects.filter(run__fleet=fleet))


def expected_in_files(body: object) -> Topology | None:
    """What an evidence bundle among the files of an incident expects, None where it cannot be read."""
    try:
        return Topology.from_body(body)
    except FormError:
        return None


def _seen(nodes: Sequence[str], readings: ReadingQuerySet) -> FabricSeen:
    readings = readings.filter(node__isnull=False)  # a file is no node of the fleet
    ports = readings.filter(probe=PORTS).order_by()
    latest = ports.values("node_id").annotate(last=Max("id")).values("last")
    rows = Reading.objects.filter(pk__in=latest).select_related("node").defer("out", "err", "findings")
    wanted = set(nodes)
    mine = [row for row in rows if row.node_name in wanted]
    sweeps = readings.filter(probe=SWEEP).select_related("node").defer("out", "err").order_by("-pk")
    sweep, good = sweeps.first(), sweeps.filter(outcome="ok").first()
    bad = sweep if sweep is not None and sweep.outcome != "ok" else None
    return FabricSeen(
        nodes=tuple(nodes),
        answers={row.node_name: _answer(row) for row in mine},
        readings={row.node_name: row.pk for row in mine},
        fabric=fabric_of(good.facts) if good else None,
        fabric_node=good.node_name if good else "",
        fabric_at=good.recorded_at if good else None,
        fabric_reading=good.pk if good else 0,
        failed=f"{bad.node_name}: {bad.outcome}, {bad.why}" if bad else "",
        failed_reading=bad.pk if bad else 0,
        newest=max([row.pk for row in mine] + [one.pk for one in (sweep, good) if one], default=0),
    )


def _answer(row: Reading) -> Answer:
    facts = ports_of(row.facts) if row.outcome == "ok" else None
    if row.outcome == "ok" and facts is None:
        return Answer("failed", None, "stored by another version of Golden15", row.recorded_at.timestamp())
    return Answer(row.outcome, facts, row.why[:200], row.recorded_at.timestamp())


def stored_for(fleet: Fleet) -> ExpectedTopology | None:
    """The expected topology that counts: the latest."""
    return fleet.topologies.select_related("by").first()


def expected_of(row: ExpectedTopology | None) -> tuple[Topology | None, str]:
    """It, typed; or None and, if there is one that cannot be read, why."""
    if row is None:
        return None, ""
    try:
        return Topology.from_body(row.body), ""
    except FormError as error:
        return None, str(error)
