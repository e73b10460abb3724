"""Reads of runbooks and their commands for the incident page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.text import Truncator

from incidents import clock, runbook
from incidents.commands import Command, command_of
from incidents.models import Action, Decision, Incident, Reading, RunbookRun
from incidents.models.actions import OPEN
from incidents.models.diagnosis import UNNAMED
from incidents.models.runs import VERIFY
from incidents.queries.diagnosis import HypothesisView
from incidents.queries.drills import off_the_rails
from incidents.runbook import Option, Runbook, Step
from probes.core import SEVERITIES, clean
from probes.remedies import shown

MOST_ACTIONS = 4
LONGEST = 240  # characters of a reading in one line
LEVELS = {
    "waiting": "warn", "ready": "", "running": "", "done": "ok", "failed": "bad", "unknown": "unknown",
    "declined": "", "expired": "warn",
}  # fmt: skip
WORDS = {
    "waiting": "waits for a second person",
    "ready": "is about to run",
    "running": "runs",
    "unknown": "not known whether it ran",
}


@dataclass(frozen=True, slots=True)
class ReadingLine:
    """What one probe says of the blamed node, in one line."""

    probe: str
    level: str
    says: str
    reading: int


@dataclass(frozen=True, slots=True)
class OptionView:
    """One answer. `key`: the digit that chooses it, or opens its form where a slip would cost work. `argv` is the
    command as JSON, for the form to send back what was shown."""

    option: Option
    key: str
    command: Command | None
    argv: str

    @property
    def typed(self) -> str:
        return shown(self.command.argv) if self.command else ""

    @property
    def undone(self) -> str:
        return shown(self.command.undo) if self.command else ""


@dataclass(frozen=True, slots=True)
class ActionView:
    action: Action
    level: str
    word: str
    typed: str
    undone: str
    ended: str  # T+ of its last change
    mine: bool  # the person who looks asked for it


@dataclass(frozen=True, slots=True)
class AtWork:
    """The runbook that is at work, at its step."""

    run: RunbookRun
    book: Runbook
    step: Step
    number: int
    lines: list[ReadingLine]
    options: list[OptionView]
    seen: str  # the readings in `lines`, for the form to send back what was on the screen
    asking: bool  # the suite that the step offers is under way


@dataclass(frozen=True, slots=True)
class TrainingView:
    """What the last comparison of two looks said. `state` is advances, stands, not known, "looking" meanwhile, or "old"
    when something was chosen since."""

    state: str
    level: str
    says: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Panel:
    """`proposed`: runbooks for the verdict, while none is at work. `others`: the rest. `ended`: the last that ended."""

    at_work: AtWork | None
    proposed: list[Runbook]
    others: list[Runbook]
    ended: RunbookRun | None
    actions: list[ActionView]
    training: TrainingView | None
    off_the_rails: str  # in a drill: after which choice its recording goes on, where another was made


def panel(incident: Incident, lead: HypothesisView | None, user_id: int) -> Panel:
    """The panel's content. The number of queries does not depend on that of nodes."""
    runs = list(incident.runbook_runs.select_related("started_by"))
    run = next((one for one in runs if one.ended_at is None), None)
    named = lead is not None and lead.cause not in UNNAMED
    fitting = sorted(runbook.fitting(lead.cause), key=lambda one: len(one.causes)) if lead is not None and named else []
    others = [one for one in runbook.load().values() if one not in fitting] if named else []
    since = _last_choice(incident)
    return Panel(
        _at_work(incident, run) if run is not None else None,
        [] if run is not None else fitting,
        [] if run is not None else others,
        next((one for one in runs if one.ended_at is not None), None),
        _actions(incident, user_id),
        _training(incident, since.at if since is not None else None),
        off_the_rails(incident) if since is not None else "",
    )


def _at_work(incident: Incident, run: RunbookRun) -> AtWork:
    book = runbook.of_json(run.body)
    step = book.steps[run.step]
    subject = run.subject["subject"]
    digits = iter("123456789")
    options = []
    for option in step.options:
        command = command_of(incident, subject, option)
        usable = command is None or not command.why
        key = next(digits, "") if usable else ""
        argv = json.dumps(list(command.argv)) if command else "[]"
        options.append(OptionView(option, key, command, argv))
    asking = bool(step.ask) and incident.runs.filter(suite=step.ask, finished_at=None).exists()
    lines = _lines(incident, subject.get("node", ""), step.show)
    seen = ",".join(str(line.reading) for line in lines)
    return AtWork(run, book, step, book.number(step.id), lines, options, seen, asking)


def _lines(incident: Incident, node: str, probes: Sequence[str]) -> list[ReadingLine]:
    """The latest of what the step wants to be looked at, in its order."""
    rows = Reading.objects.filter(run__incident=incident, node__name=node, probe__in=probes).best()
    found = {row.probe: row for row in rows.defer("out", "err", "facts")}
    return [_line(found[probe]) for probe in probes if probe in found]


def _line(row: Reading) -> ReadingLine:
    if row.outcome != "ok":
        level = "" if row.outcome == "absent" else "unknown"
        return ReadingLine(row.probe, level, Truncator(clean(f"{row.outcome}: {row.why}")).chars(LONGEST), row.pk)
    worst = max(row.findings, key=lambda one: SEVERITIES.index(one["severity"]), default=None)
    if worst is None or worst["severity"] == "info":
        return ReadingLine(row.probe, "ok", "nothing wrong by itself", row.pk)
    return ReadingLine(row.probe, worst["severity"], Truncator(clean(worst["says"])).chars(LONGEST), row.pk)


def _actions(incident: Incident, user_id: int) -> list[ActionView]:
    """What is open, and the last that ended."""
    rows = list(incident.actions.select_related("node", "asked_by", "approved_by", "decision")[:20])
    wanted = [one for one in rows if one.state in (*OPEN, "unknown")] or rows[:1]
    return [_action(incident, one, user_id) for one in wanted[:MOST_ACTIONS]]


def _action(incident: Incident, one: Action, user_id: int) -> ActionView:
    at = one.ended_at or one.begun_at or one.approved_at or one.asked_at
    return ActionView(
        one,
        LEVELS[one.state],
        WORDS.get(one.state, one.state),
        shown(one.argv),
        shown(one.undo) if one.undo else "",
        clock.t_plus(incident.t0, at),
        one.asked_by_id == user_id,
    )


def _last_choice(incident: Incident) -> Decision | None:
    """The last choice of something that has an effect."""
    for decision in incident.decisions.exclude(runbook_run=None).only("at", "chosen", "options")[:4]:
        chosen: dict[str, Any] = next((one for one in decision.options if one["label"] == decision.chosen), {})
        if chosen.get("effect"):
            return decision
    return None


def _training(incident: Incident, since: datetime | None) -> TrainingView | None:
    """What the looks say. `since`: the last choice in a runbook; what was seen before it is told as such."""
    started = incident.events.filter(kind="suite_started", payload__suite=VERIFY, payload__second_of=None)
    first = started.order_by("-seq").first()
    if first is None:
        return None
    event = incident.events.filter(kind="training", payload__first=first.payload["run"]).first()
    if event is None:
        return TrainingView("looking", "", "Looking whether training advances: two looks, some seconds apart.", None)
    told: Mapping[str, Any] = event.payload
    if since is not None and event.at < since:
        return TrainingView("old", "", f"Before the last choice: {told['says']}", event.at)
    levels = {"advances": "ok", "stands": "bad"}
    return TrainingView(told["state"], levels.get(told["state"], "unknown"), told["says"], event.at)
