"""The life of an incident: declared, taken over, moved from phase to phase."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import EllipsisType
from typing import Any

from django.db import transaction
from django.utils import timezone

from incidents import clock
from incidents.models import Fleet, Incident, Job, Node, Phase, User
from incidents.services.fleet import Refused
from incidents.services.runs import start_suite
from incidents.services.timeline import tell
from probes import nodeset
from probes.transport.targets import Target

CAPTURE = "capture"  # the suite that starts by itself


class NotInFleet(Refused):
    """Names that may be nodes, a job that nobody recorded, or slips: only a person can say. `folded` lists them."""

    def __init__(self, fleet: Fleet, names: Sequence[str]) -> None:
        self.folded = nodeset.fold(names)[:200]
        what = "no job that is known here, and no node" if len(names) == 1 else "no nodes"
        super().__init__(f"{self.folded}: {what} of fleet {fleet}.", "what")


@transaction.atomic
def declare(fleet: Fleet, what: str, by: User | None, severity: int = 2, title: str = "", add: bool = True) -> Incident:
    """Open an incident for a job or for nodes, and start the capture suite with the commit of this transaction.

    `what` is the name of a job whose nodes are known, or a list of nodes as people have them; nodes that are not in
    the fleet yet are added to it if the person said so (`add`), or NotInFleet is raised. Raises Refused when neither
    fits, with what to type instead.
    """
    job, nodes = _scope(fleet, what.strip(), by, add)
    return open_incident(fleet, job, nodes, by, severity, title, what=what.strip()[:300])


@transaction.atomic
def open_incident(
    fleet: Fleet,
    job: Job | None,
    nodes: Sequence[Node],
    by: User | None,
    severity: int = 2,
    title: str = "",
    impact_at: datetime | None = None,
    **said: Any,
) -> Incident:
    """Open an incident on these nodes: its phases, its first events, and the capture suite with the commit.

    `by` is None when no person declared it; then nobody commands it yet. `said` joins the payload of `declared`.
    """
    names = nodeset.fold(node.name for node in nodes)
    if job is not None and not job.nodes.exists():
        job.nodes.set(nodes)  # so that the job's name is enough the next time
    incident = Incident.objects.create(
        fleet=fleet,
        title=(title.strip() or (f"{job} does not advance" if job else names))[:300],
        severity=severity,
        job=job,
        t0=timezone.now(),
        impact_at=impact_at,
        declared_by=by,
        commander=by,
    )
    # In the order of their keys, as batches of readings lock them: two at once must not wait in a circle.
    incident.nodes.set(Node.objects.select_for_update().filter(pk__in=[node.pk for node in nodes]).order_by("pk"))
    for due in clock.due_times(incident.t0, severity):
        started = incident.t0 if due.phase == incident.phase else None
        Phase.objects.create(incident=incident, name=due.phase, due_at=due.at, started_at=started)
    tell(incident, "declared", by, **said, severity=severity, job=str(job or ""), nodes=names)
    run = start_suite(CAPTURE, nodes, by, incident=incident)
    tell(incident, "suite_started", None, run=run.pk, suite=CAPTURE, nodes=len(nodes))
    return incident


def _scope(fleet: Fleet, what: str, by: User | None, add: bool) -> tuple[Job | None, Sequence[Node]]:
    job = fleet.jobs.filter(name=what).first()
    if job is not None:
        nodes = list(job.nodes.all())
        if not nodes:
            raise Refused(f"Job {job} has no nodes on record. Type its nodes instead, such as gpu-[001-064].", "what")
        return job, nodes
    try:
        targets = nodeset.parse_hosts(what)
    except nodeset.NodesetError as error:
        raise Refused(f"{what[:60]!r} is no job that is known here, and no list of nodes: {error}", "what") from error
    if not add:
        names = [target.node for target in targets]
        known = set(fleet.nodes.filter(name__in=names).values_list("name", flat=True))
        if strange := [name for name in names if name not in known]:
            raise NotInFleet(fleet, strange)
    return None, in_fleet(fleet, targets, by)


@transaction.atomic
def in_fleet(fleet: Fleet, targets: Sequence[Target], by: User | None) -> list[Node]:
    """The nodes of these targets, in order. Those that are not in the fleet yet are added to it."""
    known = {node.name: node for node in fleet.nodes.filter(name__in=[target.node for target in targets])}
    now = timezone.now()
    new = [
        Node(fleet=fleet, name=t.node, address=t.address, user=t.user, port=t.port or None, changed_at=now, added_by=by)
        for t in targets
        if t.node not in known
    ]
    Node.objects.bulk_create(new, batch_size=500, ignore_conflicts=True)  # another may add the same at this moment
    known |= {node.name: node for node in fleet.nodes.filter(name__in=[node.name for node in new])}
    return [known[target.node] for target in targets]


@transaction.atomic
def save_job(fleet: Fleet, name: str, nodes: Sequence[Node]) -> Job:
    """Remember which nodes a job runs on."""
    job, _ = Job.objects.get_or_create(fleet=fleet, name=name)
    job.nodes.set(nodes)
    return job


@transaction.atomic
def advance(incident: Incident, by: User | None, word: str) -> Incident:
    """End the present phase and begin the next, with the word that says why. The clock never does this to people.

    Sent twice by one person with one word, as by a double click, it is done once. Raises Refused when the incident is
    in its last phase, closed, or was moved by somebody else a moment ago.
    """
    seen = incident.phase
    incident = Incident.objects.select_for_update().get(pk=incident.pk)
    if incident.phase != seen and _moved_by(incident, by, seen, word):
        return incident
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    if incident.phase != seen:
        moved = incident.events.filter(kind="phase").select_related("actor").last()
        who = moved.actor if moved is not None and moved.actor is not None else "Somebody"
        raise Refused(f"{who} moved INC-{incident.pk} to {clock.TITLES[incident.phase]} a moment ago.")
    overdue = incident.phases.filter(name=incident.phase, due_at__lt=timezone.now(), overdue_told_at=None).first()
    following = clock.next_phase(incident.phase)
    if following is None:
        raise Refused(f"{clock.TITLES[incident.phase]} is the last phase.")
    if not word.strip():
        raise Refused("Say in a word why this phase is over.", "word")
    now = timezone.now()
    if overdue is not None:  # the sweeper did not come by in time
        _say_overdue(incident, overdue, now)
    incident.phases.filter(name=incident.phase).update(ended_at=now)
    incident.phases.filter(name=following).update(started_at=now)
    before, incident.phase = incident.phase, following
    incident.save(update_fields=["phase"])
    tell(incident, "phase", by, of=before, to=following, word=word.strip()[:300])
    return incident


def _moved_by(incident: Incident, by: User | None, of: str, word: str) -> bool:
    """Whether the last move of this incident is this very one."""
    last = incident.events.filter(kind="phase").last()
    said = {"of": of, "to": incident.phase, "word": word.strip()[:300]}
    return last is not None and last.actor_id == (by.pk if by else None) and last.payload == said


def tell_overdue() -> int:
    """Put into each timeline, once, that its phase is over its time. Changes nothing else; returns how many."""
    overdue = Phase.objects.filter(
        due_at__lt=timezone.now(),
        started_at__isnull=False,
        ended_at=None,
        overdue_told_at=None,
        incident__closed_at=None,
    )
    return sum(_tell_overdue(phase_id) for phase_id in overdue.values_list("pk", flat=True))


@transaction.atomic
def _tell_overdue(phase_id: int) -> int:
    # The incident's row first, as everybody who adds an event does; then what may have changed meanwhile.
    incident = Incident.objects.select_for_update(of=("self",)).get(phases=phase_id)
    now = timezone.now()
    mine = Phase.objects.filter(pk=phase_id, ended_at=None, overdue_told_at=None).first()
    if incident.closed_at is not None or mine is None:
        return 0
    _say_overdue(incident, mine, now)
    return 1


def _say_overdue(incident: Incident, phase: Phase, now: datetime) -> None:
    phase.overdue_told_at = now
    phase.save(update_fields=["overdue_told_at"])
    tell(incident, "overdue", phase=phase.name)


@transaction.atomic
def take_command(incident: Incident, by: User, seen: int | None | EllipsisType = ...) -> Incident:
    """Make `by` the commander; the one before is told in the event.

    `seen` is the commander (None: nobody) that the person saw. Raises Refused when it is another by now.
    """
    incident = Incident.objects.select_for_update(of=("self",)).select_related("commander").get(pk=incident.pk)
    before = incident.commander
    if before == by:
        raise Refused("You command this incident already.")
    if seen is not ... and seen != (before.pk if before else None):
        who = f"{before} commands" if before else "nobody commands"
        raise Refused(
            f"This changed a moment ago: {who} INC-{incident.pk} now. Take command again if you still want to."
        )
    incident.commander = by
    incident.save(update_fields=["commander"])
    tell(incident, "command", by, before=before.get_username() if before else "", now=by.get_username())
    return incident
