"""Runbooks in an incident: started as they are now, and each answer a decision with what was on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from incidents import runbook
from incidents.commands import command_of
from incidents.models import Decision, Incident, Ranking, Reading, RunbookRun, User
from incidents.models.diagnosis import UNNAMED, same
from incidents.models.runs import VERIFY
from incidents.runbook import Option, Step
from incidents.services import actions
from incidents.services.deciding import still_there
from incidents.services.drilling import passed
from incidents.services.fleet import Refused
from incidents.services.runs import start_told
from incidents.services.timeline import tell

LONGEST = 1000  # characters of a reason
MOST_SEEN = 64  # readings that a form may name
TWICE = timedelta(seconds=3)  # the same answer again within this time is a double click; judgement


@transaction.atomic
def start(incident: Incident, by: User, name: str, ranking_id: int, index: int) -> RunbookRun:
    """Copy a runbook into the record, about hypothesis `index` of a ranking.

    Raises Refused when there is no such runbook or hypothesis, while another runbook is at work, and when it is closed.
    """
    incident = _open(incident)
    book = runbook.load().get(name)
    ranking = incident.rankings.filter(pk=ranking_id).first()
    if book is None:
        raise Refused("There is no such runbook. Reload the page.")
    if ranking is None or not 0 <= index < len(ranking.body["hypotheses"]):
        raise Refused("This verdict is not here. Reload the page.")
    about = ranking.body["hypotheses"][index]
    if about["cause"] in UNNAMED:
        raise Refused("There is no cause yet that a runbook could be about.")
    if not still_there(incident, ranking, about):
        raise Refused("The verdict changed a moment ago. Look at the new one, then start its runbook.")
    at_work = incident.runbook_runs.filter(ended_at=None).first()
    if at_work is not None and at_work.runbook == name and at_work.started_by_id == by.pk:
        return at_work  # pressed twice
    if at_work is not None:
        title = at_work.body["title"]
        raise Refused(f"{at_work.started_by} started the runbook “{title}” already. Leave it first.")
    run = RunbookRun.objects.create(
        incident=incident,
        runbook=name,
        body=book.as_json(),
        subject={key: about[key] for key in ("cause", "subject", "says")},
        step=book.start,
        started_at=timezone.now(),
        started_by=by,
    )
    tell(incident, "runbook_started", by, run=run.pk, runbook=name, title=book.title, about=run.subject["says"])
    return run


@transaction.atomic
def leave(incident: Incident, by: User, run_id: int, why: str) -> None:
    """End a runbook before its end. Raises Refused without a reason, and when it has ended."""
    incident = _open(incident)
    run = incident.runbook_runs.filter(pk=run_id, ended_at=None).first()
    if run is None:
        raise Refused("This runbook has ended already.")
    if not why.strip():
        raise Refused("Say why you leave the runbook: the next person will ask.", "why")
    run.step, run.ended_at = "", timezone.now()
    run.save(update_fields=["step", "ended_at"])
    actions.decline_waiting(incident, by)
    tell(incident, "runbook_left", by, run=run.pk, runbook=run.runbook, title=run.body["title"], why=_reason(why))


@transaction.atomic
def choose(
    incident: Incident,
    by: User,
    role: str,
    run_id: int,
    step_id: str,
    option_id: str,
    why: str = "",
    ranking_id: int = 0,
    argv: Sequence[str] = (),
    seen: Sequence[int] = (),
) -> Decision:
    """Answer the question that waits. What was on the screen: ranking, command word for word, and readings.

    Raises Refused when another question waits by now, without a reason for what is destructive, and when the command is
    another by now, such as after a rank was started again.
    """
    incident = _open(incident)
    run = incident.runbook_runs.select_for_update(of=("self",)).filter(pk=run_id).first()
    if run is None:
        raise Refused("This runbook is not at work here. Reload the page.")
    book = runbook.of_json(run.body)
    latest = run.decisions.select_related("by").first()
    if run.step != step_id or step_id not in book.steps:
        if latest is not None and _is(latest, by, step_id, option_id):
            return latest  # pressed twice
        who = f"{latest.by} chose “{latest.chosen}”" if latest is not None else "it ended"
        raise Refused(f"This question was answered a moment ago: {who}.")
    if latest is not None and _is(latest, by, step_id, option_id) and timezone.now() - latest.at < TWICE:
        return latest  # pressed twice, where the next question is the same again
    ranking = incident.rankings.filter(pk=ranking_id).first()
    if ranking is None:
        raise Refused("The verdict on this page is not of this incident. Reload the page.")
    step = book.steps[step_id]
    option = next((one for one in step.options if one.id == option_id), None)
    if option is None:
        raise Refused("This question has no such answer. Reload the page.")
    if option.destructive and not why.strip():
        raise Refused(f"Say why “{option.label}”: work may be lost by it.", "why")
    command = command_of(incident, run.subject["subject"], option)
    if command is not None and command.why:
        raise Refused(command.why)
    if command is not None and list(command.argv) != list(argv):
        raise Refused("The command is another by now: look at it, then choose again.")
    decision = _decide(incident, run, step, option, by, role, why, ranking, seen)
    if command is not None:
        assert command.node is not None
        destructive = option.destructive or command.remedy.destructive
        guard: dict[str, object] = dict(command.guard or {})
        actions.ask(decision, command.remedy, command.node, command.argv, command.undo, guard, destructive)
    else:
        passed(incident, f"{run.runbook}.{option.id}")
    _go_on(run, option)
    return decision


def _is(decision: Decision, by: User, step: str, option: str) -> bool:
    chosen = next((one["id"] for one in decision.options if one["label"] == decision.chosen), "")
    return (decision.by, decision.step, chosen) == (by, step, option)


def _decide(
    incident: Incident,
    run: RunbookRun,
    step: Step,
    option: Option,
    by: User,
    role: str,
    why: str,
    ranking: Ranking,
    seen: Sequence[int],
) -> Decision:
    decision = Decision.objects.create(
        incident=incident,
        question=step.question,
        options=[_offered(one) for one in step.options],
        chosen=option.label,
        why=_reason(why),
        at=timezone.now(),
        by=by,
        role=role,
        phase=incident.phase,
        ranking=ranking,
        subject=run.subject,
        readings=_seen(run, step, ranking, seen),
        runbook_run=run,
        step=step.id,
    )
    tell(
        incident,
        "decision",
        by,
        decision=decision.pk,
        question=decision.question,
        chosen=decision.chosen,
        why=decision.why,
        runbook=run.runbook,
        step=step.id,
        option=option.id,
        over=[one.label for one in step.options if one is not option],
        ranking=ranking.pk,
        readings=decision.readings,
    )
    return decision


def _go_on(run: RunbookRun, option: Option) -> None:
    run.step = "" if option.next == runbook.DONE else option.next
    run.ended_at = timezone.now() if option.next == runbook.DONE else None
    run.save(update_fields=["step", "ended_at"])


def _offered(option: Option) -> dict[str, object]:
    return {**asdict(option), "reversible": option.reversible}


def _seen(run: RunbookRun, step: Step, ranking: Ranking, seen: Sequence[int]) -> list[list[object]]:
    """[reading, SHA-256 of its output] of those that the step showed, and of the reasons of what it is about."""
    shown = Reading.objects.filter(run__incident=run.incident_id, pk__in=list(seen)[:MOST_SEEN], probe__in=step.show)
    about = next((one for one in ranking.body["hypotheses"] if same(one, run.subject)), None)
    refs = [reason["reading"] for reason in (*about["because"], *about["against"])] if about is not None else []
    rows = {row.pk: row.sha256 for row in (*shown.only("pk", "sha256"), *ranking.rests_on(refs).values())}
    return sorted([pk, sha256] for pk, sha256 in rows.items())


@transaction.atomic
def ask_for_step(incident: Incident, by: User, run_id: int) -> None:
    """Run the suite that the waiting step offers, on the node that is blamed, or on all. Raises Refused."""
    incident = _open(incident)
    run = incident.runbook_runs.filter(pk=run_id, ended_at=None).first()
    step = runbook.of_json(run.body).steps.get(run.step) if run is not None else None
    if run is None or step is None or step.ask in ("", VERIFY):
        raise Refused("This step has nothing to ask. Reload the page.")
    if incident.runs.filter(suite=step.ask, finished_at=None).exists():
        raise Refused("That is being asked already.")
    blamed = run.subject["subject"].get("node")
    nodes = incident.nodes.filter(name=blamed) if blamed else incident.nodes.all()
    start_told(incident, step.ask, list(nodes.select_related("fleet")), by)


def _open(incident: Incident) -> Incident:
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    return incident


def _reason(why: str) -> str:
    return why.strip()[:LONGEST].replace("\x00", "\u2400")
