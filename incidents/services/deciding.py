"""Decisions about verdicts: taken as the cause, or "not this", each with what was on the screen."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from incidents.models import Decision, Incident, Ranking, Reading, User
from incidents.models.diagnosis import ACCEPT, IS_THIS_IT, NOT_THIS
from incidents.services.fleet import Refused
from incidents.services.timeline import tell

LONGEST = 1000  # characters of a reason


@transaction.atomic
def decide_verdict(
    incident: Incident, by: User, role: str, ranking_id: int, index: int, chosen: str, why: str = ""
) -> Decision:
    """Accept hypothesis `index` of a ranking as the cause, or reject it with a reason.

    Raises Refused when that hypothesis is gone by now (what was on the screen is old), without a reason for "not this",
    and for what cannot be chosen.
    """
    incident = Incident.objects.select_for_update(of=("self",)).get(pk=incident.pk)
    ranking = incident.rankings.filter(pk=ranking_id).first()
    if ranking is None or not 0 <= index < len(ranking.body["hypotheses"]) or chosen not in (ACCEPT, NOT_THIS):
        raise Refused("This verdict is not here. Reload the page.")
    hypothesis = ranking.body["hypotheses"][index]
    about = {"cause": hypothesis["cause"], "subject": hypothesis["subject"]}
    if hypothesis["cause"] in ("none", "unknown"):
        raise Refused("There is no cause to decide about yet.")
    if not _still_there(incident, ranking, about):
        raise Refused("The verdict changed a moment ago. Look at the new one, then decide.")
    if chosen == NOT_THIS and not why.strip():
        raise Refused("Say why it is not this: the next person will ask.", "why")
    decision = Decision.objects.create(
        incident=incident,
        question=IS_THIS_IT,
        options=[ACCEPT, NOT_THIS],
        chosen=chosen,
        why=why.strip()[:LONGEST],
        at=timezone.now(),
        by=by,
        role=role,
        phase=incident.phase,
        ranking=ranking,
        subject=about,
        readings=_seen(incident, ranking, hypothesis),
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


def _still_there(incident: Incident, ranking: Ranking, about: dict[str, Any]) -> bool:
    """Whether the latest ranking still holds this hypothesis: its share may have moved, it may not be gone."""
    latest = incident.rankings.first()
    if latest is None or latest.pk == ranking.pk:
        return True
    return any({"cause": one["cause"], "subject": one["subject"]} == about for one in latest.body["hypotheses"])


def _seen(incident: Incident, ranking: Ranking, hypothesis: dict[str, Any]) -> list[list[object]]:
    """[reading, SHA-256 of its output] for each reading that the reasons stand on."""
    wanted = {reason["reading"] for reason in (*hypothesis["because"], *hypothesis["against"])}
    found: dict[str, list[object]] = {}
    rows = Reading.objects.filter(run__incident=incident, pk__lte=ranking.readings).order_by("pk")
    for pk, node, probe, sha256 in rows.values_list("pk", "node__name", "probe", "sha256"):
        if f"{node}/{probe}" in wanted:
            found[f"{node}/{probe}"] = [pk, sha256]
    return list(found.values())
