"""Reads of the diagnostic paths for pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from incidents.models import Ranking, Reading

LANES = {"hardware": "Hardware & host", "communication": "Communication", "framework": "Framework"}
LEVELS = {"implicated": "bad", "suspect": "warn", "ruled out": "ok", "not known": "unknown"}
LACKS = "Golden15 does not have it yet"  # how diagnosis begins what it cannot ask at all
# Beside the title of a path there is room for a few words.
SHORT = {LACKS: "not built yet", "no file here tells it": "no file tells it"}
MOST_GAPS = 6


@dataclass(frozen=True, slots=True)
class StepView:
    """One question of a path. `reading` is the one that `why` is taken from, None where it is none or many."""

    question: str
    state: str
    level: str
    why: str
    short: str  # why it is not known, in a word or two
    reading: int | None


@dataclass(frozen=True, slots=True)
class PathView:
    """`short` says beside the title why it is not known, else ""."""

    id: str
    title: str
    state: str
    level: str
    short: str
    steps: list[StepView]


@dataclass(frozen=True, slots=True)
class LaneView:
    title: str
    says: str
    level: str
    paths: list[PathView]


@dataclass(frozen=True, slots=True)
class GapView:
    """Why some paths are not known, in one line."""

    titles: str
    why: str
    reading: int | None


def lanes(ranking: Ranking, readings: Mapping[str, Reading]) -> list[LaneView]:
    """The paths in their three lanes. `readings` has that of each name that a step may give."""
    return [_lane(title, [_path(*item, readings) for item in _of(ranking, lane)]) for lane, title in LANES.items()]


def _of(ranking: Ranking, lane: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((key, path) for key, path in ranking.body["paths"].items() if path["lane"] == lane)


def _lane(title: str, paths: list[PathView]) -> LaneView:
    counts = {state: sum(path.state == state for path in paths) for state in LEVELS}
    state = next((state for state in ("implicated", "suspect") if counts[state]), "")
    says = f"{counts[state]} {state}" if state else f"{counts['ruled out']} of {len(paths)} ruled out"
    return LaneView(title, says, LEVELS.get(state, ""), paths)


def _path(key: str, path: dict[str, Any], readings: Mapping[str, Reading]) -> PathView:
    steps = [_step(step, readings.get(step.get("reading", ""))) for step in path["steps"]]
    short = _gap(steps).short if path["state"] == "not known" else ""
    return PathView(key, path["title"], path["state"], LEVELS[path["state"]], short, steps)


def _step(step: dict[str, str], reading: Reading | None) -> StepView:
    why = step["why"]
    short = next((words for start, words in SHORT.items() if why.startswith(start)), why)
    short = reading.outcome if reading is not None and short == why else short
    pk = reading.pk if reading is not None else None
    return StepView(step["question"], step["state"], LEVELS[step["state"]], why, short, pk)


def _gap(steps: list[StepView]) -> StepView:
    """Of the questions without an answer the one to show: that which was asked, else one that can be."""
    unknown = (step for step in steps if step.state == "not known")
    return min(unknown, key=lambda step: (step.reading is None, step.why.startswith(LACKS)))


def named(ranking: Ranking) -> Iterator[str]:
    """The names of the readings that steps give."""
    return (step.get("reading", "") for path in ranking.body["paths"].values() for step in path["steps"])


def counted(lanes: list[LaneView]) -> str:
    """`16 paths · 11 ruled out · 1 implicated`"""
    states = [path.state for lane in lanes for path in lane.paths]
    parts = [f"{states.count(state)} {state}" for state in ("ruled out", "suspect", "implicated", "not known")]
    return " · ".join([f"{len(states)} paths", *(part for part in parts if not part.startswith("0 "))])


def gaps(lanes: list[LaneView]) -> list[GapView]:
    """What was not found out and why: what evidence can be had for first, what cannot be asked at all last."""
    same: dict[str, list[tuple[PathView, StepView]]] = {}
    for path in (path for lane in lanes for path in lane.paths if path.state == "not known"):
        step = _gap(path.steps)
        same.setdefault(LACKS if step.why.startswith(LACKS) else step.why, []).append((path, step))
    ordered = sorted(same.items(), key=lambda item: (item[0] == LACKS, -len(item[1])))
    found = [
        GapView(", ".join(path.title for path, _ in open_ones), why, open_ones[0][1].reading)
        for why, open_ones in ordered
    ]
    if len(found) <= MOST_GAPS:
        return found
    rest = found[MOST_GAPS - 1 :]
    return [*found[: MOST_GAPS - 1], GapView(", ".join(gap.titles for gap in rest), "see the paths below", None)]
