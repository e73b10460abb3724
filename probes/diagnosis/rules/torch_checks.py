"""torch's own checks say it: a race between streams, NaN at a collective, work never waited for.

Source   torch 2.13: cuda/_sanitizer.py (TORCH_CUDA_SANITIZER=1), NanCheck.cu (TORCH_NCCL_NAN_CHECK=1), Functional.cpp
         ("unwaited collective calls", when the process ends)
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.logs.events import QUIET, RankLog
from probes.catalog.logs.python import NAN_CHECK
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.suspects import shared

STREAM, NAN, AWAITED = "fw.stream_order", "fw.nan_gradient", "fw.async_not_awaited"
# (words in a line or an exception, cause, signal, what is said of a rank)
CHECKS = (
    ("CSAN detected a possible data race", STREAM, "race_by_sanitizer", "torch's sanitizer saw two streams race"),
    ("CUDASanitizerErrors", STREAM, "race_by_sanitizer", "torch's sanitizer saw two streams race"),
    ("Assertion `!isnan(", NAN, "nan_at_collective", "NaN was found in what a collective was given"),
    (NAN_CHECK, NAN, "nan_at_collective", "NaN was found in what a collective was given"),
    ("unwaited collective calls", AWAITED, "unwaited_at_exit", "collectives were never waited for when it ended"),
)
ASSERT = "device-side assert"
MOST = 4


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found: dict[tuple[str, str, str], dict[int | None, Reason]] = {}
    for text, rank, reason in _lines(evidence):
        for words, cause, signal, says in CHECKS:
            if words in text:
                found.setdefault((cause, signal, says), {}).setdefault(rank, reason)
    for (cause, signal, says), by_rank in found.items():
        if signal == "unwaited_at_exit" and _all_wrote(evidence, set(by_rank)) and not _failed(evidence):
            signal = "unwaited_at_regular_exit"
        views = [evidence.job.view(rank) for rank in sorted(rank for rank in by_rank if rank is not None)]
        subject, called = shared(views) if views else ({}, "A rank")
        yield Hypothesis(
            cause,
            subject,
            f"{called}: {says}",
            tuple(by_rank.values())[:MOST],
            (signal,),
            would_change=("the same run without that message",),
            ranks=frozenset(view.rank for view in views),
            nodes=frozenset(view.node for view in views),
        )


def _all_wrote(evidence: Evidence, ranks: set[int | None]) -> bool:
    """Whether several ranks wrote it, or each whose log is here."""
    told = {event.rank for event, _, _ in evidence.job.events} - {None}
    return len(ranks) > 1 or bool(told and told <= ranks)


def _failed(evidence: Evidence) -> bool:
    """Whether any log tells of an error: who is ended in the middle of a step leaves collectives without a wait."""
    harmless = QUIET | {"unwaited", "nccl_warn", "ranks_restarted"}
    return any(event.kind not in harmless for event, _, _ in evidence.job.events)


def _stopped_by(evidence: Evidence, log: RankLog) -> int | None:
    """What the device prints bears no mark. The one rank of the log that then met an assert of the device wrote it."""
    met = [event.rank for event, other, _ in evidence.job.said("cuda_error") if other is log and ASSERT in event.text]
    return met[0] if len(set(met)) == 1 else None


def _lines(evidence: Evidence) -> Iterator[tuple[str, int | None, Reason]]:
    """Errors, and the last lines of each log, with the rank that wrote them."""
    for event, log, seen in evidence.job.said(
        "traceback", "cuda_error", "fatal_signal", "ddp_unused", "nan", "unwaited", "stream_race"
    ):
        rank = event.rank if event.rank is not None else _stopped_by(evidence, log) if event.kind == "nan" else None
        yield f"{event.name}: {event.text}", rank, quoted(event, log, seen)
    for seen in evidence.of("rank.log"):
        for log in seen.facts.logs:
            for line in log.tail:
                yield line, log.rank, Reason(f"{log.file.rpartition('/')[2] or 'log'}: {line[:200]}", seen.ref)


RULE = Rule((STREAM, NAN, AWAITED), judge)
