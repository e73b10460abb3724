"""Reads of verdicts for pages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from incidents.models import Decision, Incident, Ranking, Reading
from incidents.models.diagnosis import ACCEPT, IS_THIS_IT, NOT_THIS, UNNAMED, same
from incidents.queries import paths
from probes import catalog

SHOWN = 0.01  # hypotheses below this share are not shown
LEAST = 0.0005  # nor what is as small as the rounding of a ranking
SURE = 0.99  # above this the share is not told exactly: the ratios that it comes from are no better
MOST_OTHERS = 4
NOTHING_ELSE = "The evidence names no other cause"
UNDECIDED = "The evidence does not decide"
AS_OTHER = {"none": "Nothing that stops training"}


def share_said(probability: float) -> str:
    """A share of a ranking for people: 0.93, or over 0.99."""
    return f"{probability:.2f}" if probability <= SURE else f"over {SURE}"


@dataclass(frozen=True, slots=True)
class ReasonView:
    """One line of evidence. `reading` is what it links to, None where that reading is gone."""

    level: str
    mark: str
    label: str
    says: str
    node: str
    reading: int | None


@dataclass(frozen=True, slots=True)
class HypothesisView:
    """One hypothesis at place `index` of the ranking. `about` is the same for the same thing in every ranking.

    `probability` is its share of what nobody rejected; of one that was rejected, what the evidence alone says.
    """

    index: int
    about: str
    cause: str
    says: str
    level: str
    probability: float
    chips: list[str]
    reasons: list[ReasonView]
    would_change: list[str]
    consequences: list[str]
    decision: Decision | None

    @property
    def named(self) -> bool:
        """Whether it names a cause at all."""
        return self.cause not in UNNAMED

    @property
    def accepted(self) -> bool:
        return self.decision is not None and self.decision.chosen == ACCEPT

    @property
    def rejected(self) -> bool:
        return self.decision is not None and self.decision.chosen == NOT_THIS

    @property
    def share(self) -> str:
        return share_said(self.probability)


@dataclass(frozen=True, slots=True)
class DifferenceView:
    """What should be equal on all nodes and is not. `odd`: what each odd node says, with its reading."""

    says: str
    odd: list[tuple[str, int | None]]


@dataclass(frozen=True, slots=True)
class FlowRow:
    """How RoCE is set up at nodes that are alike. `cells`: `column`, `says`, and `odd`: what it is unlike, or ""."""

    where: str
    interface: str
    cells: list[dict[str, str]]
    reading: int | None


@dataclass(frozen=True, slots=True)
class LinkView:
    """A sentence with the reading it rests on: a link of who waits for whom (waits, rank, call, line), or a speed."""

    kind: str
    says: str
    reading: int | None


@dataclass(frozen=True, slots=True)
class VerdictView:
    """The panel's content. `lead` is what somebody accepted, else the most probable that nobody rejected.

    `stronger`: a hypothesis that the evidence now speaks for more than for the accepted one. `gone`: the decision that
    accepted what the latest ranking does not name any more.
    """

    ranking: Ranking
    lead: HypothesisView
    others: list[HypothesisView]
    stronger: HypothesisView | None
    gone: Decision | None
    ruled_out: list[str]
    gaps: list[paths.GapView]
    rejected: bool
    lanes: list[paths.LaneView]
    chains: list[list[LinkView]]
    differences: list[DifferenceView]
    flow: list[FlowRow]
    speeds: list[LinkView]
    readings: int


def verdict(incident: Incident) -> VerdictView | None:
    """The latest ranking as the page shows it; None before anything was judged. Four queries at any size."""
    ranking = incident.rankings.first()
    if ranking is None:
        return None
    decisions = list(incident.decisions.filter(question=IS_THIS_IT).select_related("by"))  # the latest first
    told = _told(ranking, decisions)
    lead = _lead(told, decisions)
    rested = _rested_on(incident, ranking)
    worth = [one for one in told if one is not lead and _worth_showing(one)]
    # Where no node answered nothing speaks for "nothing is wrong" either.
    others = [one for one in worth if rested or one.said["cause"] != "none"][:MOST_OTHERS]
    refs = [ref for one in (lead, *others) for ref in one.refs]
    differ = ranking.body.get("differences", [])  # rankings of older versions have none
    refs += [each["reading"] for one in differ for each in one["readings"]]
    speeds = ranking.body.get("speeds", [])
    flow = ranking.body.get("flow", [])
    refs += [row["reading"] for row in flow]
    chains = ranking.body.get("chains", [])
    refs += [link["reading"] for chain in chains for link in chain]
    refs += [one["reading"] for one in speeds]
    readings = ranking.rests_on([*refs, *paths.named(ranking)])
    links = {ref: row.pk for ref, row in readings.items()}
    lanes = paths.lanes(ranking, readings)
    shown = _view(lead, links, _words(lead, told))
    views = [_view(one, links, AS_OTHER.get(one.said["cause"], "")) for one in others]
    return VerdictView(
        ranking=ranking,
        lead=shown,
        others=views,
        stronger=next((one for one in views if shown.accepted and one.probability > shown.probability), None),
        gone=None if shown.accepted else _gone(told, decisions),
        ruled_out=[path.title for lane in lanes for path in lane.paths if path.state == "ruled out"],
        rejected=any(one.chosen == NOT_THIS for one in told),
        gaps=[] if shown.named else paths.gaps(lanes),
        lanes=lanes,
        chains=[[LinkView(one["kind"], one["says"], links.get(one["reading"])) for one in chain] for chain in chains],
        differences=[
            DifferenceView(one["says"], [(each["says"], links.get(each["reading"])) for each in one["readings"]])
            for one in differ
        ],
        flow=[FlowRow(row["where"], row["interface"], row["cells"], links.get(row["reading"])) for row in flow],
        speeds=[LinkView("speed", one["says"], links.get(one["reading"])) for one in speeds],
        readings=rested,
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """A hypothesis as the ranking has it, with the latest decision about it and its share of what is left."""

    index: int
    said: dict[str, Any]
    decision: Decision | None
    share: float

    @property
    def chosen(self) -> str:
        return self.decision.chosen if self.decision is not None else ""

    @property
    def refs(self) -> list[str]:
        return [reason["reading"] for reason in (*self.said["because"], *self.said["against"])]


def _told(ranking: Ranking, decisions: Sequence[Decision]) -> list[_Told]:
    """Rejecting one leaves its share to the others, each as much as it has."""
    about = [(one, _about(one, decisions)) for one in ranking.body["hypotheses"]]
    rejected = [decision is not None and decision.chosen == NOT_THIS for _, decision in about]
    left = sum(one["probability"] for (one, _), out in zip(about, rejected, strict=True) if not out) or 1.0
    whole = 1.0 if not any(rejected) else left
    return [
        _Told(index, one, decision, one["probability"] / (1.0 if out else whole))
        for index, ((one, decision), out) in enumerate(zip(about, rejected, strict=True))
    ]


def _about(hypothesis: Mapping[str, Any], decisions: Sequence[Decision]) -> Decision | None:
    return next((decision for decision in decisions if same(decision.subject, hypothesis)), None)


def _worth_showing(one: _Told) -> bool:
    return one.decision is not None or _likely(one)


def _likely(one: _Told) -> bool:
    return bool(one.share >= SHOWN and one.said["probability"] >= LEAST)


def _lead(told: Sequence[_Told], decisions: Sequence[Decision]) -> _Told:
    """What was accepted last; else the most probable that nobody rejected. Where people rejected what the evidence
    named and it names nothing else, that is not "nothing wrong": it is not known."""
    accepted = [one for one in told if one.chosen == ACCEPT]
    if accepted:
        return min(accepted, key=lambda one: decisions.index(one.decision))
    open_ones = [one for one in told if one.chosen != NOT_THIS and _likely(one)]
    if any(one.chosen == NOT_THIS for one in told):
        open_ones = [one for one in open_ones if one.said["cause"] not in UNNAMED]
    unknown = next((one for one in told if one.said["cause"] == "unknown"), told[0])
    return next(iter(open_ones), unknown)


def _gone(told: Sequence[_Told], decisions: Sequence[Decision]) -> Decision | None:
    accepted = (one for one in decisions if one.chosen == ACCEPT and _about(one.subject, decisions) is one)
    return next((one for one in accepted if not any(same(one.subject, other.said) for other in told)), None)


def _words(lead: _Told, told: Sequence[_Told]) -> str:
    """The sentence of the panel. What is "something else" below a named cause says more when it leads."""
    if lead.said["cause"] != "unknown":
        return str(lead.said["says"])
    return NOTHING_ELSE if any(one.chosen == NOT_THIS for one in told) else UNDECIDED


def _view(one: _Told, links: Mapping[str, int], says: str = "") -> HypothesisView:
    said = one.said
    level = _level(said["cause"], one.share)
    about = json.dumps([said["cause"], sorted((k, v) for k, v in said["subject"].items() if k != "pid")])
    return HypothesisView(
        index=one.index,
        about=hashlib.sha256(about.encode()).hexdigest()[:12],
        cause=said["cause"],
        says=says or said["says"],
        level=level,
        probability=one.share,
        chips=_chips(said["subject"]),
        reasons=[_reason(reason, level, "", links) for reason in said["because"]]
        + [_reason(reason, "ok", "−", links) for reason in said["against"]],
        would_change=said["would_change"],
        consequences=[under["says"] for under in said["consequences"]],
        decision=one.decision,
    )


def _level(cause: str, share: float) -> str:
    unnamed = {"none": "ok", "unknown": "unknown"}
    return unnamed.get(cause, "bad" if share >= 0.5 else "warn")


def _reason(reason: Mapping[str, str], level: str, mark: str, links: Mapping[str, int]) -> ReasonView:
    node, _, probe = reason["reading"].rpartition("/")
    if probe not in catalog.load():  # a file: its name says less than its path
        node, probe = reason["reading"].rpartition("/")[2][:80], "file"
    label = "Against" if mark else probe.replace("_", " ").replace(".", " ")
    return ReasonView(level, mark, label, reason["says"], node, links.get(reason["reading"]))


def _chips(subject: Mapping[str, Any]) -> list[str]:
    order = ("node", "rank", "gpu", "bus_id", "hca", "port", "switch", "group", "mount", "device", "server")
    words = {"gpu": "GPU", "bus_id": "bus", "hca": "HCA"}
    return [f"{words.get(key, key)} {subject[key]}" for key in order if key in subject]


def _rested_on(incident: Incident, ranking: Ranking) -> int:
    """How many readings with facts the ranking rests on."""
    known = Reading.objects.filter(run__incident=incident, pk__lte=ranking.readings, outcome="ok")
    nodes = known.exclude(node=None).order_by().values("node_id", "probe").distinct().count()
    return nodes + Reading.objects.all().of_files(incident, ranking.readings).filter(outcome="ok").count()
