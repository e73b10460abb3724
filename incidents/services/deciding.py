"""Decisions about verdicts: taken as the cause, or "not this", each with what was on the screen."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from incidents.models import Decision, Incident, Ranking, User
from incidents.models.diagnosis import ACCEPT, IS_THIS_IT, NOT_THIS, UNNAMED, same
from incidents.services.fleet import Refused
from incidents.services.timeline import tell

LONGEST = 1000  # characters of a reason


@transaction.atomic
def decide_verdict(
    incident: Incident, by: User, role: str, ranking_id: int, index: int, chosen: str, why: str = ""
) -> Decision:
    """Accept hypothesis `index` of a ranking as the cause, or reject it with a reason of at most LONGEST characters.

    Raises Refused when that hypothesis is gone by now (what was on the screen is old), without a reason for "not this"
    and for what was "not this" before, for what cannot be chosen, and when the incident is closed.
    """
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    if incident.closed_at is not None:
        raise Refused(f"INC-{incident.pk} is closed.")
    ranking, hypothesis = _on_screen(incident, ranking_id, index, chosen)
    about = {key: hypothesis[key] for key in ("cause", "subject", "says")}
    said = why.strip()[:LONGEST]
    if chosen == NOT_THIS and not said:
        raise Refused("Say why it is not this: the next person will ask.", "why")
    before = next((one for one in incident.decisions.filter(question=IS_THIS_IT) if same(one.subject, about)), None)
    if before is not None and (before.by, before.chosen, before.why) == (by, chosen, said):
        return before  # a button pressed twice
    if before is not None and before.chosen == NOT_THIS and not said:
        raise Refused(f"{before.by} said that it is not this. Say why it is.", "why")
    decision = Decision.objects.create(
        incident=incident,
        question=IS_THIS_IT,
        options=[ACCEPT, NOT_THIS],
        chosen=chosen,
        why=said,
        at=timezone.now(),
        by=by,
        role=role,
        phase=incident.phase,
        ranking=ranking,
        subject=about,
        readings=_seen(ranking, hypothesis),
    )
    tell(
        incident,
        "decision",
        by,
        decision=decision.pk,
        question=IS_THIS_IT,
        chosen=chosen,
        why=decision.why,
        says=hypothesis["says"],
        probability=hypothesis["probability"],
        ranking=ranking.pk,
        readings=decision.readings,
    )
    return decision


def _on_screen(incident: Incident, ranking_id: int, index: int, chosen: str) -> tuple[Ranking, dict[str, Any]]:
    """The ranking and hypothesis that the person had before them, when one can still decide about it."""
    ranking = incident.rankings.filter(pk=ranking_id).first()
    if ranking is None or not 0 <= index < len(ranking.body["hypotheses"]) or chosen not in (ACCEPT, NOT_THIS):
        raise Refused("This verdict is not here. Reload the page.")
    hypothesis = ranking.body["hypotheses"][index]
    if hypothesis["cause"] in UNNAMED:
        raise Refused("There is no cause to decide about yet.")
    if not still_there(incident, ranking, hypothesis):
        raise Refused("The verdict changed a moment ago. Look at the new one, then decide.")
    return ranking, hypothesis


def still_there(incident: Incident, ranking: Ranking, hypothesis: dict[str, Any]) -> bool:
    """Whether the latest ranking still holds this hypothesis: its share may have moved, it may not be gone."""
    latest = incident.rankings.first()
    if latest is None or latest.pk == ranking.pk:
        return True
    return any(same(one, hypothesis) for one in latest.body["hypotheses"])


def _seen(ranking: Ranking, hypothesis: dict[str, Any]) -> list[list[object]]:
    """[reading, SHA-256 of its output] for each reading that the reasons stand on."""
    refs = [reason["reading"] for reason in (*hypothesis["because"], *hypothesis["against"])]
    return sorted([row.pk, row.sha256] for row in ranking.rests_on(refs).values())
