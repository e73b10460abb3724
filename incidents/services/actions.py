"""Commands that change something on a node: asked for, approved by a second person where work may be lost, run at most
once.

The state of a row decides, not a message: only who moves it from `ready` to `running` may run it, and nothing ever
moves it back. Where that worker died, it is not known what happened: the row says so, and the nodes are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from incidents.models import Action, Decision, Incident, Node, RunbookRun, User
from incidents.services.fleet import Refused
from incidents.services.runs import ring_workers
from incidents.services.timeline import tell
from incidents.services.verifying import look_if_it_advances
from probes.core import clean
from probes.remedies import Outcome, Remedy, shown

TASK = "incidents.act"
APPROVAL = timedelta(minutes=10)  # how long a second person may take
STALE = timedelta(minutes=2)  # what is ready and was taken by no worker in this time is not run any more
RING_AGAIN = timedelta(seconds=6)
LOST_AFTER = timedelta(seconds=60)  # longer than any remedy and its connection may take: then its worker is dead
LONGEST = 20_000  # characters of what a command printed


@dataclass(frozen=True, slots=True)
class Held:
    """The right to run an action now, once."""

    action: Action
    node: Node


def ask(
    decision: Decision,
    remedy: Remedy,
    node: Node,
    argv: Sequence[str],
    undo: Sequence[str],
    guard: dict[str, object],
    destructive: bool,
) -> Action:
    """Within the transaction of its decision: make the action, and ring for it unless a second person is needed."""
    action = Action.objects.create(
        incident=decision.incident,
        decision=decision,
        remedy=remedy.id,
        node=node,
        argv=list(argv),
        undo=list(undo),
        guard=guard,
        destructive=destructive,
        state="waiting" if destructive else "ready",
        asked_by=decision.by,
        asked_at=decision.at,
        expires_at=decision.at + (APPROVAL if destructive else STALE),
    )
    more = {"undo": action.undo, "destructive": action.destructive}
    tell(action.incident, "action_asked", decision.by, **_said(action), **more)
    if action.state == "ready":
        ring_workers([action.pk], TASK)
    return action


@transaction.atomic
def approve(incident: Incident, action_id: int, by: User, role: str = "") -> Action:
    """A second person, who is `role` there, lets it run. Raises Refused for who asked, when it is over or settled."""
    action = _locked(incident, action_id)
    if action.approved_by_id == by.pk:
        return action  # pressed twice
    _refuse_settled(action, ("waiting",))
    if action.asked_by_id == by.pk:
        raise Refused("You asked for it yourself: a second person has to approve it.")
    now = timezone.now()
    action.state, action.approved_by, action.approved_at, action.expires_at = "ready", by, now, now + STALE
    action.save(update_fields=["state", "approved_by", "approved_at", "expires_at"])
    tell(action.incident, "action_approved", by, **_said(action), role=role)
    ring_workers([action.pk], TASK)
    return action


@transaction.atomic
def decline(incident: Incident, action_id: int, by: User) -> Action:
    """Somebody, also the one who asked, takes it back before it ran. Raises Refused when it was settled before."""
    action = _locked(incident, action_id)
    _refuse_settled(action, ("waiting", "ready"))
    _settle(action, "declined", f"{by} declined it: nothing was done on {action.node}.")
    tell(action.incident, "action_declined", by, **_said(action))
    return action


def decline_waiting(incident: Incident, by: User) -> None:
    """Within a transaction that holds the incident's row: take back what has not begun, as the incident or its runbook
    ends."""
    rows = incident.actions.filter(state="waiting").select_related("node", "decision__runbook_run")
    for action in rows.select_for_update(of=("self",)):
        says = f"Taken back by {by}, with the end of what asked for it: nothing was done on {action.node}."
        _settle(action, "declined", says, again=False)
        tell(incident, "action_declined", by, **_said(action))


def _locked(incident: Incident, action_id: int) -> Action:
    """The action of this incident, both locked, the incident first as everybody who adds an event does."""
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    rows = incident.actions.select_for_update(of=("self",)).select_related("node", "asked_by", "decision__runbook_run")
    action = rows.filter(pk=action_id).first()
    if action is None:
        raise Refused("There is no such command here. Reload the page.")
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    return action


def _refuse_settled(action: Action, states: tuple[str, ...]) -> None:
    if action.state == "waiting" and action.expires_at is not None and action.expires_at < timezone.now():
        raise Refused("Nobody approved it in time. Choose it again if it is still right.")
    if action.state not in states:
        raise Refused(f"This was settled a moment ago: it is {action.state}.")


@transaction.atomic
def begin(action_id: int) -> Held | None:
    """Take an action that is ready and not stale; None when there is nothing to do. It ends before anything is sent."""
    locked = Incident.objects.select_for_update(of=("self",))  # the incident first, as everybody who adds an event
    incident = locked.filter(actions=action_id, closed_at=None).first()
    now = timezone.now()
    rows = Action.objects.filter(pk=action_id, state="ready", expires_at__gte=now)
    if incident is None or not rows.update(state="running", begun_at=now):
        return None
    action = Action.objects.select_related("node__fleet", "incident__fleet", "asked_by").get(pk=action_id)
    tell(action.incident, "action_begun", None, **_said(action))
    return Held(action, action.node)


@transaction.atomic
def end(action_id: int, outcome: Outcome) -> None:
    """What became of it, and then a look whether training advances. Told once: who comes later changes nothing."""
    action = Action.objects.select_related("node", "incident", "decision__runbook_run").get(pk=action_id)
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=action.incident_id)
    if not Action.objects.filter(pk=action_id, state="running").exists():
        return
    action.out = clean(outcome.out)[:LONGEST]
    _settle(action, outcome.state, clean(outcome.says)[:2000])
    tell(action.incident, "action_ended", None, **_said(action))
    if outcome.state != "failed" and incident.closed_at is None:
        look_if_it_advances(incident, None, anew=True)


def _settle(action: Action, state: str, says: str, again: bool = True) -> None:
    """The end of an action. Where nothing was done, the runbook asks its question again, if it is still at work and
    nobody went on."""
    action.state, action.says, action.ended_at = state, says, timezone.now()
    action.save(update_fields=["state", "says", "out", "ended_at"])
    run, step = action.decision.runbook_run, action.decision.step
    if again and run is not None and state in ("failed", "declined", "expired"):
        latest = run.decisions.first()
        if latest is not None and latest.pk == action.decision_id:
            RunbookRun.objects.filter(pk=run.pk, ended_at=None, incident__closed_at=None).update(step=step)


def _said(action: Action) -> dict[str, object]:
    """What every event of an action tells."""
    about = {"action": action.pk, "remedy": action.remedy, "node": action.node.name, "argv": action.argv}
    return {**about, "state": action.state, "says": action.says or shown(action.argv)}


def sweep_actions() -> int:
    """Ring again for what is ready, end what nobody approved in time, and say of what a dead worker left that it is not
    known. Returns how many."""
    now = timezone.now()
    before = now - RING_AGAIN
    ready = Action.objects.filter(state="ready", expires_at__gte=now, incident__closed_at=None)
    waits = ready.filter(Q(approved_at__lt=before) | Q(approved_at=None, asked_at__lt=before))
    ring_workers(list(waits.values_list("pk", flat=True)[:8]), TASK)
    late = Action.objects.filter(state__in=("waiting", "ready"), expires_at__lt=now).values_list("pk", flat=True)
    lost = Action.objects.filter(state="running", begun_at__lt=now - LOST_AFTER).values_list("pk", flat=True)
    return sum(_expire(pk) for pk in late[:64]) + sum(_lose(pk) for pk in lost[:64])


@transaction.atomic
def _expire(action_id: int) -> int:
    incident_id = Action.objects.values_list("incident", flat=True).get(pk=action_id)
    Incident.objects.select_for_update(of=("self",)).get(pk=incident_id)
    still = Action.objects.filter(pk=action_id, state__in=("waiting", "ready"), expires_at__lt=timezone.now())
    row = still.select_related("node", "incident", "decision__runbook_run").first()
    if row is None:
        return 0
    says = f"Nobody approved it within {APPROVAL.seconds // 60} minutes: nothing was done on {row.node}."
    if row.state == "ready":
        minutes = STALE.seconds // 60
        says = f"No worker took it within {minutes} minutes: nothing was done on {row.node}. Choose it again."
    _settle(row, "expired", says)
    tell(row.incident, "action_ended", None, **_said(row))
    return 1


def _lose(action_id: int) -> int:
    row = Action.objects.select_related("node").get(pk=action_id)
    says = (
        f"Its worker was lost: it is not known whether “{shown(row.argv)}” was run on {row.node}. It is not run again."
    )
    end(action_id, Outcome("unknown", says))
    return 1
