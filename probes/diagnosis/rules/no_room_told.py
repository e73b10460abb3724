"""A rank itself says that there is no room: in /dev/shm, on a disk, or within a quota."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, node_of, when

SHM, DISK = "host.shm_full", "host.disk_full"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for kind, cause, what, signal in (
        ("shm_full", SHM, "/dev/shm has no room", "shm_full_told"),
        ("disk_full", DISK, "a file system has no room", "disk_full_told"),
    ):
        said = sorted(evidence.job.said(kind), key=lambda one: when(evidence, one) or float("inf"))
        told: set[str] = set()
        for one in said:
            node = node_of(evidence, one)
            if node in told:
                continue
            told.add(node)
            here = [other for other in said if node_of(evidence, other) == node]
            yield _hypothesis(evidence, node, cause, what, signal if len(told) == 1 else "no_room_later", here)


def _hypothesis(evidence: Evidence, node: str, cause: str, what: str, signal: str, said: list[Said]) -> Hypothesis:
    ranks = frozenset(one[0].rank for one in said if one[0].rank is not None)
    place = next((one[0].where for one in said if one[0].where), "")
    return Hypothesis(
        cause,
        {"node": node} if node else {},
        f"On {node or 'a node'} {what}{f' ({place})' if place else ''}, says {_who(ranks)}",
        tuple(quoted(*one) for one in said[:3]),
        (signal,),
        would_change=("room there at the same moment (df, and df -i for names of files)",),
        ranks=ranks,
        nodes=frozenset({node}),
    )


def _who(ranks: frozenset[int]) -> str:
    return f"rank {min(ranks)}" if len(ranks) == 1 else f"{len(ranks)} ranks" if ranks else "a log"


RULE = Rule((SHM, DISK), judge)
