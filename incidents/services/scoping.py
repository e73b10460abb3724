"""From the name of a job to the nodes that it runs on, where nobody recorded them: a look at the whole fleet.

The ranks themselves tell, by the environment that they were started with, which job they belong to. Where that does not
answer, a person is asked, with what was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.db import transaction

from incidents.models import Incident, Job, Node, Reading, User
from incidents.services import response
from incidents.services.fleet import Refused
from incidents.services.runs import SCAN, start_suite
from incidents.services.timeline import tell
from probes import nodeset

MOST_TOLD = 12  # jobs that are offered to choose from


@dataclass(slots=True)
class Running:
    """A job that was seen: by which names, on which nodes, with how many ranks."""

    names: set[str] = field(default_factory=set)
    nodes: dict[int, str] = field(default_factory=dict)
    ranks: int = 0

    @property
    def called(self) -> str:
        return min(self.names, default="a job without a name")


@transaction.atomic
def settle_scan(incident_id: int) -> bool:
    """When the look at the fleet has ended: take the job's nodes and capture them, or ask. Whether it did either."""
    incident = Incident.objects.select_for_update(of=("self",)).select_related("fleet").get(pk=incident_id)
    run = incident.runs.filter(suite=SCAN, finished_at__isnull=False).first()
    waits = incident.closed_at is None and incident.looking_for and not incident.nodes.exists()
    if run is None or not waits or incident.events.filter(kind="scope_wanted").exists():
        return False
    seen = _running(Reading.objects.filter(run=run, probe="rank.map", outcome="ok").select_related("node"))
    named = [job for job in seen if incident.looking_for in job.names]
    answered = run.visits.filter(reason="").count()
    whole = answered == run.node_count
    only = seen if len(seen) == 1 and whole else []
    chosen = named or only
    if chosen:
        nodes = list(Node.objects.filter(pk__in=chosen[0].nodes))
        how = "named" if named else "only"
        _take(incident, nodes, None, whole and how == "named", how=how, called=chosen[0].called, ranks=chosen[0].ranks)
        return True
    jobs = [
        {"name": job.called, "nodes": nodeset.fold(job.nodes.values()), "ranks": job.ranks}
        for job in sorted(seen, key=lambda job: -job.ranks)[:MOST_TOLD]
    ]
    tell(incident, "scope_wanted", None, job=incident.looking_for, jobs=jobs, answered=answered, nodes=run.node_count)
    return True


def _running(readings: Iterable[Reading]) -> list[Running]:
    """Every job that the nodes' ranks name."""
    found: dict[str, Running] = {}
    for reading in readings:
        for rank in (reading.facts or {}).get("ranks", ()):
            # torchrun calls a job "none" that was given no id.
            names = {str(rank[key]) for key in ("run_id", "slurm_job") if rank.get(key) not in (None, "", "none")}
            key = min(names, default=str(rank.get("master") or reading.node_name))
            job = found.setdefault(key, Running())
            job.names |= names
            if reading.node_id is not None:
                job.nodes[reading.node_id] = reading.node_name
            job.ranks += 1
    return list(found.values())


@transaction.atomic
def set_scope(incident: Incident, what: str, by: User, add: bool) -> Incident:
    """The nodes that a person gives for an incident that has none yet. Raises Refused, also when it has some by now."""
    incident = Incident.objects.select_for_update(of=("self",)).select_related("fleet").get(pk=incident.pk)
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    if incident.nodes.exists():
        raise Refused(f"INC-{incident.pk} has its nodes by now.")
    _take(incident, response.nodes_said(incident.fleet, what, by, add), by, True, how="said")
    return incident


def _take(incident: Incident, nodes: Sequence[Node], by: User | None, sure: bool, **said: object) -> None:
    """`sure`: these are the job's nodes, all of them: so they are recorded."""
    incident.nodes.set(Node.objects.select_for_update().filter(pk__in=[node.pk for node in nodes]).order_by("pk"))
    job = incident.job
    if incident.looking_for and sure:
        job, _ = Job.objects.get_or_create(fleet=incident.fleet, name=incident.looking_for)
        job.nodes.set(nodes)  # so that the job's name is enough the next time
    incident.job = job
    incident.save(update_fields=["job"])
    names = nodeset.fold(node.name for node in nodes)
    tell(incident, "scoped", by, job=incident.looking_for, nodes=names, **said)
    run = start_suite(response.CAPTURE, nodes, by, incident=incident)
    tell(incident, "suite_started", None, run=run.pk, suite=response.CAPTURE, nodes=len(nodes))


def sweep_scans() -> int:
    """Settle what a lost bell left: looks at the fleet that have ended. Returns how many."""
    ended = Incident.objects.filter(
        closed_at=None, nodes=None, runs__suite=SCAN, runs__finished_at__isnull=False
    ).exclude(events__kind="scope_wanted")
    return sum(settle_scan(pk) for pk in ended.distinct().values_list("pk", flat=True)[:64])
