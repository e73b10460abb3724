"""What a scheduler says of a node: it killed for memory, ended for want of room, or lost the node."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog._cluster_facts import TRAINS
from probes.diagnosis.cluster import node_of_pod
from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, address, node_called, node_of
from probes.diagnosis.rules.rebooted import signs
from probes.diagnosis.times import Times, times_of

MEMORY, NODE, DISK, SHARED = "host.memory_oom_kill", "host.rebooted", "host.disk_full", "host.shm_full"
LOST = ("Node failure", "unexpectedly rebooted", "on failed node", "not responding, setting DOWN", "taken away")
# What was short, as kubelet calls it (eviction/helpers.go) -> the cause and what is said of it.
SHORT_OF = {
    "ephemeral-storage": (DISK, "its pod was evicted because the node's disk was full"),
    "inodes": (DISK, "its pod was evicted because the node's disk had no inodes left"),
    "shm": (SHARED, "its pod was evicted because its shared memory was larger than allowed"),
}
UNNAMED = ("NODE FAILURE", "NODE_FAIL")
OUT_OF_MEMORY = ("OUT_OF_ME", "Exceeded", "oom", "OOMKilled", "Out Of Memory")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    times = times_of(evidence)
    killed = [one for one in evidence.job.said("scheduler_kill") if _for_memory(one) and not _old(times, one)]
    named = {_node(evidence, one) for one in killed} - {""}
    told: set[tuple[str, frozenset[int]]] = set()
    for one in killed:
        # A line that names no node tells of the one that another line names; of two about one node one is enough.
        about = (_node(evidence, one), frozenset(one[0].about))
        if (about[0] or not named) and about not in told:
            told.add(about)
            says, signal = "a process of the job was killed for memory, says the scheduler", "memory_kill_told"
            if _of_another(evidence, one):
                says, signal = (
                    "a kill for memory is told, and the kernel killed no process of a job",
                    "memory_kill_of_another",
                )
            yield _hypothesis(evidence, one, MEMORY, says, signal)
    yield from _short(evidence)
    lost = [one for one in evidence.job.said("scheduler_kill") if one[0].name in LOST]
    lost = [one for one in lost if not _old(times, one)]
    restarted = {str(found.subject["node"]) for found in signs(evidence) if "node" in found.subject}
    for one in evidence.job.said("scheduler_kill"):
        # slurmstepd writes of a failed node on those that are left, and a row of sacct names all of the job: such
        # lines name none. Where a node shows that it restarted, that is the one.
        if one in lost:
            yield _hypothesis(evidence, one, NODE, "the scheduler lost it", "node_failure_told", _lost(evidence, one))
        elif one[0].name.startswith(UNNAMED) and not restarted and not lost:
            yield _hypothesis(evidence, one, NODE, "the scheduler lost it", "node_failure_told", "")
            break


def _short(evidence: Evidence) -> Iterator[Hypothesis]:
    """Ended for want of room. A node's pressure alone ends no job, but tells of which node another line is."""
    times = times_of(evidence)
    said = [one for one in evidence.job.said("scheduler_kill") if str(one[0].more.get("short_of", "")) in SHORT_OF]
    said = [one for one in said if not _old(times, one)]
    ended = [one for one in said if one[0].name == "Evicted"]
    named = {_node(evidence, one) for one in said} - {""}
    for one in said:
        cause, says = SHORT_OF[str(one[0].more["short_of"])]
        node = _node(evidence, one)
        if not node and len(named) == 1:
            node = next(iter(named))
        if one[0].name == "Evicted":
            yield _hypothesis(evidence, one, cause, says, "evicted_for_room", node)
        elif not ended or node not in {_node(evidence, evicted) for evicted in ended}:
            yield _hypothesis(evidence, one, cause, "its disk is short of room", "disk_pressure", node)


def _lost(evidence: Evidence, one: Said) -> str:
    host = address(str(one[0].more.get("nodes", "")) or one[0].peer)
    return node_called(evidence, host) or host


def _old(times: Times, one: Said) -> bool:
    return times.over("", one[0].last_at, one[0].stamp)


def _for_memory(one: Said) -> bool:
    return one[0].name.startswith(OUT_OF_MEMORY) or one[0].more.get("short_of") == "memory"


def _of_another(evidence: Evidence, one: Said) -> bool:
    """Words that name nobody, where the kernel names only victims that no training uses."""
    event = one[0]
    if event.name != "OOMKilled" or event.about or event.peer or event.more:
        return False
    kills = [kill for seen in evidence.of("host.kernel_log") for kill in seen.facts.oom_kills]
    return bool(kills) and not any(kill.process.startswith(TRAINS) for kill in kills)


def _node(evidence: Evidence, one: Said) -> str:
    host = address(one[0].peer)
    node = node_called(evidence, host) or host or node_of(evidence, one)
    return node_of_pod(evidence, node) or node


def _hypothesis(
    evidence: Evidence, one: Said, cause: str, says: str, signal: str, node: str | None = None
) -> Hypothesis:
    event = one[0]
    node = _node(evidence, one) if node is None else node
    ranks = frozenset(event.about)
    subject: dict[str, str | int] = {"node": node} if node else {}
    if len(ranks) == 1 and cause == MEMORY:
        subject["rank"] = next(iter(ranks))
    return Hypothesis(
        cause,
        subject,
        f"{'Node ' + node if node else 'A node'}: {says}",
        (quoted(*one),),
        (signal, "told_before_job") if times_of(evidence).old("", event.last_at, event.stamp) else (signal,),
        would_change=("the node up since before the job began, with memory to spare",),
        ranks=ranks or frozenset(evidence.job.ranks),
        nodes=frozenset({node}),
    )


RULE = Rule((MEMORY, NODE, DISK, SHARED), judge)
