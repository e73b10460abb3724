"""A rank ran out of its GPU's memory."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, node_of
from probes.diagnosis.times import STEP_S, local

FULL = "gpu.out_of_memory"
LEAST = 2  # steps behind it; judgement: another rank may end its own step before all stand
WORDS = (
    "out of memory",
    "out_of_memory",
    "outofmemory",
    "cudaerrormemoryallocation",
    "oom when allocating",
    "status_alloc_failed",
)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    full = [
        one
        for one in evidence.job.said("cuda_error")
        if any(word in one[0].text.lower() for word in WORDS) and not _caught(evidence, one)
    ]
    for event, log, seen in full[:1] if all(one[0].rank is None for one in full) else ():
        node = node_of(evidence, (event, log, seen))
        says = f"A rank{f' on {node}' if node else ''} ran out of GPU memory"
        yield Hypothesis(
            FULL, {"node": node} if node else {}, says, (quoted(event, log, seen),), (_signal(event.text),)
        )
    for event, log, seen in (one for one in full if one[0].rank is not None):
        view = evidence.job.view(event.rank)
        yield Hypothesis(
            FULL,
            view.subject,
            f"{view.headline} ran out of GPU memory",
            (quoted(event, log, seen),),
            (_signal(event.text),),
            ranks=frozenset({event.rank}),
            nodes=frozenset({view.node}),
        )


def _caught(evidence: Evidence, one: Said) -> bool:
    """Whether who met it went on with its steps: it had caught it, and took a smaller batch."""
    event, log, _ = one
    steps = [
        step
        for step, other, _ in evidence.job.said("progress")
        if other is log and step.rank in (event.rank, None) and step.last_place > event.last_place
    ]
    if not steps or max(step.count for step in steps) < LEAST:
        return False
    then = local(event.stamp or str(event.more.get("after_stamp", "")))
    last = max((at for step in steps if (at := local(step.stamp)) is not None), default=None)
    return then is None or last is None or last - then > STEP_S  # the step that was under way may still end


def _signal(text: str) -> str:
    return "library_alloc_failed" if "STATUS_ALLOC_FAILED" in text else "cuda_out_of_memory"


RULE = Rule((FULL,), judge)
