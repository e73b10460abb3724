"""Was the job still making its steps when somebody looked, or had it ended its work?

A log of a job that hangs ends in steps too: only a later time, at which somebody looked, tells the two apart.

Units    seconds
Shape    steps_to_the_look(evidence), ended_its_work(evidence) -> the readings on which it stands; () where nothing does
Errors   none
"""

from __future__ import annotations

from dataclasses import dataclass

from probes.catalog.logs.events import QUIET, LogEvent, RankLog
from probes.catalog.logs.launchers import AT_EXIT, LAST_WORD
from probes.diagnosis.core import Evidence, Reason
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said
from probes.diagnosis.times import STEP_S, apart, local

MANY = 20  # steps; judgement: a job that goes on made them at one pace
LEAST = 5  # lines of steps, of all ranks; fewer tell no pace. Judgement
# What `tail -3` shows of one: they tell a pace where the time of a step, as printed, says the same.
LEAST_TOLD, ALIKE = 3, 1.5
GAPS = 3.0  # judgement: a step may be late, and somebody who looks is not quicker than that
SHORT_S = 60.0  # judgement: what a log keeps back before it is written
HELD = 40  # lines; as above, of one that writes several a second
PAST_S = 1800.0  # judgement: the log was fetched at most so long after the look; more may be another zone
DAY_S = 86_400.0
SLOWER = 1.3  # judgement: steps of one job differ by a few percent
# The end of a process closes its connections; those that end a moment later write of it.
AT_THE_END = QUIET | {"peer_closed", "store_closed", "nccl_warn", "unwaited", "bootstrap"}


@dataclass(frozen=True, slots=True)
class Pace:
    """The newest step that a log tells, by the zone of its times, and how far its lines lie apart."""

    said: Said
    last: float
    utc: bool
    gap_s: float


def pace(evidence: Evidence) -> Pace | None:
    """Of the log that tells the newest step; None where none tells enough steps with their times. Ranks that tell of
    the same newest step bear each other out."""
    told = list(evidence.job.said("progress"))
    counts: dict[object, int] = {}
    for event, log, _ in told:
        counts[id(log), event.seq] = counts.get((id(log), event.seq), 0) + event.count
    found = [one for said in told if (one := _pace(said, counts[id(said[1]), said[0].seq])) is not None]
    return max(found, key=lambda one: one.last, default=None)


def _pace(said: Said, lines: int) -> Pace | None:
    event = said[0]
    if event.count < LEAST_TOLD or event.seq is None:
        return None
    if event.at is not None and event.last_at is not None and event.clock == "utc":
        first, last, utc = event.at, event.last_at, True
    else:
        begin, end = local(str(event.more.get("first_stamp", ""))), local(event.stamp)
        if begin is None or end is None:
            return None
        first, last, utc = begin, end, False
    gap = (last - first) / (event.count - 1)
    enough = lines >= LEAST or _as_told(event, gap)
    return Pace(said, last, utc, gap) if gap > 0 and enough else None


def _as_told(event: LogEvent, gap: float) -> bool:
    """Whether lines come as the log says that steps take; loggers that write every so many come more seldom."""
    took = event.more.get("step_ms")
    return isinstance(took, int) and took / 1000 < ALIKE * gap and gap < max(SHORT_S, ALIKE * took / 1000)


def steps_to_the_look(evidence: Evidence) -> tuple[Reason, ...]:
    """The newest step is as new as the latest look allows, and no failure is told that it did not outlive."""
    told = pace(evidence)
    if told is None or _slower(told.said[0]) or not _outlived(evidence, told):
        return ()
    late = [late for seen in evidence.of("evidence.looked") if (late := _late(seen.facts, told)) is not None]
    if not late or max(late) > _slack(told):
        return ()
    says = f"steps go on every {told.gap_s:.0f} s up to the last look at the nodes" if max(late) > 0 else (
        f"steps go on every {told.gap_s:.0f} s past the last look at the nodes"
    )  # fmt: skip
    return (quoted(*told.said, says),)


def _slack(told: Pace) -> float:
    """How long the newest step may be past where the job goes on."""
    return max(GAPS * told.gap_s, min(SHORT_S, HELD * told.gap_s))


def steps_past_what_is_told(evidence: Evidence) -> tuple[Reason, ...]:
    """Many steps of the usual length were made after the newest line of every kernel log and every event of another
    log: the job outlived them. Whether it made another step after its last line, nobody looked."""
    told = pace(evidence)
    if told is None or told.said[0].count < MANY or _slower(told.said[0]) or not _outlived(evidence, told):
        return ()
    kernels = [seen for seen in evidence.of("host.kernel_log") if seen.facts is not None]
    told_of = QUIET - {"clock_wrong"}
    others = [_stamp(event) for event, _, _ in evidence.job.events if event.kind not in told_of]
    if not others and not any(seen.findings or seen.facts.notices for seen in kernels):
        return ()  # of nothing that it may have outlived
    stamps = [*(seen.facts.last for seen in kernels), *others]
    ends = [local(stamp) for stamp in stamps]
    least = max(PAST_S, GAPS * told.gap_s)
    looks = [late for seen in evidence.of("evidence.looked") if (late := _late(seen.facts, told)) is not None]
    if max(looks, default=0.0) > _slack(told):
        return ()  # it made no step for some time before that look
    if not all(end is not None and apart(told.last, end) > least for end in ends):
        return ()
    says = f"steps go on every {told.gap_s:.0f} s for long after what the other logs tell"
    return (quoted(*told.said, says),)


