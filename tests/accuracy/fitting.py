"""How far the table of likelihoods may be trusted: one number, fitted on the tuning split only.

weight = prior x ratio ^ tempering. 1 takes the ratios at their word; with less the ranking is less sure of itself.
A number per signal would need some ten cases per signal; there are fewer, so each ratio stays a stated judgement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from probes.diagnosis import ranking
from probes.explain import explain
from tests.accuracy.cases import Case, neutral
from tests.accuracy.score import fits

STEPS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
LEAST = 1e-4  # a truth that is not in the ranking at all costs as much as one of this share


def loss(case: Case) -> float:
    """-log of the share that the truth has."""
    with neutral(case) as place:
        ranked = explain([place]).diagnosis.ranked
    truths = case.accepted + case.second
    there = [one for one in ranked if any(fits(t, one.hypothesis.cause, one.hypothesis.subject) for t in truths)]
    return -math.log(max(LEAST, sum(one.probability for one in there)))


def show(found: Sequence[Case]) -> int:
    """Print the mean loss on the tuning split for each step."""
    mine = [one for one in found if one.split == "tuning"]
    table = Table("tempering", "mean loss", title=f"{len(mine)} cases of the tuning split")
    for step in STEPS:
        with patch.object(ranking, "tempering", lambda step=step: step):
            table.add_row(f"{step:g}", f"{sum(map(loss, mine)) / max(1, len(mine)):.3f}")
    Console().print(table)
    return 0
