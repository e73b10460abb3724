"""A node restarted, was switched off or taken away by its cloud while the job ran."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from statistics import median

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.going_on import ended_its_work
from probes.diagnosis.job import quoted
from probes.diagnosis.times import MARGIN_S, STEP_S, Times, apart, local, times_of

CAUSE = "host.rebooted"
SHORT = 0.1  # of the peers' uptime, judgement
HALF_A_YEAR_S = 180 * 86_400.0
LONG_S = 86_400.0  # judgement: peers that run for less than a day may have been started for this job


# What the scheduler says of a node that it lost, be it named or not.
TOLD = (
    "NODE FAILURE",
    "NODE_FAIL",
    "Node failure",
    "unexpectedly rebooted",
    "on failed node",
    "not responding, setting",
)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found = list(signs(evidence))
    told = next((one for one in evidence.job.said("scheduler_kill") if one[0].name.startswith(TOLD)), None)
    alone = len({str(one.subject.get("node", "")) for one in found}) == 1
    for one in found:
        if told is not None and alone and "uptime_above_job" not in one.signals:
            more = (*one.signals, "node_failure_told")
            one = dataclasses.replace(one, signals=more, because=(*one.because, quoted(*told)))
        yield one


def signs(evidence: Evidence) -> Iterator[Hypothesis]:
    """What nodes and their logs show by themselves."""
    times = times_of(evidence)
    yield from _notices(evidence, times)
    if ended_its_work(evidence):  # a boot after that stopped nothing
        return
    yield from _boots(evidence, times)
    yield from _uptimes(evidence, times)


def _notices(evidence: Evidence, times: Times) -> Iterator[Hypothesis]:
    """What the log says of the node's end. Of a node that is up and whose log ends with it, the end was real."""
    codes = {"reboot": "kernel.reboot", "shutdown": "kernel.reboot", "preemption": "kernel.preempted"}
    for seen in evidence.of("host.kernel_log"):
        for event in seen.facts.notices:
            if event.what not in codes or times.over(seen.node, event.last_at, event.last):
                continue
            says = next((f.says for f in seen.findings if f.subject.get("what") == event.what), event.text)
            taken = event.what == "preemption"
            yield _found(seen.node, says, seen.ref, "node_preempted" if taken else "node_told_to_restart")
        for event in seen.facts.notices:
            if event.what == "boot" and _within(evidence, times, seen.node, event.first_at, event.first):
                says = f"the kernel of {seen.node or 'the node'} started at {event.first}, while the job ran"
                yield _found(seen.node, says, seen.ref, "booted_during_job")


def _boots(evidence: Evidence, times: Times) -> Iterator[Hypothesis]:
    for seen in evidence.of("host.kernel_log"):
        booted = seen.facts.booted_at
        if booted is not None and _within(evidence, times, seen.node, booted, ""):
            says = f"{seen.node or 'the node'} booted after the job had begun"
            yield _found(seen.node, says, seen.ref, "booted_during_job")
    booted = {seen.node: seen.facts.booted for seen in evidence.of("host.boots") if seen.facts.booted is not None}
    for seen in evidence.of("host.boots"):
        boots = seen.facts
        if boots.utc and times.first[0] is None and not _alone(booted, seen.node, boots.booted):
            # The job's own times have no zone: it may have begun after this boot, unless both are of one zone.
            together = [node for node, at in booted.items() if abs(at - (boots.booted or 0.0)) < LONG_S]
            if len(together) < 2 and _between(times, boots.booted):
                says = f"{seen.node or 'the node'} booted at {boots.stamp} UTC, between the job's first and last line"
                yield _found(seen.node, f"{says}, if the log's times are UTC too", seen.ref, "booted_within_printed")
            continue
        if boots.booted is not None and _within(
            evidence, times, seen.node, boots.booted if boots.utc else None, boots.stamp
        ):
            says = f"{seen.node or 'the node'} booted at {boots.stamp or 'a time'} after the job had begun"
            yield _found(seen.node, says, seen.ref, "booted_during_job")
        elif boots.crashed:
            says = f"the last boot of {seen.node or 'the node'} followed a crash, says last"
            yield _found(seen.node, says, seen.ref, "crashed_before_boot")


