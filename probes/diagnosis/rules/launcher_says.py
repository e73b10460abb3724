"""What launchers and NCCL's service threads say of a rank's end, where the rank itself says nothing.

Hints, mostly weak: they see the first end that reaches them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from probes.diagnosis.cluster import POD_FAILED
from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.going_on import in_one_zone
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import node_of, placed, rank_of, tasks_are_launchers, when
from probes.diagnosis.rules.rank_exited import (
    ENDS,
    EXITED,
    OF_NETWORK,
    OF_WATCHDOG,
    TRIES,
    exited,
    of_others,
    own_exceptions,
    signal_name,
    went_on,
)
from probes.diagnosis.suspects import ranks_said

RAY = "Worker exit type: SYSTEM_ERROR"  # its process is gone, and Ray does not know why
TORCHRUN = {"root_cause", "first", "local_rank", "pid"}  # its own list is told by rank_exited.py
CLOSED = ("peer_closed", "store_closed", "remote_error")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    # Where the network itself failed, an end that only others tell is more likely its consequence.
    network = evidence.job.said(*(kind for kind in OF_NETWORK if kind not in CLOSED))
    if all(one[0].kind == "rendezvous" and one[0].name in TRIES for one in network):
        yield from _by_code(evidence)
        yield from _closed_first(evidence)
        yield from _done_first(evidence)
        yield from _by_pods(evidence)
    yield from _nameless(evidence)
    yield from _raised_nameless(evidence)


def _by_code(evidence: Evidence) -> Iterator[Hypothesis]:
    """The first task that srun, Composer or torch.multiprocessing say has failed, where its own log tells nothing."""
    told: set[int] = set()
    launchers = tasks_are_launchers(evidence)
    for event, log, seen in evidence.job.said("scheduler_kill", "torchrun_failure"):
        first = ("tasks" in event.more and not launchers) or (
            event.kind == "torchrun_failure" and not TORCHRUN & set(event.more)
        )
        if not first or id(log) in told:
            continue
        told.add(id(log))
        if len(event.about) != 1 or (event.code or 0) <= 0 or own_exceptions(evidence):
            continue
        rank = event.about[0]
        if any(one.rank == rank for one, _, _ in evidence.job.said(*OF_WATCHDOG, *OF_NETWORK)):
            continue  # it gave up on others
        yield exited(evidence, rank, f"exited with code {event.code}", (quoted(event, log, seen),), ("exit_code",))


def _closed_first(evidence: Evidence) -> Iterator[Hypothesis]:
    """NCCL's service thread tells which rank of its node went; the first of these went first (Megatron-LM#735)."""
    said = [one for one in evidence.job.said("peer_closed") if isinstance(one[0].more.get("local_rank"), int)]
    if not said:
        return
    one = min(said, key=lambda said: (when(evidence, said) or float("inf"), said[0].line or 0))
    node, local = node_of(evidence, one), one[0].more["local_rank"]
    ranks = placed(evidence, node, int(local))
    if len(ranks) == 1:
        says = "closed its connections before the other ranks of its node did"
        yield exited(evidence, ranks.pop(), says, (quoted(*one),), ("closed_first",))


def _done_first(evidence: Evidence) -> Iterator[Hypothesis]:
    """A rank wrote that it is done and left, and others, who were at their steps as it was, then lost their connection
    or waited in vain: its share of the data was smaller, or it counts its steps in another way."""
    if own_exceptions(evidence):
        return
    done = {one[0].rank: one for one in evidence.job.said("finished") if one[0].rank is not None}
    lost = {one[0].rank for one in evidence.job.said(*CLOSED) if one[0].rank is not None}
    lost &= {one[0].rank for one in evidence.job.said("traceback", "fatal_signal")}
    lost |= {one[0].rank for one in evidence.job.said(*OF_WATCHDOG) if one[0].rank is not None}
    steps = {one[0].rank for one in evidence.job.said("progress")}
    if not done or set(done) & lost or not lost <= steps or not set(done) <= steps or len(done) > len(lost):
        return
    for rank, one in done.items():
        if rank is not None:
            says = f"ended by itself, before {ranks_said(sorted(one for one in lost if one is not None))}"
            yield exited(evidence, rank, says, (quoted(*one),), ("done_before_others",))


