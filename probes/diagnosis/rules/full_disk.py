"""A file system of a node is full: what writes to it fails."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule

CAUSE = "host.disk_full"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen, finding in evidence.findings("host.disk_full"):
        if finding.severity == "bad":
            yield Hypothesis(
                CAUSE,
                {"node": seen.node},
                f"A file system of {seen.node or 'a node'} is full: {finding.says}",
                (Reason(finding.says, seen.ref),),
                ("disk_full",),
                would_change=("room on it at a second look",),
                nodes=frozenset({seen.node}),
            )


RULE = Rule((CAUSE,), judge)
