"""A person or the scheduler ended the job: nothing is broken. After a failure the same lines are its consequence.

Slurm cancels a step also when one of its tasks has failed, and torchrun is told to end then; so whatever failed by
itself before it leads. A job that had stood for long when its time ran out was not ended in good health either.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, address, before, everyone, own_faults, when

CAUSE = "job.cancelled"
# Words of the line -> what was done, and how sure it is that this is the beginning.
SAID: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("TIME LIMIT", "TIMEOUT"), "its time limit was reached", "ended_with_reason"),
    (
        ("PREEMPTION", "PREEMPTED", "Preempted", "reemption notice", "being preempted"),
        "it was preempted",
        "ended_with_reason",
    ),
    (("JOB REQUEUE",), "it was put back into the queue", "ended_with_reason"),
    (("pot ", "nstance interruption"), "its machine was taken back", "ended_with_reason"),
    (("Evicted",), "its pod was evicted", "ended_with_reason"),
    # A taint that evicts is set by a person (drain), or by the control plane for a node that it has lost.
    (("TaintManagerEviction",), "its pod was evicted from a tainted node", "ended_by_taint"),
    (("imminent node shutdown",), "its node was shut down", "ended_with_reason"),
    (("CANCELLED",), "it was cancelled", "ended_by_somebody"),
)
AGENT = {"SIGINT": "somebody interrupted it", "SIGHUP": "its terminal was closed"}
STUCK = ("watchdog_timeout", "heartbeat", "gloo_timeout", "ib_completion", "ib_async", "collective_mismatch",
    "barrier_missed", "desync", "store_timeout", "setup_missed", "blocking_wait", "bootstrap",
    "ib_route", "ib_resource", "duplicate_gpu", "nccl_version_mismatch", "credential")  # fmt: skip
SHORT_OF = ("memory", "ephemeral-storage", "inodes", "shm")
STANDS_S = 900.0  # judgement: a job that wrote of its progress has stood when it was silent for this long


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found = _ended(evidence)
    if found is None:
        return
    one, what, signal = found
    faults = own_faults(evidence) + [said for said in evidence.job.said(*STUCK) if not said[0].secondary]
    faults = [said for said in faults if not said[0].name.startswith("Terminated")]
    faults += [said for said in evidence.job.said("scheduler_kill") if (said[0].code or 0) > 0]
    for said in faults:
        order = before(evidence, said, one)
        if said[0] is not one[0] and (order or (order is None and not _ends_tasks(said))):
            return
    signals, against = [signal], []
    if evidence.stalls.all:
        signals.append("stood_when_ended")
        against.append(Reason("the recorders show a collective that waited", one[2].ref))
    elif (silent := _silent_s(evidence, one)) > STANDS_S:
        signals.append("stood_when_ended")
        against.append(Reason(f"the last progress was written {silent / 60:.0f} min before", one[2].ref))
    node = address(one[0].peer)
    yield Hypothesis(
        CAUSE,
        {},
        f"The job did not fail: {what}" + (f" (told on {node})" if node else ""),
        (quoted(*one),),
        tuple(signals),
        against=tuple(against),
        would_change=("a failure of a rank before this line",),
        ranks=everyone(evidence),
        nodes=frozenset(evidence.nodes),
    )


def _ended(evidence: Evidence) -> tuple[Said, str, str] | None:
    """The line that tells most of why the job was ended."""
    said = list(evidence.job.said("scheduler_kill"))
    for words, what, signal in SAID:
        for one in said:
            named = any(word in one[0].name or word in one[0].text for word in words)
            lost = "NODE FAILURE" in one[0].name or one[0].name == "taken away"
            if named and one[0].more.get("short_of") not in SHORT_OF and not lost:
                return one, what, signal
    for one in evidence.job.said("agent_signal"):
        what = AGENT.get(one[0].name, f"its launcher was told to end ({one[0].name})")
        return one, what, "launcher_interrupted" if one[0].name in AGENT else "launcher_told_to_end"
    return None


def _ends_tasks(one: Said) -> bool:
    """srun's account of how its tasks ended, and torchrun's: what a cancelled job looks like."""
    event = one[0]
    if event.kind == "scheduler_kill":
        return "tasks" in event.more or event.name.startswith("CANCELLED")
    return event.kind == "torchrun_failure" and event.code in (-15, -9, -2)


def _silent_s(evidence: Evidence, one: Said) -> float:
    at = when(evidence, one)
    last = [told.last_at for told, _, _ in evidence.job.said("progress") if told.last_at is not None]
    return at - max(last) if at is not None and last else 0.0


RULE = Rule((CAUSE,), judge)
