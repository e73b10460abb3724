"""A log that ends in preparing data, or in a checkpoint that is not done, while the limits of others ran out.

Source   accelerate#2528, LlamaFactory#1196 (rank 0 tokenises while the others wait), DeepSpeed#7533 (a save outlasts
         the limit): the ranks that wait write the errors, the one that works writes how far it is
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.last_words import (
    compiles,
    last_said,
    unfinished_checkpoint,
    unfinished_evaluation,
    unfinished_preparation,
)
from probes.diagnosis.log_evidence import Said
from probes.diagnosis.suspects import ranks_said

BUSY, CHECKPOINT = "fw.rank_busy", "fw.checkpoint_stall"
GAVE_UP = ("watchdog_timeout", "gloo_timeout", "blocking_wait", "store_timeout", "setup_missed", "heartbeat",
    "rendezvous")  # fmt: skip
# (what it is, cause, signal where nobody knows who waited, signal where others did, words)
WORKS = (
    (unfinished_preparation, BUSY, "preprocessing_in_log", "preprocessing_while_others_gave_up", "preparing data"),
    (unfinished_evaluation, BUSY, "preprocessing_in_log", "evaluation_while_others_gave_up", "evaluating"),
    (compiles, BUSY, "preprocessing_in_log", "compiling_while_others_gave_up", "compiling"),
    (unfinished_checkpoint, CHECKPOINT, "checkpoint_last_in_log", "checkpoint_while_others_gave_up",
        "writing or reading a checkpoint"),
)  # fmt: skip
LONE = 2  # judgement: so many ranks must have given up before the one that did not is named


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    said = list(evidence.job.said(*GAVE_UP))
    if not said:
        return
    waited = {event.rank for event, _, _ in said if event.rank is not None}
    last = last_said(evidence)
    named = {one[1].file for (rank, _), one in last.items() if rank is not None and _working(one, rank, waited)}
    for (rank, _), one in last.items():
        if rank is None and one[1].file in named:
            continue  # lines of the same log say which rank it is
        if rank in waited or (rank is not None and evidence.job.view(rank).stack is not None):
            continue  # it waited itself, or its stack says what it does
        view = evidence.job.view(rank) if rank is not None else _absent(evidence, waited)
        for fits, cause, alone, beside, words in WORKS:
            if fits(one[0]):
                yield _works(one, view, cause, beside if waited else alone, words, waited)


def _working(one: Said, rank: int, waited: set[int]) -> bool:
    return rank not in waited and any(fits(one[0]) for fits, *_ in WORKS)


def _absent(evidence: Evidence, waited: set[int]) -> RankView | None:
    """The one rank that did not give up, where nearly all others did."""
    size = evidence.job.world_size or max(waited, default=0) + 1
    absent = set(range(size)) - waited
    return evidence.job.view(absent.pop()) if len(absent) == 1 and len(waited) >= LONE else None


def _works(one: Said, view: RankView | None, cause: str, signal: str, words: str, waited: set[int]) -> Hypothesis:
    who = ranks_said(sorted(waited)) if waited else "the others"
    return Hypothesis(
        cause,
        view.subject if view is not None else {},
        f"{view.headline if view is not None else 'A rank'} was still {words} when {who} gave up",
        (quoted(*one),),
        (signal,),
        would_change=("a stack of that rank that is elsewhere",),
        ranks=frozenset({view.rank}) if view is not None else frozenset(),
        nodes=frozenset({view.node if view is not None else one[2].node}),
    )


RULE = Rule((BUSY, CHECKPOINT), judge)
