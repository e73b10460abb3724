"""The diagnostic paths: the state of each step, from what was asked and from the ranking. Not known is never green."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from probes.diagnosis.collectives import LONG_S
from probes.diagnosis.core import Evidence
from probes.diagnosis.ranking import Ranked

State = Literal["ruled out", "suspect", "implicated", "not known"]
WORST: tuple[State, ...] = ("ruled out", "not known", "suspect", "implicated")
IMPLICATED, SUSPECT = 0.5, 0.02  # judgement: shares of the ranking
ANSWERED = ("ok", "absent")
# That nothing was found to ask is no proof of health: a tool may be missing, a driver not loaded, the job elsewhere.
NOTHING_THERE = ("not found on these nodes", "no training process was found on these nodes")
Share = tuple[float, str, str]  # of a cause: the weight of its best hypothesis, its sentence, the first reading for it
NO_SHARE: Share = (0.0, "", "")


@dataclass(frozen=True, slots=True)
class StepState:
    """`why` says on what the state rests; for "not known" also what would let it be known. `reading` is the one that
    `why` is taken from, "" where it is none or many."""

    id: str
    question: str
    state: State
    why: str
    reading: str = ""


@dataclass(frozen=True, slots=True)
class PathState:
    """The worst of its steps."""

    id: str
    title: str
    lane: str
    state: State
    steps: tuple[StepState, ...]


@functools.cache
def paths() -> tuple[dict[str, Any], ...]:
    """paths.toml, in its order."""
    return tuple(tomllib.loads((resources.files("probes.diagnosis") / "paths.toml").read_text())["paths"])


def path_states(evidence: Evidence, ranked: Sequence[Ranked]) -> Mapping[str, PathState]:
    """Every path by id."""
    shares: dict[str, Share] = {}
    for one in ranked:
        for hypothesis in (one.hypothesis, *one.consequences):
            if one.probability > shares.get(hypothesis.cause, NO_SHARE)[0]:
                reading = hypothesis.because[0].reading if hypothesis.because else ""
                shares[hypothesis.cause] = (one.probability, hypothesis.says, reading)
    found = {}
    for path in paths():
        steps = tuple(_step(step, evidence, shares) for step in path["steps"])
        state = max((step.state for step in steps), key=WORST.index)
        found[path["id"]] = PathState(path["id"], path["title"], path["lane"], state, steps)
    return found


def _step(step: Mapping[str, Any], evidence: Evidence, shares: Mapping[str, Share]) -> StepState:
    share = max((shares[cause] for cause in step["causes"] if cause in shares), default=NO_SHARE)
    return StepState(step["id"], step["question"], *_judged(step, evidence, share))


def _judged(step: Mapping[str, Any], evidence: Evidence, share: Share) -> tuple[State, str, str]:
    """State, why, and the reading that it is taken from."""
    weight, says, reading = share
    if weight >= SUSPECT:
        return "implicated" if weight >= IMPLICATED else "suspect", says, reading
    for seen, finding in evidence.findings(*step.get("codes", ())):
        if finding.severity in ("warn", "bad"):
            return "suspect", finding.says, seen.ref
    if lacks := step.get("lacks"):
        return "not known", f"Golden15 does not have it yet: {lacks}", ""
    if bring := step.get("bring"):
        return _brought(step["files"], bring, evidence)
    if step.get("settles") == "standstill" and not _settled(evidence):
        return (
            "not known",
            f"no collective has waited for {LONG_S:.0f} s yet, and none was seen to end: a later look tells",
            "",
        )
    return _asked(step.get("probes", ()), evidence)


def _brought(kinds: Sequence[str], bring: str, evidence: Evidence) -> tuple[State, str, str]:
    """What files alone can answer: for all nodes, or what would be needed for it."""
    told = [one for kind in kinds for one in evidence.all_of(kind) if one.outcome in ANSWERED]
    missing = len(set(evidence.nodes) - {one.node for one in told})
    if not told:
        return "not known", f"no file here tells it: the output of {bring} would", ""
    if missing:
        return "not known", f"{missing} of {len(evidence.nodes)} nodes are missing: {bring} would tell", ""
    return "ruled out", f"{len(told)} file{'s' * (len(told) > 1)} of it, nothing speaks for it", told[0].ref


def _settled(evidence: Evidence) -> bool:
    """Whether "nobody is missing, all agree" can be said: the job goes on, or stands for long enough to see who is not
    there. Without any dump the usual words say what is missing."""
    if not any(evidence.of("rank.flight_recorder")):
        return True
    stalls = evidence.stalls
    return stalls.moving is True or any(one.age_s is None or one.age_s >= LONG_S for one in stalls.all)


def _asked(probes: Sequence[str], evidence: Evidence) -> tuple[State, str, str]:
    for probe in probes:
        readings = evidence.all_of(probe)
        if not readings:
            why = f"{probe} was not asked" if evidence.nodes else f"no file here tells what {probe} asks"
            return "not known", why, ""
        silent = [one for one in readings if one.outcome not in ANSWERED]
        missing = len(set(evidence.nodes) - {one.node for one in readings})
        if silent:
            one = silent[0]
            more = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
            return "not known", f"{probe} on {one.node or 'a node'}{more}: {one.outcome}: {one.why}"[:300], one.ref
        if missing:
            return "not known", f"{probe} has not answered yet on {missing} of {len(evidence.nodes)} nodes", ""
    answered = sum(one.outcome == "ok" for probe in probes for one in evidence.all_of(probe))
    if not answered:
        return "not known", f"{', '.join(probes)}: {NOTHING_THERE[probes[0].partition('.')[0] == 'rank']}", ""
    return "ruled out", f"{', '.join(probes)}: {answered} reading{'s' * (answered > 1)}, nothing speaks for it", ""
