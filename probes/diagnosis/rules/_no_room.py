"""Ranks that were told that there is no room, on a disk or in /dev/shm: one hypothesis a node, by their own words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from probes.catalog.logs.events import LogEvent
from probes.diagnosis.core import Evidence, Hypothesis
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, node_of, when

SUMMARY = 12  # lines; judgement: what was still held back when it failed
SHARED = ("/dev/shm", "shared memory", "shm")


def of_shared_memory(text: str) -> bool:
    """Whether a line is of /dev/shm, which is no disk."""
    return any(words in text for words in SHARED)


def told(
    evidence: Evidence,
    says: Callable[[LogEvent], bool],
    cause: str,
    what: str,
    signal: str,
    full_nodes: Collection[str] = (),
) -> Iterator[Hypothesis]:
    """The node whose rank was told first leads; the later ones may be its consequence."""
    # Of verbs of RDMA it is the adapter that has no room: see rdma_resources.
    said = [one for one in evidence.job.events if not one[0].secondary and says(one[0]) and "ibv_" not in one[0].text]
    # A rank whose node nothing tells wrote where there is no room: where that is just one node, it is that.
    full = next(iter(nodes)) if len(nodes := set(full_nodes)) == 1 else ""
    by_node: dict[str, list[Said]] = {}
    for one in sorted(said, key=lambda one: when(evidence, one) or float("inf")):
        by_node.setdefault(node_of(evidence, one) or full, []).append(one)
    for number, (node, here) in enumerate(by_node.items()):
        ranks = frozenset(
            rank for event, _, _ in here for rank in ({event.rank} if event.rank is not None else event.about)
        )
        place = next((event.where for event, _, _ in here if event.where), "")
        yield Hypothesis(
            cause,
            {"node": node} if node else {},
            f"On {node or 'a node'} {what}{f' ({place})' if place else ''}, says {_who(ranks)}",
            tuple(quoted(*one) for one in here[:3]),
            ("no_room_later",) if number else (signal, *(("steps_after_no_room",) if _went_on(evidence, here) else ())),
            would_change=("room there at the same moment (df, and df -i for names of files)",),
            ranks=ranks,
            nodes=frozenset({node}),
        )


def _went_on(evidence: Evidence, here: list[Said]) -> bool:
    """Whether each log that tells so goes on with its steps: then it was written elsewhere, or was not needed."""
    last: dict[int, int] = {}
    for event, log, _ in evidence.job.said("progress"):
        last[id(log)] = max(last.get(id(log), 0), event.last_place)
    return all(last.get(id(log), 0) - max(event.line or 0, event.last_place) > SUMMARY for event, log, _ in here)


def _who(ranks: frozenset[int]) -> str:
    return f"rank {min(ranks)}" if len(ranks) == 1 else f"{len(ranks)} ranks" if ranks else "a log"
