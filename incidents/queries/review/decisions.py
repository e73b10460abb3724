"""Every decision with what was known when it was taken, what it was taken over, and what came of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from incidents import clock
from incidents.models import Action, Decision
from incidents.models.diagnosis import ACCEPT, IS_THIS_IT
from incidents.queries.diagnosis import share_said
from incidents.queries.review.kept import Kept, Ref, about_same
from probes.core import clean


@dataclass(frozen=True, slots=True)
class Outcome:
    """One action that came of a decision. `argv` as one line that a shell would read."""

    argv: str
    node: str
    state: str
    says: str
    approved: str  # who approved it and when, "" when nobody had to


@dataclass(frozen=True, slots=True)
class DecisionView:
    """`known` is what led in the ranking on the screen; `superseded` when a later decision took its place, T+6:02."""

    at: str
    moment: datetime
    who: str
    role: str
    question: str
    about: str
    chosen: str
    why: str
    over: list[str]
    known: str
    readings: list[Ref]
    outcomes: list[Outcome]
    superseded: str
    seq: int | None


def decisions(kept: Kept) -> list[DecisionView]:
    """In the order in which they were taken. No query."""
    return [_view(kept, one) for one in kept.decisions]


def _view(kept: Kept, one: Decision) -> DecisionView:
    event = kept.first("decision", decision=one.pk)
    later = _superseded_by(kept.decisions, one)
    return DecisionView(
        at=clock.t_plus(kept.incident.t0, one.at),
        moment=one.at,
        who=one.by.get_username(),
        role=one.role,
        question=one.question,
        about=str(one.subject.get("says", "")) if one.question == IS_THIS_IT else "",
        chosen=one.chosen,
        why=one.why,
        over=[label for label in _labels(one.options) if label != one.chosen],
        known=_known(kept, one),
        readings=[kept.readings[pk] for pk, _ in one.readings if pk in kept.readings],
        outcomes=[_outcome(kept, action) for action in kept.actions if action.decision_id == one.pk],
        superseded=clock.t_plus(kept.incident.t0, later.at) if later else "",
        seq=event.seq if event else None,
    )


def _labels(options: Sequence[object]) -> list[str]:
    """Options of a verdict are words, those of a runbook's step are objects with a label."""
    return [str(one.get("label", "")) if isinstance(one, dict) else str(one) for one in options]


def _known(kept: Kept, one: Decision) -> str:
    judged = next((judged for judged in kept.judged if judged.pk == one.ranking_id), None)
    if judged is None:
        return "no verdict yet"
    if judged.cause == "unknown":
        return judged.says
    return f"{judged.says} ({share_said(judged.probability)})"


def _superseded_by(every: Sequence[Decision], one: Decision) -> Decision | None:
    """The next decision about the same thing: the same hypothesis, another one accepted, the same step of a runbook."""
    return next((later for later in every if later.pk > one.pk and _replaces(later, one)), None)


def _replaces(later: Decision, one: Decision) -> bool:
    if one.question == IS_THIS_IT == later.question:
        return about_same(one, later) or one.chosen == ACCEPT == later.chosen
    return one.runbook_run_id is not None and (later.runbook_run_id, later.step) == (one.runbook_run_id, one.step)


def _outcome(kept: Kept, action: Action) -> Outcome:
    approved = ""
    if action.approved_by is not None and action.approved_at is not None:
        approved = f"approved by {action.approved_by} at {clock.t_plus(kept.incident.t0, action.approved_at)}"
    argv = clean(shlex.join(str(word) for word in action.argv))
    return Outcome(argv, action.node.name, action.state, clean(action.says), approved)