def _by_pods(evidence: Evidence) -> Iterator[Hypothesis]:
    """One pod of the job ended with a code of its own; of several nobody knows which was the first."""
    said = [one for one in evidence.job.said("scheduler_kill") if one[0].name == POD_FAILED]
    if len({one[0].text.partition(":")[0] for one in said}) != 1 or own_exceptions(evidence):
        return
    event, node = said[0][0], said[0][0].peer
    ended = f"ended by {signal_name(event.code or 0)}" if (event.code or 0) < 0 else f"exited with code {event.code}"
    yield Hypothesis(
        EXITED,
        {"node": node} if node else {},
        f"{event.text.partition(':')[0].removeprefix('Error ')} {ended}{f' on {node}' if node else ''}",
        (quoted(*said[0]),),
        ("pod_failed_alone",),
        would_change=("the last lines of that pod's log", "another pod that ended before it"),
        ranks=frozenset(evidence.job.ranks),
        nodes=frozenset({node}),
    )


def _nameless(evidence: Evidence) -> Iterator[Hypothesis]:
    """A process of the job ended by a signal, and nothing tells which rank it was."""
    said = list(evidence.job.said("torchrun_failure"))
    nameless = [
        one for one in said if (one[0].code in (-9, -11, -7) or one[0].name == RAY) and rank_of(evidence, one) is None
    ]
    if not nameless or any(one[0].about for one in said):
        return  # torchrun's list says more
    event, node = nameless[0][0], node_of(evidence, nameless[0])
    how = f"by {signal_name(event.code)}" if event.code else "without a word"
    yield Hypothesis(
        EXITED,
        {"node": node} if node else {},
        f"A rank{f' on {node}' if node else ''} ended {how}",
        (quoted(*nameless[0]),),
        ("ended_nameless",),
        would_change=("which rank it was: torchrun's list of failures, or its kernel log",),
        ranks=frozenset(evidence.job.ranks),
        nodes=frozenset({node}),
    )


def _raised_nameless(evidence: Evidence) -> Iterator[Hypothesis]:
    """The log of a job ends in an exception, and nothing tells whose it is. Where others gave up, or a launcher
    tells of ends, only one counts whose own launcher tells, in the same log, that a process ended by itself."""
    if own_exceptions(evidence):
        return
    goes_on = in_one_zone(evidence)
    alone = not any(True for _ in evidence.job.said(*OF_WATCHDOG, *OF_NETWORK, *ENDS))
    ended = {id(log) for event, log, _ in evidence.job.said("torchrun_failure") if (event.code or 0) > 0}
    for one in evidence.job.said("traceback"):
        event, log, _ = one
        if event.rank is not None or of_others(replace(event, rank=0)) or went_on(evidence, one):
            continue
        if goes_on and not any(step[1] is log for step in evidence.job.said("progress")):
            continue  # of another program: the job still made its steps when somebody looked
        if not alone and (
            id(log) not in ended or any(said[1] is log for said in evidence.job.said(*OF_NETWORK, *OF_WATCHDOG))
        ):
            continue
        node = node_of(evidence, one)
        yield Hypothesis(
            EXITED,
            {"node": node} if node else {},
            f"A rank{f' on {node}' if node else ''} raised {event.name or 'an exception'}, the last that its log tells",
            (quoted(*one),),
            ("raised_nameless",),
            would_change=("which rank it was", "later lines of the same log"),
            ranks=frozenset(evidence.job.ranks),
            nodes=frozenset({node}),
        )
        return


RULE = Rule((EXITED,), judge)