def _between(times: Times, at: float | None) -> bool:
    first, last = times.first[1], times.last_sign[1]
    if at is None or first is None or last is None:
        return False
    return apart(at, first) > MARGIN_S and apart(last, at) > -STEP_S


def _alone(booted: Mapping[str, float], node: str, at: float | None) -> bool:
    """Whether only this one of several nodes booted of late: nobody starts one node alone for a job."""
    others = [when for name, when in booted.items() if name != node]
    return at is not None and len(others) > 1 and all(at - when > LONG_S for when in others)


def _within(evidence: Evidence, times: Times, node: str, at: float | None, stamp: str) -> bool:
    """Whether this was after the job's start: by ranks of other nodes, which the boot did not end, or by logs."""
    here = times.corrected(node, at)
    first = next((at for at, other in times.starts_in_order if other != node), None)
    if here is not None and first is not None:
        return here > first + 1
    first_utc, first_printed = times.first
    if here is not None and first_utc is not None:
        return here > first_utc
    printed = local(stamp) if stamp and not stamp.startswith("[") else None
    if printed is None or first_printed is None:
        return False
    later = apart(printed, first_printed)
    return 0 < later < HALF_A_YEAR_S  # without a year, December lies before January


def _uptimes(evidence: Evidence, times: Times) -> Iterator[Hypothesis]:
    """A node that is up for minutes where its peers are up for weeks, or for less time than the job has run: whoever
    asks for it does so when the job has stopped."""
    up = {
        seen.node: (seen.facts.uptime_s, seen) for seen in evidence.of("host.boots") if seen.facts.uptime_s is not None
    }
    ran = times.lasted
    young = [node for node, (seconds, _) in up.items() if ran is not None and seconds < ran - MARGIN_S]
    if len(young) < len(up) or len(up) == 1:
        for node in young:
            seconds, seen = up[node]
            says = f"{node or 'a node'} is up for {_long(seconds)}, and the job had run for {_long(ran or 0.0)}"
            yield _found(node, says, seen.ref, "booted_during_job")
    if len(up) == 2 and not young:
        (low, seen), (high, _) = sorted(up.values(), key=lambda one: one[0])
        if high > LONG_S and low < min(high * SHORT, LONG_S):
            says = f"{seen.node or 'a node'} is up for {_long(low)}, and the other for {_long(high)}"
            lost = any(True for _ in evidence.job.said("peer_closed", "remote_error", "store_closed", "scheduler_kill"))
            yield _found(seen.node, says, seen.ref, "uptime_below_peer" if lost else "uptime_below_peer_only")
    if len(up) < 3:
        return
    usual = median(seconds for seconds, _ in up.values())
    for node, (seconds, seen) in up.items():
        if usual > LONG_S and seconds < usual * SHORT:
            says = f"{node or 'a node'} is up for {seconds / 3600:.1f} h, the others for {usual / 3600:.0f} h"
            longer = (
                ran is not None and seconds > ran + MARGIN_S and not _since_start(times, seen.facts.of_day, seconds)
            )
            yield _found(node, says, seen.ref, "uptime_below_peers", *(("uptime_above_job",) if longer else ()))


def _since_start(times: Times, of_day: float | None, uptime: float) -> bool:
    """Whether the boot was after the job's first line, by the clock that uptime prints: the job may have stood, or been
    over, for long when somebody asked."""
    first = times.first[1]
    if of_day is None or first is None or uptime > LONG_S / 2:
        return False
    return uptime < (of_day - first) % LONG_S <= LONG_S / 2


def _long(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _found(node: str, says: str, ref: str, signal: str, *more: str) -> Hypothesis:
    sure = signal in ("booted_during_job", "node_preempted", "node_told_to_restart")
    return Hypothesis(
        CAUSE,
        {"node": node} if node else {},
        f"Node {node} restarted or was taken away: {says}" if node else f"A node restarted or was taken away: {says}",
        (Reason(says, ref),),
        (signal, *more),
        would_change=("a boot that is older than the job",),
        nodes=frozenset({node}) if sure else frozenset(),
    )


RULE = Rule((CAUSE,), judge)
