"""An incident is judged again with each new reading: what is taken over must be what a judgement from nothing says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes import drills
from probes.diagnosis import Diagnoser, Seen, diagnose
from probes.diagnosis.core import Evidence, Rule, seen
from probes.diagnosis.judging import all_rules
from probes.explain import intake

RECORDED = Path(drills.__file__).parent


def readings(name: str) -> list[Seen]:
    """What a drill recorded at first."""
    return [seen(reading, ref) for ref, reading in intake.read([RECORDED / name]).readings]


@pytest.mark.parametrize("name", ["rank-stopped", "gpu-off-bus"])
@pytest.mark.parametrize("order", [1, 2])
def test_judging_step_by_step_says_the_same_as_judging_at_once(name: str, order: int) -> None:
    found = readings(name)
    random.Random(order).shuffle(found)
    asked, again = sorted({one.node for one in found}), Diagnoser()
    for there in range(5, len(found) + 1, 7):
        assert again.diagnose(found[:there], asked) == diagnose(found[:there], asked)


def test_a_rule_is_asked_again_only_when_what_it_looked_at_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def watched(name: str, rule: Rule) -> Rule:
        def judge(evidence: Evidence) -> Iterator[object]:
            asked.append(name)
            yield from rule.judge(evidence)

        return Rule(rule.causes, judge)  # type: ignore[arg-type]

    rules = {name: watched(name, rule) for name, rule in all_rules().items()}
    monkeypatch.setattr("probes.diagnosis.judging.all_rules", lambda: rules)
    found, again = [one for one in readings("rank-stopped") if one.probe != "rank.log"], Diagnoser()
    first, asked[:] = again.diagnose(found), []
    assert again.diagnose(list(found)) == first
    assert asked == []
    newer = [seen_again(one) if one.probe == "rank.process" else one for one in found]
    again.diagnose(newer)
    assert "stopped_rank" in asked and "congestion" not in asked


def seen_again(one: Seen) -> Seen:
    return Seen(one.ref, one.node, one.probe, one.outcome, one.why, one.facts, one.findings)


def test_a_rule_that_failed_is_said_again_as_long_as_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(evidence: Evidence) -> Iterator[object]:
        list(evidence.of("rank.map"))
        raise RuntimeError("odd")

    monkeypatch.setattr("probes.diagnosis.judging.all_rules", lambda: {"broken": Rule((), broken)})
    found, again = readings("rank-stopped"), Diagnoser()
    assert again.diagnose(found).failed == again.diagnose(list(found)).failed == {"broken": "RuntimeError: odd"}
