"""An oddity explains nothing: rules whose unlikely hypotheses take over nothing that speaks for another cause."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeAlias

from probes.diagnosis.core import Evidence, Hypothesis
from probes.diagnosis.ranking import WEAK, strength

Judge: TypeAlias = Callable[[Evidence], Iterable[Hypothesis]]


def modest(judge: Judge) -> Judge:
    """A judge whose unlikely hypotheses explain nothing: an oddity must not take over what speaks for another cause."""

    @functools.wraps(judge)
    def judged(evidence: Evidence) -> Iterator[Hypothesis]:
        for one in judge(evidence):
            likely = strength(one.signals) >= WEAK
            yield one if likely else replace(one, ranks=frozenset(), nodes=frozenset())

    return judged
