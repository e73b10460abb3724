"""An exception in a log that several ranks write, of which no line says whose it is: others tell there of its end.

Source   a job without a launcher that marks lines: Python prints a traceback without a rank, gloo and NCCL of the peers
         write that their connection closed
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, node_of
from probes.diagnosis.rules.rank_exited import EXITED, of_others, own_exceptions, went_on

LOST = ("peer_closed", "remote_error")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    unmarked = [one for one in evidence.job.said("traceback") if one[0].rank is None]
    raised = [one for one in unmarked if not of_others(replace(one[0], rank=0)) and _of_several(evidence, one)]
    if not raised or own_exceptions(evidence) or went_on(evidence, raised[0]):
        return  # an exception whose rank is told comes first
    event, log, seen = one = raised[0]
    place = f" at {event.where}" if event.where else ""
    node = node_of(evidence, one)
    yield Hypothesis(
        EXITED,
        {"node": node} if node else {},
        f"A rank raised {event.name or 'an exception'}{place}",
        (quoted(event, log, seen),),
        ("own_exception",),
        would_change=("which rank wrote it", "an earlier exception"),
        nodes=frozenset({node}),
    )


def _of_several(evidence: Evidence, one: Said) -> bool:
    """Whether marks name several ranks in its log, and one of them tells there that a peer is gone."""
    ranks = {event.rank for event, log, _ in evidence.job.said("progress") if log is one[1]} - {None}
    lost = (event for event, log, _ in evidence.job.said(*LOST) if log is one[1])
    return len(ranks) > 1 and any(event.last_place > one[0].last_place for event in lost)


RULE = Rule((EXITED,), judge)
