"""The life of an incident: declared, taken over, moved from phase to phase."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.utils import timezone

from incidents import clock
from incidents.models import Incident, Job, Node, Phase, User
from incidents.services.fleet import Refused
from incidents.services.runs import start_suite
from incidents.services.timeline import tell
from probes import nodeset

CAPTURE = "capture"  # the suite that starts by itself


@transaction.atomic
def declare(what: str, by: User | None, severity: int = 2, title: str = "") -> Incident:
    """Open an incident for a job or for nodes, and start the capture suite with the commit of this transaction.

    `what` is the name of a job whose nodes are known, or a list of nodes as people have them; nodes that are not in
    the fleet yet are added to it. Raises Refused when neither fits, with what to type instead.
    """
    job, nodes = _scope(what.strip(), by)
    incident = Incident.objects.create(
        title=title.strip() or (f"{job} does not advance" if job else f"{nodeset.fold(n.name for n in nodes)}"),
        severity=severity,
        job=job,
        t0=timezone.now(),
        declared_by=by,
        commander=by,
    )
    incident.nodes.set(nodes)
    for due in clock.due_times(incident.t0, severity):
        started = incident.t0 if due.phase == incident.phase else None
        Phase.objects.create(incident=incident, name=due.phase, due_at=due.at, started_at=started)
    names = nodeset.fold(node.name for node in nodes)
    tell(incident, "declared", by, what=what.strip()[:300], severity=severity, job=str(job or ""), nodes=names)
    run = start_suite(CAPTURE, nodes, by, incident=incident)
    tell(incident, "suite_started", None, run=run.pk, suite=CAPTURE, nodes=len(nodes))
    return incident


def _scope(what: str, by: User | None) -> tuple[Job | None, Sequence[Node]]:
    job = Job.objects.filter(name=what).first()
    if job is not None:
        nodes = list(job.nodes.all())
        if not nodes:
            raise Refused(f"Job {job} has no nodes on record. Type its nodes instead, such as gpu-[001-064].", "what")
        return job, nodes
    try:
        targets = nodeset.parse_hosts(what)
    except nodeset.NodesetError as error:
        raise Refused(f"{what[:60]!r} is no job that is known here, and no list of nodes: {error}", "what") from error
    known = {node.name: node for node in Node.objects.filter(name__in=[target.node for target in targets])}
    now = timezone.now()
    new = [
        Node(name=t.node, address=t.address, user=t.user, port=t.port or None, changed_at=now, added_by=by)
        for t in targets
        if t.node not in known
    ]
    Node.objects.bulk_create(new, batch_size=500)
    known |= {node.name: node for node in Node.objects.filter(name__in=[node.name for node in new])}
    return None, [known[target.node] for target in targets]


@transaction.atomic
def save_job(name: str, nodes: Sequence[Node]) -> Job:
    """Remember which nodes a job runs on."""
    job, _ = Job.objects.get_or_create(name=name)
    job.nodes.set(nodes)
    return job


@transaction.atomic
def advance(incident: Incident, by: User | None, word: str) -> Incident:
    """End the present phase and begin the next, with the word that says why. The clock never does this to people.

    Raises Refused when the incident is in its last phase, closed, or was moved by somebody else a moment ago.
    """
    seen = incident.phase
    incident = Incident.objects.select_for_update().get(pk=incident.pk)
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    if incident.phase != seen:
        raise Refused(f"Somebody moved INC-{incident.pk} to {clock.TITLES[incident.phase]} a moment ago.")
    following = clock.next_phase(incident.phase)
    if following is None:
        raise Refused(f"{clock.TITLES[incident.phase]} is the last phase.")
    if not word.strip():
        raise Refused("Say in a word why this phase is over.", "word")
    now = timezone.now()
    incident.phases.filter(name=incident.phase).update(ended_at=now)
    incident.phases.filter(name=following).update(started_at=now)
    before, incident.phase = incident.phase, following
    incident.save(update_fields=["phase"])
    tell(incident, "phase", by, of=before, to=following, word=word.strip()[:300])
    return incident


@transaction.atomic
def take_command(incident: Incident, by: User) -> Incident:
    """Make `by` the commander; the one before is told in the event."""
    incident = Incident.objects.select_for_update(of=("self",)).select_related("commander").get(pk=incident.pk)
    before = incident.commander
    if before == by:
        raise Refused("You command this incident already.")
    incident.commander = by
    incident.save(update_fields=["commander"])
    tell(incident, "command", by, before=before.get_username() if before else "", now=by.get_username())
    return incident
