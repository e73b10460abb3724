"""The kernel saw a process of the job crash: in the communication library, or in the program."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.times import times_of

LIBRARY, EXITED = "nccl.library_fault", "fw.rank_exited"
TRAINS = ("python", "pt_", "torchrun", "NCCL ", "RCCL ")
OF_NCCL = ("libnccl", "librccl")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    times = times_of(evidence)
    pids: dict[tuple[str, int], int] = evidence.places.pids
    for seen in evidence.of("host.kernel_log"):
        said = [finding for finding in seen.findings if finding.code == "kernel.segfault"]
        for event, finding in zip(seen.facts.segfaults, said, strict=False):
            rank = pids.get((seen.node, event.pid))
            if rank is None and not seen.node:  # a line of a log of no node: a pid that only one rank has
                owners = {one for (_, pid), one in pids.items() if pid == event.pid}
                rank = owners.pop() if len(owners) == 1 else None
            view = evidence.job.view(rank) if rank is not None else None
            if view is None and not event.process.startswith(TRAINS):
                continue
            if times.old(seen.node, event.last_at, event.last):
                continue
            if view is None and times.long_ago(seen.node, event.last_at, event.last):
                continue
            ours = event.library.startswith(OF_NCCL)
            subject: dict[str, str | int] = {"node": seen.node} if seen.node else {}
            subject |= view.subject if view is not None else {"pid": event.pid}
            yield Hypothesis(
                LIBRARY if ours else EXITED,
                subject,
                f"On {seen.node or 'a node'} {finding.says}",
                (Reason(finding.says, seen.ref),),
                ("segfault_in_nccl",) if ours else ("segfault_of_training",),
                would_change=("the same process, still there",),
                ranks=frozenset({view.rank}) if view is not None else frozenset(),
                nodes=frozenset({seen.node}),
            )


RULE = Rule((LIBRARY, EXITED), judge)
