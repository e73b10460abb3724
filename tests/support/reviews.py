"""What other parts write during an incident, made by hand: actions, and what was read about training."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from incidents.models import Action, Decision, Event, Incident, User
from incidents.services.timeline import tell


def told_training(incident: Incident, state: str, says: str = "collective #41 on every rank", **looks: int) -> Event:
    """Two readings were compared."""
    with transaction.atomic():
        return tell(incident, "training", state=state, says=says, **looks)


def step(
    incident: Incident, by: User, question: str, chosen: str, over: tuple[str, ...] = (), why: str = ""
) -> Decision:
    """A step of a runbook, decided."""
    options = [
        {"id": label.lower(), "label": label, "effect": "", "undo": "", "loses": ""} for label in (chosen, *over)
    ]
    with transaction.atomic():
        one = Decision.objects.create(
            incident=incident,
            question=question,
            options=options,
            chosen=chosen,
            why=why,
            at=timezone.now(),
            by=by,
            role="commander",
            phase=incident.phase,
            ranking=incident.rankings.first(),
        )
        tell(incident, "decision", by, decision=one.pk, question=question, chosen=chosen, why=why, says=question)
    return one


def act(
    incident: Incident,
    by: User,
    state: str,
    begun: bool = True,
    decision: Decision | None = None,
    node: str = "gpu-002",
    **more: Any,
) -> Action:
    """A command on a node in this state, with the event of its end where it had one."""
    now = timezone.now()
    ended = now if state not in ("waiting", "ready", "running") else None
    with transaction.atomic():
        one = Action.objects.create(
            incident=incident,
            decision=decision or step(incident, by, "Continue the rank?", "Continue"),
            remedy="continue_rank",
            node=incident.nodes.get(name=node),
            argv=more.pop("argv", ["kill", "-CONT", "4242"]),
            destructive=False,
            state=state,
            asked_by=by,
            asked_at=now,
            begun_at=now if begun else None,
            ended_at=ended,
            **more,
        )
        said = {"action": one.pk, "remedy": one.remedy, "node": node, "argv": one.argv, "says": one.says}
        if begun:
            tell(incident, "action_begun", state="running", **said)
        if begun and ended is not None:
            tell(incident, "action_ended", state=state, **said)
    return one
