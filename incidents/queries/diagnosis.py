"""Reads of verdicts and diagnostic paths for pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from incidents.models import Decision, Incident, Ranking, Reading
from incidents.models.diagnosis import ACCEPT, IS_THIS_IT, NOT_THIS

LANES = {"hardware": "Hardware & host", "communication": "Communication", "framework": "Framework"}
LEVELS = {"implicated": "bad", "suspect": "warn", "ruled out": "ok", "not known": "unknown"}
SHOWN = 0.01  # hypotheses below this share are not shown


@dataclass(frozen=True, slots=True)
class ReasonView:
    """One line of evidence. `reading` is what it links to, None where that reading is gone."""

    level: str
    mark: str
    probe: str
    says: str
    reading: int | None


@dataclass(frozen=True, slots=True)
class PathView:
    id: str
    title: str
    state: str
    level: str
    why: str
    steps: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LaneView:
    title: str
    says: str
    level: str
    paths: list[PathView]


@dataclass(frozen=True, slots=True)
class OtherView:
    """A hypothesis that does not lead. `rejected`: who said that it is not this, and why."""

    says: str
    probability: float
    rejected: str


@dataclass(frozen=True, slots=True)
class VerdictView:
    """The panel's content: the most probable hypothesis that nobody rejected, at place `index` of the ranking."""

    ranking: Ranking
    index: int
    cause: str
    says: str
    level: str
    probability: float
    percent: int
    chips: list[str]
    reasons: list[ReasonView]
    ruled_out: list[str]
    others: list[OtherView]
    would_change: list[str]
    consequences: list[str]
    facts: int
    accepted: Decision | None

    @property
    def named(self) -> bool:
        """Whether a cause is named at all."""
        return self.cause not in ("none", "unknown")


def verdict(incident: Incident) -> VerdictView | None:
    """The latest ranking as the page shows it; None before anything was judged."""
    ranking = incident.rankings.first()
    if ranking is None:
        return None
    hypotheses = ranking.body["hypotheses"]
    said = _decided(incident)
    open_ones = [i for i, one in enumerate(hypotheses) if _chosen(said, one) != NOT_THIS]
    index = open_ones[0] if open_ones else 0
    first = hypotheses[index]
    refs = _readings(incident, ranking)
    return VerdictView(
        ranking=ranking,
        index=index,
        cause=first["cause"],
        says=first["says"],
        level=_level(first),
        probability=first["probability"],
        percent=round(100 * first["probability"]),
        chips=_chips(first["subject"]),
        reasons=[_reason(one, _level(first), "◆", refs) for one in first["because"]]
        + [_reason(one, "ok", "−", refs) for one in first["against"]],
        ruled_out=[path["title"] for path in ranking.body["paths"].values() if path["state"] == "ruled out"],
        others=[
            OtherView(one["says"], one["probability"], _rejection(said, one))
            for i, one in enumerate(hypotheses)
            if i != index and one["probability"] >= SHOWN
        ][:4],
        would_change=first["would_change"],
        consequences=[one["says"] for one in first["consequences"]],
        facts=Reading.objects.filter(run__incident=incident, facts__isnull=False).count(),
        accepted=said.get(_key(first)) if _chosen(said, first) == ACCEPT else None,
    )


def _level(hypothesis: dict[str, Any]) -> str:
    named = {"none": "ok", "unknown": "unk"}
    return named.get(hypothesis["cause"], "bad" if hypothesis["probability"] >= 0.5 else "warn")


def _key(hypothesis: dict[str, Any]) -> str:
    """What a decision is about, whatever else is known of it by now."""
    subject = sorted((name, str(value)) for name, value in hypothesis["subject"].items() if name != "pid")
    return f"{hypothesis['cause']} {subject}"


def _decided(incident: Incident) -> dict[str, Decision]:
    """The latest decision about each hypothesis."""
    asked = incident.decisions.filter(question=IS_THIS_IT).select_related("by").order_by("pk")
    return {_key(decision.subject): decision for decision in asked}


def _chosen(said: dict[str, Decision], hypothesis: dict[str, Any]) -> str:
    decision = said.get(_key(hypothesis))
    return decision.chosen if decision is not None else ""


def _rejection(said: dict[str, Decision], hypothesis: dict[str, Any]) -> str:
    decision = said.get(_key(hypothesis))
    return f"{decision.by}: “{decision.why}”" if decision is not None and decision.chosen == NOT_THIS else ""


def _chips(subject: dict[str, Any]) -> list[str]:
    order = ("node", "rank", "gpu", "bus_id", "hca", "port", "group", "mount", "device", "server")
    words = {"gpu": "GPU", "bus_id": "bus", "hca": "HCA"}
    return [f"{words.get(key, key)} {subject[key]}" for key in order if key in subject]


def _readings(incident: Incident, ranking: Ranking) -> dict[str, int]:
    """Reading by "node/probe", of those that the ranking rests on."""
    rested = Reading.objects.filter(run__incident=incident, pk__lte=ranking.readings).order_by("pk")
    return {f"{node}/{probe}": pk for pk, node, probe in rested.values_list("pk", "node__name", "probe")}


def _reason(reason: dict[str, str], level: str, mark: str, refs: dict[str, int]) -> ReasonView:
    probe = reason["reading"].rpartition("/")[2]
    return ReasonView(level, mark, probe, reason["says"], refs.get(reason["reading"]))


def lanes(ranking: Ranking) -> list[LaneView]:
    """The paths in their three lanes."""
    found = []
    for lane, title in LANES.items():
        paths = [
            PathView(key, path["title"], path["state"], LEVELS[path["state"]], _why(path), path["steps"])
            for key, path in ranking.body["paths"].items()
            if path["lane"] == lane
        ]
        counts = {state: sum(path.state == state for path in paths) for state in LEVELS}
        state = next((state for state in ("implicated", "suspect") if counts[state]), "")
        says = f"{counts[state]} {state}" if state else f"{counts['ruled out']} of {len(paths)} ruled out"
        found.append(LaneView(title, says, LEVELS.get(state, ""), paths))
    return found


def _why(path: dict[str, Any]) -> str:
    """What the path's state rests on: the first step that has it."""
    return next((step["why"] for step in path["steps"] if step["state"] == path["state"]), "")


def counted(lanes: list[LaneView]) -> str:
    """`16 paths · 11 ruled out · 1 implicated`"""
    states = [path.state for lane in lanes for path in lane.paths]
    parts = [f"{states.count(state)} {state}" for state in ("ruled out", "suspect", "implicated", "not known")]
    return " · ".join([f"{len(states)} paths", *(part for part in parts if not part.startswith("0 "))])
