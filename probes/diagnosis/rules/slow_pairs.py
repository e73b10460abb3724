"""Tests between pairs of nodes: one node is in every pair that is slow, and in none that is fast."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule

CAUSE = "ib.link_degraded"
SLOW = 0.7  # of what the fast half of all pairs reach; judgement: tests of one pair vary by a few percent
FEWEST = 3  # pairs


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    tests = [(one, seen.ref) for seen in evidence.of("net.bandwidths") for one in seen.facts.tests if one.a and one.b]
    if len(tests) < FEWEST:
        return
    values = sorted(one.value for one, _ in tests)
    usual = median(values[len(values) // 2 :])
    slow = [(one, ref) for one, ref in tests if one.value < SLOW * usual]
    fast = {node for one, _ in tests if one.value >= SLOW * usual for node in (one.a, one.b)}
    if not slow or len(slow) * 3 > len(tests) * 2:
        return
    common = set.intersection(*({one.a, one.b} for one, _ in slow)) - fast
    if len(common) != 1 or (len(slow) < 2 and len({one.a for one, _ in tests} | {one.b for one, _ in tests}) < FEWEST):
        return
    node = common.pop()
    told = [Reason(f"{one.a} to {one.b}: {one.value:g}, usual is {usual:g}", ref) for one, ref in slow[:5]]
    yield Hypothesis(
        CAUSE, {"node": node}, f"Every test with {node} is slow, and no other: its link, or its way to the adapter",
        tuple(told), ("slow_in_all_pairs",),
        would_change=("the same tests with its other adapters", "its link's rate and errors: mlxlink, ibstat"),
        nodes=frozenset({node}),
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