def in_one_zone(evidence: Evidence) -> bool:
    """Whether the newest step fits the last look at the nodes: then their clocks and the log are of one zone."""
    told = pace(evidence)
    late = [late for seen in evidence.of("evidence.looked") if told and (late := _late(seen.facts, told)) is not None]
    return bool(told is not None and late and max(late) <= _slack(told))


def _slower(event: LogEvent) -> bool:
    """Whether the newest step takes clearly longer than the quickest one did: it goes on, but not as usual."""
    now, least = event.more.get("step_ms"), event.more.get("least_ms")
    return isinstance(now, int) and isinstance(least, int) and now > SLOWER * least


def _late(facts: object, told: Pace) -> float | None:
    """How long before this look the newest step was; negative: after it. None where the two cannot be compared."""
    ends = [facts.utc, facts.printed] if told.utc else [facts.printed, facts.utc]  # type: ignore[attr-defined]
    at = next((one for one in ends if one is not None), None)
    if at is not None:
        late = apart(at, told.last)
        return late if late >= -PAST_S else None
    if facts.of_day is None:  # type: ignore[attr-defined]
        return None
    late = (facts.of_day - told.last) % DAY_S  # type: ignore[attr-defined]
    late = late - DAY_S if late > DAY_S / 2 else late
    return late if late >= -PAST_S else None


def _outlived(evidence: Evidence, told: Pace) -> bool:
    return not any(
        event.kind not in AT_THE_END and not _before(event, told.last, told.utc) for event, _, _ in evidence.job.events
    )


def _before(event: LogEvent, last: float, utc: bool) -> bool:
    """Whether the job made steps well after this."""
    if utc:
        at = event.last_at if event.last_at is not None else event.after
        return at is not None and last - at > STEP_S
    stamp = local(_stamp(event))
    return stamp is not None and apart(last, stamp) > STEP_S


def _stamp(event: LogEvent) -> str:
    return event.stamp or str(event.more.get("after_stamp", ""))


def ended_its_work(evidence: Evidence) -> tuple[Reason, ...]:
    """The trainer or its launcher wrote that all is done, nothing went on after that, and no log tells of a failure."""
    steps: dict[int, int] = {}
    for event, log, _ in evidence.job.said("progress"):
        if event.seq is not None or "percent" in event.more:
            steps[id(log)] = max(steps.get(id(log), 0), event.last_place)
    ends = [one for one in evidence.job.said("finished") if _is_last(one[0], one[1], steps)]
    done = _all_steps(evidence)
    ends = [one for one in ends if one[0].name != AT_EXIT or done]
    ends = [one for one in ends if one[0].name != LAST_WORD or _by_all(one, ends, evidence)]
    if not ends:
        return ()
    ended = {id(log): _place(event) for event, log, _ in ends}
    for event, log, _ in evidence.job.events:
        # Collectives that nobody waited for may have left wrong values in a run that came to its end.
        if event.kind not in AT_THE_END - {"unwaited"} and _place(event) > ended.get(id(log), (-1, -1)):
            return ()  # it failed after that, or in a log that tells of no good end
    return tuple(quoted(*one) for one in ends[:4])


def _by_all(one: Said, ends: list[Said], evidence: Evidence) -> bool:
    """Whether every rank that told of steps in this log said so right after its last one."""
    told = {
        event.rank: event for event, log, _ in evidence.job.said("progress") if log is one[1] and event.seq is not None
    }
    said = {event.rank: event for event, log, _ in ends if log is one[1]}
    return bool(told) and all(
        rank in said and 0 < said[rank].last_place - step.last_place <= SUMMARY * len(told)
        for rank, step in told.items()
    )


def _all_steps(evidence: Evidence) -> bool:
    """Whether each log that counts its steps came to the last of as many as it was to make."""
    told = [event for event, _, _ in evidence.job.said("progress") if event.seq is not None]
    totals = [(event.seq or 0, total) for event in told if isinstance(total := event.more.get("total"), int)]
    return bool(totals) and len(totals) == len(told) and all(total - seq <= 1 for seq, total in totals)


def _is_last(event: LogEvent, log: RankLog, steps: dict[int, int]) -> bool:
    """No step of a run after it; a summary may repeat the last one."""
    last = steps.get(id(log), 0)
    return event.last_place >= last - SUMMARY


SUMMARY = 12  # lines; judgement: what loggers print of a run at its end


def _place(event: LogEvent) -> tuple[int, int]:
    return event.line or 0, event.offset or 0
