"""The ranks that the others wait for work: they compile, prepare data, write or read a checkpoint. Late, not hung."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from probes.catalog._stack_waits import Wait
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.suspects import Suspect, seen_twice, shared, standing

BUSY, CHECKPOINT = "fw.rank_busy", "fw.checkpoint_stall"
Does = tuple[str, str]
WRITES = ("writes or reads a checkpoint", "write or read a checkpoint")  # of one rank, of several
WORKS = ("works in its own code", "work in their own code")
KINDS = {
    "compile": (BUSY, "in_compile", "in_compile_one_look", ("compiles", "compile")),
    "preprocessing": (BUSY, "in_preprocessing", "in_preprocessing_one_look", ("prepares data", "prepare data")),
    "checkpoint": (CHECKPOINT, "in_checkpoint", "in_checkpoint_one_look", WRITES),
}
COMPILERS = ("nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "ninja", "hipcc", "fatbinary")
BY_STACK = {"rank_elsewhere_by_stack"}
BURNS = 80.0  # percent of a core; judgement: a thread that waits uses none
MOST = 4  # ranks whose stacks are told
ENDED = re.compile(r"saved|loaded|written|wrote|done|finished|complete|took|success", re.I)  # of a checkpoint
# Progress bars of data sets (Hugging Face datasets) and of who tokenises with them: accelerate#2528, LlamaFactory#1196.
PREPARES = re.compile(
    r"(?:Map|Filter|Tokeniz\w{0,10}|Running tokenizer|Generating \w{1,20} split|Grouping texts|Preprocess\w{0,10})"
    r"[^|%]{0,80}\d{1,3}%\|"
)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    proven, saved = standing(evidence), _saved(evidence)
    found: dict[tuple[str, str, Does], list[tuple[RankView, Reason]]] = {}
    for suspect in evidence.suspects.values():
        told = _works(suspect, proven, saved)
        if told is not None:
            cause, signal, does, reason = told
            found.setdefault((cause, signal, does), []).append((suspect.view, reason))
    if not any(cause == BUSY for cause, _, _ in found):
        yield from _prepares(evidence, proven)
    for (cause, signal, does), some in found.items():
        views = [view for view, _ in some]
        subject, called = shared(views)
        where = next((f" at {waits.at.short}" for view in views if (waits := view.waits) and waits.at), "")
        yield Hypothesis(
            cause,
            subject,
            f"{called} {does[len(views) > 1]}{where}, and the others wait for {'it' if len(views) == 1 else 'them'}",
            tuple(reason for _, reason in some[:MOST]),
            (signal,),
            would_change=("a second look at which it is still at the same line",),
            ranks=frozenset(view.rank for view in views),
            nodes=frozenset(view.node for view in views),
        )


def _works(suspect: Suspect, proven: bool, saved: Mapping[int, Reason]) -> tuple[str, str, Does, Reason] | None:
    """(cause, signal, what it does, on what that stands). `saved`: ranks whose last line is of a checkpoint."""
    view, waits = suspect.view, suspect.view.waits
    compiler = next((one for one in view.workers if one.comm in COMPILERS), None)
    if compiler is not None:
        says = f"rank {view.rank}: its child {compiler.pid} is {compiler.comm}, a compiler"
        return BUSY, "in_compile", KINDS["compile"][3], Reason(says, view.ref("rank.process"))
    told = _by_stack(suspect, waits, proven) if waits is not None else None
    if told is None and view.rank in saved:
        return CHECKPOINT, "checkpoint_in_log", WRITES, saved[view.rank]
    return told


def _by_stack(suspect: Suspect, waits: Wait, proven: bool) -> tuple[str, str, Does, Reason] | None:
    view = suspect.view
    for kind in (waits.kind, *waits.within):
        if kind in KINDS and (kind == waits.kind or waits.kind in ("input/output", "lock", "user code")):
            cause, strong, weak, does = KINDS[kind]
            signal = strong if proven or not set(suspect.signals) <= BY_STACK else weak
            return cause, signal, does, Reason(f"rank {view.rank}: main thread in {waits}", view.ref("rank.stack"))
    looked_twice = view.stack is not None and bool(view.stack.earlier)
    if waits.kind == "user code" and looked_twice and not seen_twice(view):
        burns = (view.process.cpu_percent or 0.0) >= BURNS if view.process is not None else waits.busy is True
        if burns:
            at = waits.at.short if waits.at else "another line"
            says = f"rank {view.rank}: main thread runs, at {at} now and elsewhere before"
            return BUSY, "works_in_own_code", WORKS, Reason(says, view.ref("rank.stack"))
    return None


def _prepares(evidence: Evidence, proven: bool) -> Iterator[Hypothesis]:
    """A log that ends in the progress bar of a data set, while others waited until their limit ran out."""
    if not proven and next(evidence.job.said("store_timeout", "rendezvous"), None) is None:
        return
    for seen in evidence.of("rank.log"):
        for log in seen.facts.logs:
            line = next((line for line in log.tail if PREPARES.search(line)), None)
            if line is None:
                continue
            view = evidence.job.view(log.rank) if log.rank is not None else None
            yield Hypothesis(
                BUSY,
                view.subject if view is not None else {},
                f"{view.headline if view is not None else 'A rank'} was still preparing data when the others gave up",
                (Reason(f"{log.file.rpartition('/')[2] or 'log'}: {line.strip()[:160]}", seen.ref),),
                ("preprocessing_in_log",),
                would_change=("a stack of that rank that is elsewhere",),
                ranks=frozenset({view.rank}) if view is not None else frozenset(),
                nodes=frozenset({seen.node}),
            )
            return


def _saved(evidence: Evidence) -> dict[int, Reason]:
    """Ranks whose last line that tells where they are is of a checkpoint."""
    last: dict[int, Reason | None] = {}
    for event, log, seen in evidence.job.said("checkpoint", "progress"):
        if event.rank is not None:
            says = f"the last that rank {event.rank} wrote is of a checkpoint"
            begun = event.kind == "checkpoint" and not ENDED.search(event.text)
            last[event.rank] = quoted(event, log, seen, says) if begun else None
    return {rank: reason for rank, reason in last.items() if reason is not None}


RULE = Rule((BUSY, CHECKPOINT), judge)
