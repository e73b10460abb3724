"""A file system of a node is full, or out of inodes. That a rank failed on it, `no_space` reads from the rank's log."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule

CAUSE = "host.disk_full"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen, finding in evidence.findings("host.disk_full", "host.inodes_full"):
        if finding.severity == "bad":
            yield Hypothesis(
                CAUSE,
                {"node": seen.node} if seen.node else {},
                f"A file system of {seen.node or 'a node'} is full: {finding.says}",
                (Reason(finding.says, seen.ref),),
                ("disk_full",),
                would_change=("room on it at a second look",),
            )


RULE = Rule((CAUSE,), judge)
