"""Somebody ran the job twice and changed one thing between: what made it slow or hang is what that thing is about."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog._levers import LEVERS, Lever
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.cpus import busiest

BY_NAME = {lever.name: lever for lever in LEVERS}
MUCH = 2.0  # times as fast: no other noise does that; judgement
OFTEN = ("cpu.dataloader_starved",)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    best: dict[str, tuple[float, Seen, int]] = {}
    for seen in evidence.of("evidence.trials"):
        for at, one in enumerate(seen.facts.trials):
            times = float("inf") if one.times is None else one.times
            cause = BY_NAME[one.lever].cause
            if cause not in best or times > best[cause][0]:
                best[cause] = times, seen, at
    for cause, (times, seen, at) in best.items():
        one = seen.facts.trials[at]
        lever = BY_NAME[one.lever]
        much = "does not, as it does otherwise, hang or fail" if one.times is None else f"is {times:g} times as fast"
        yield Hypothesis(
            cause,
            _subject(evidence, seen, lever, one.node),
            f"{lever.how} the job {much}",
            (Reason(f"worse: {one.worse}", seen.ref), Reason(f"better: {one.better}", seen.ref)),
            (_signal(lever, times),),
            would_change=("the same two runs again, with nothing else changed",),
        )


def _signal(lever: Lever, times: float) -> str:
    if times < MUCH or lever.cause in OFTEN:
        return "trial_much" if lever.rare else "trial"
    return "trial_of_rare" if lever.rare else "trial_much"


def _subject(evidence: Evidence, seen: Seen, lever: Lever, named: str) -> dict[str, str | int]:
    """The program that was stopped is the busiest that is none of the job's, where one is seen on one node only."""
    if lever.cause == "cpu.process_hotspot":
        busy = [(here.node, found[0]) for here in evidence.cpus.values() if (found := busiest(here.others()))]
        if len(busy) == 1:
            node, (name, _, some) = busy[0]
            worst = max(some, key=lambda one: one.cpu or 0.0)
            subject: dict[str, str | int] = {"node": node} if node else {}
            return subject | ({"pid": worst.pid} if worst.pid > 0 else {}) | {"process": name}
    node = (seen.node or named) if lever.of_node else ""
    return {"node": node} if node else {}


RULE = Rule(tuple(dict.fromkeys(lever.cause for lever in LEVERS)), judge)
