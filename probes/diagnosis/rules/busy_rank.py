"""The ranks that the others wait for work: they compile, prepare data, write or read a checkpoint. Late, not hung."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probes.catalog.stacks.waits import Wait
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import RankView, quoted
from probes.diagnosis.last_words import last_said, unfinished_checkpoint
from probes.diagnosis.log_suspects import LONE_STACK
from probes.diagnosis.suspects import Suspect, seen_twice, shared, standing

BUSY, CHECKPOINT = "fw.rank_busy", "fw.checkpoint_stall"
Does = tuple[str, str]
WRITES = ("writes or reads a checkpoint", "write or read a checkpoint")  # of one rank, of several
WORKS = ("works in its own code", "work in their own code")
KINDS = {
    "compile": (BUSY, "in_compile", "in_compile_one_look", ("compiles", "compile")),
    "preprocessing": (BUSY, "in_preprocessing", "in_preprocessing_one_look", ("prepares data", "prepare data")),
    "generating": (BUSY, "in_generation", "in_generation_one_look", ("generates samples", "generate samples")),
    "checkpoint": (CHECKPOINT, "in_checkpoint", "in_checkpoint_one_look", WRITES),
}
COMPILERS = ("nvcc", "cicc", "ptxas", "cudafe++", "cc1plus", "ninja", "hipcc", "fatbinary")
BY_STACK = {"rank_elsewhere_by_stack", LONE_STACK}
BURNS = 80.0  # percent of a core; judgement: a thread that waits uses none
MOST = 4  # ranks whose stacks are told


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    proven, saved = standing(evidence), _saved(evidence)
    found: dict[tuple[str, str, Does], list[tuple[RankView, Reason]]] = {}
    for suspect in evidence.suspects.values():
        told = _works(suspect, proven, saved)
        if told is not None:
            cause, signal, does, reason = told
            found.setdefault((cause, signal, does), []).append((suspect.view, reason))
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
            lone = set(suspect.signals) == {LONE_STACK}
            signal = strong if (proven and not lone) or not set(suspect.signals) <= BY_STACK else weak
            return cause, signal, does, Reason(f"rank {view.rank}: main thread in {waits}", view.ref("rank.stack"))
    looked_twice = view.stack is not None and bool(view.stack.earlier)
    if waits.kind == "user code" and looked_twice and not seen_twice(view):
        burns = (view.process.cpu_percent or 0.0) >= BURNS if view.process is not None else waits.busy is True
        burns |= view.stack is not None and view.stack.look.gil is True  # percents of ps are means of its whole life
        if burns:
            at = waits.at.short if waits.at else "another line"
            says = f"rank {view.rank}: main thread runs, at {at} now and elsewhere before"
            return BUSY, "works_in_own_code", WORKS, Reason(says, view.ref("rank.stack"))
    return None


def _saved(evidence: Evidence) -> dict[int, Reason]:
    """Ranks whose last line that tells where they are is of a checkpoint."""
    found = {}
    for (rank, _), said in last_said(evidence).items():
        if rank is not None and unfinished_checkpoint(said[0]):
            found[rank] = quoted(*said, f"the last that rank {rank} wrote is of a checkpoint")
    return found


RULE = Rule((BUSY, CHECKPOINT), judge)
