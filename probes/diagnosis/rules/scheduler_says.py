"""What a scheduler says of a node or of memory: it killed for memory, or lost the node."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, address, node_called, node_of

MEMORY, NODE = "host.memory_oom_kill", "host.rebooted"
OUT_OF_MEMORY = ("oom", "OOMKilled", "Out Of Memory")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for one in evidence.job.said("scheduler_kill"):
        event = one[0]
        if event.name.startswith(OUT_OF_MEMORY) or event.more.get("short_of") == "memory":
            yield _hypothesis(evidence, one, MEMORY, "a process of the job was killed for memory", "memory_kill_told")
        elif event.name.startswith(("NODE FAILURE", "Node failure")):
            yield _hypothesis(evidence, one, NODE, "the scheduler lost the node", "node_failure_told")


def _hypothesis(evidence: Evidence, one: Said, cause: str, says: str, signal: str) -> Hypothesis:
    event = one[0]
    host = address(event.peer)
    node = node_called(evidence, host) or host or node_of(evidence, one)
    ranks = frozenset(event.about)
    subject: dict[str, str | int] = {"node": node} if node else {}
    if len(ranks) == 1 and cause == MEMORY:
        subject["rank"] = next(iter(ranks))
    return Hypothesis(
        cause,
        subject,
        f"On {node or 'a node'} {says}, says the scheduler",
        (quoted(*one),),
        (signal,),
        would_change=("the node up since before the job began, with memory to spare",),
        ranks=ranks or frozenset(evidence.job.ranks),
        nodes=frozenset({node}),
    )


RULE = Rule((MEMORY, NODE), judge)
