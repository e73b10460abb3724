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
from incidents.services.fleet import RECORDED, Refused
from incidents.services.runs import SCAN, start_suite
from incidents.services.timeline import tell
from probes import nodeset
from probes.log_paths import LogPathError, checked
from probes.transport.targets import Target

CAPTURE = "capture"  # the suite that starts by itself


class NotInFleet(Refused):
    """Names that may be nodes, a job that nobody recorded, or slips: only a person can say. `folded` lists them."""

    def __init__(self, fleet: Fleet, names: Sequence[str]) -> None:
        self.folded = nodeset.fold(names)[:200]
        what = "no job that is known here, and no node" if len(names) == 1 else "no nodes"
        super().__init__(f"{self.folded}: {what} of fleet {fleet}.", "what")


@transaction.atomic
def declare(
    fleet: Fleet,
    what: str,
    by: User | None,
    severity: int = 2,
    title: str = "",
    log_paths: Sequence[str] = (),
    add: bool = True,
) -> Incident:
    """Open an incident for a job or for nodes, and start the capture suite with the commit of this transaction.

    `what` is the name of a job, or a list of nodes as people have them. The nodes of a job that nobody recorded are
    looked for on the whole fleet first. Nodes that are not in the fleet yet are added to it if the person said so
    (`add`), or NotInFleet is raised. `log_paths` are patterns of
    log files on the nodes; without any, those that were given last for the job. Raises Refused when one of these does
    not fit, with what to type instead.
    """
    paths = checked_log_paths(log_paths)
    said = what.strip()
    if fleet.replay:
        raise Refused(RECORDED, "what")
    job = fleet.jobs.filter(name=said).first()
    nodes = list(job.nodes.all()) if job is not None else []
    looking_for = said if job is not None and not nodes else ""
    if job is None and not add and _may_be_a_job(fleet, said):
        looking_for = said
    elif job is None:
        nodes = nodes_said(fleet, said, by, add)
    return open_incident(
        fleet, job, nodes, by, severity, title, log_paths=paths, looking_for=looking_for, what=said[:300]
    )


def _may_be_a_job(fleet: Fleet, what: str) -> bool:
    """One plain word that is no node, in a fleet that has nodes to look on."""
    word = len(what) <= 200 and nodeset.is_name(what) and not fleet.nodes.filter(name=what).exists()
    return word and fleet.nodes.exists()


def checked_log_paths(patterns: Sequence[str]) -> tuple[str, ...]:
    """The patterns as they may be sent to nodes. Raises Refused with the sentence of what is wrong."""
    try:
        return checked(patterns)
    except LogPathError as error:
        raise Refused(str(error), "log_paths") from error


@transaction.atomic
def open_incident(
    fleet: Fleet,
    job: Job | None,
    nodes: Sequence[Node],
    by: User | None,
    severity: int = 2,
    title: str = "",
    impact_at: datetime | None = None,
    log_paths: Sequence[str] = (),
    looking_for: str = "",
    drill: str = "",
    recording: str = "",
    from_files: bool = False,
    **said: Any,
) -> Incident:
    """Open an incident on these nodes: its phases, its first events, and the capture suite with the commit. Without
    nodes the fleet is looked through for the job `looking_for`. `drill`, `recording` and `from_files`: see Incident;
    for files nobody is asked.

    `by` is None when no person declared it; then nobody commands it yet. `log_paths` are checked ones: the job keeps
    them for the next time, and gives those of the last time where there are none. `said` joins the payload of
    `declared`.
    """
    paths = _remembered(job, log_paths)
    names = nodeset.fold(node.name for node in nodes)
    if job is not None and nodes and not job.nodes.exists():
        job.nodes.set(nodes)  # so that the job's name is enough the next time
    incident = Incident.objects.create(
        fleet=fleet,
        title=(title.strip() or (f"{job or looking_for} does not advance" if job or looking_for else names))[:300],
        looking_for=looking_for,
        severity=severity,
        job=job,
        t0=timezone.now(),
        impact_at=impact_at,
        log_paths=paths,
        declared_by=by,
        commander=by,
        drill=drill,
        recording=recording,
        from_files=from_files,
    )
    # In the order of their keys, as batches of readings lock them: two at once must not wait in a circle.
    incident.nodes.set(Node.objects.select_for_update().filter(pk__in=[node.pk for node in nodes]).order_by("pk"))
    for due in clock.due_times(incident.t0, severity):
        started = incident.t0 if due.phase == incident.phase else None
        Phase.objects.create(incident=incident, name=due.phase, due_at=due.at, started_at=started)
    given: dict[str, Any] = {"log_paths": paths} if paths else {}
    given |= {"drill": drill} if drill else {}
    given |= {"from_files": True} if from_files else {}
    tell(incident, "declared", by, **said, **given, severity=severity, job=str(job or looking_for), nodes=names)
    if from_files:
        return incident
    suite, asked = (CAPTURE, nodes) if nodes else (SCAN, list(fleet.nodes.select_related("fleet")))
    run = start_suite(suite, asked, by, incident=incident)
    tell(incident, "suite_started", None, run=run.pk, suite=suite, nodes=len(asked))
    return incident


def _remembered(job: Job | None, log_paths: Sequence[str]) -> list[str]:
    if job is not None and log_paths and list(log_paths) != job.log_paths:
        job.log_paths = list(log_paths)
        job.save(update_fields=["log_paths"])
    return list(log_paths) if log_paths or job is None else list(job.log_paths)


def nodes_said(fleet: Fleet, what: str, by: User | None, add: bool) -> list[Node]:
    """The nodes of a list as people have it. Raises Refused when it is none, NotInFleet for names nobody knows."""
    try:
        targets = nodeset.parse_hosts(what)
    except nodeset.NodesetError as error:
        raise Refused(f"{what[:60]!r} is no job that is known here, and no list of nodes: {error}", "what") from error
    if not add:
        names = [target.node for target in targets]
        known = set(fleet.nodes.filter(name__in=names).values_list("name", flat=True))
        if strange := [name for name in names if name not in known]:
            raise NotInFleet(fleet, strange)
    return in_fleet(fleet, targets, by)


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
        say_overdue(incident, overdue, now)
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
    say_overdue(incident, mine, now)
    return 1


def say_overdue(incident: Incident, phase: Phase, now: datetime) -> None:
    """Put into the timeline, once, that a phase is over its time. In the caller's transaction."""
    phase.overdue_told_at = now
    phase.save(update_fields=["overdue_told_at"])
    tell(incident, "overdue", phase=phase.name)


@transaction.atomic
def take_command(incident: Incident, by: User, seen: int | None | EllipsisType = ...) -> Incident:
    """Make `by` the commander; the one before is told in the event.

    `seen` is the commander (None: nobody) that the person saw. Raises Refused when it is another by now, and when the
    incident is closed.
    """
    incident = Incident.objects.select_for_update(of=("self",)).select_related("commander").get(pk=incident.pk)
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed: there is nothing to command.")
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
