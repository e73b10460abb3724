"""Clocks apart hang no collective; beyond about 15 s they break elastic rendezvous, and mislead readers of logs."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted

TICKETS = ("munge", "Munge", "clock skew", "Clock skew", "Rewound credential", "Expired credential", "not yet valid")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    said = list(evidence.job.said("rendezvous", "store_timeout", "store_closed"))
    said += [one for one in evidence.job.said("traceback") if "endezvous" in one[0].name + one[0].text]
    tickets = [one for one in evidence.job.events if any(words in one[0].text for words in TICKETS)]
    found = next(iter([*tickets, *said]), None)
    hit = frozenset(event.rank for event, _, _ in (*tickets, *said) if event.rank is not None)
    for seen, finding in evidence.findings("host.clock_offset"):
        far = finding.severity == "bad"
        because = [Reason(finding.says, seen.ref)]
        if far and found is not None:
            because.append(quoted(*found))
        yield Hypothesis(
            "host.clock_offset",
            {"node": seen.node} if seen.node else {},
            f"The clock of {seen.node or 'a node'} is off: {finding.says}",
            tuple(because),
            ("clock_over_rendezvous",) if far and found is not None else ("clock_apart",),
            against=()
            if found
            else (Reason("no collective waits on clocks, and no log speaks of a rendezvous or a ticket", seen.ref),),
            would_change=("a rendezvous error in the logs of a rank",),
            ranks=hit if far and found is not None else frozenset(),
            nodes=frozenset({seen.node}) if far and found is not None else frozenset(),
        )


RULE = Rule(("host.clock_offset",), judge)
