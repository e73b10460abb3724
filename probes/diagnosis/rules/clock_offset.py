"""Clocks apart hang no collective; beyond about 15 s they break elastic rendezvous, and mislead readers of logs."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    rendezvous = next(iter(evidence.job.said("rendezvous", "store_timeout", "store_closed")), None)
    for seen, finding in evidence.findings("host.clock_offset"):
        far = finding.severity == "bad"
        because = [Reason(finding.says, seen.ref)]
        if far and rendezvous is not None:
            event, log, source = rendezvous
            because.append(quoted(event, log, source))
        yield Hypothesis(
            "host.clock_offset",
            {"node": seen.node},
            f"The clock of {seen.node} is off: {finding.says}",
            tuple(because),
            ("clock_over_rendezvous",) if far and rendezvous is not None else ("clock_apart",),
            against=()
            if rendezvous
            else (Reason("no collective waits on clocks, and no log speaks of a rendezvous", seen.ref),),
            would_change=("a rendezvous error in the logs of a rank",),
            nodes=frozenset({seen.node}),
        )


RULE = Rule(("host.clock_offset",), judge)
