"""The watchdog's limit is shorter than the work: the collective ended after all, or a step takes longer."""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.logs.events import LogEvent
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.last_words import last_said, share_done, unfinished_evaluation
from probes.diagnosis.log_evidence import Said, everyone

CAUSE = "fw.timeout_too_short"
NEAR = 0.8  # of the limit; judgement
NEARLY = 0.9  # of the work, so the limit is short by a tenth at most; judgement
AT_WORK_W, FULL = 250.0, 90  # judgement: GPUs that wait in a collective draw 90 to 200 W at full use (recorded)
LOW_MS = 60_000  # judgement: limits are minutes; torch's own are 10 and 30 min


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    waited = list(evidence.job.said("watchdog_timeout", "gloo_timeout"))
    limits = [int(one[0].more["timeout_ms"]) for one in waited if "timeout_ms" in one[0].more]
    if not limits:
        return
    limit = min(limits)
    because: list[Said] = []
    signals: list[str] = []
    gave_up = {one[0].seq for one in waited if one[0].seq is not None}
    late = [
        one
        for one in evidence.job.said("watchdog_status")
        if _ended_after_all(one[0]) and (not gave_up or one[0].seq in gave_up)  # else it tells of the work before
    ]
    if late:
        because += late[:2]
        signals.append("ended_after_limit")
    steps = [(step, one) for one in evidence.job.said("progress") if (step := step_ms(one[0])) is not None]
    longest = max(steps, default=None, key=lambda item: item[0])
    if longest is not None and longest[0] > limit:
        because.append(longest[1])
        signals.append("step_longer_than_limit")
    elif longest is not None and longest[0] >= NEAR * limit:
        because.append(longest[1])
        signals.append("step_near_limit")
    phases = [(ms, one) for one in evidence.job.said("progress", "phase_time") if (ms := one[0].more.get("wait_ms"))]
    slow = max(phases, default=None, key=lambda item: int(item[0]))
    # Of one call in which all that told waited: else somebody is missing, and that is why it took so long.
    together = len({(one[0].group, one[0].seq, one[0].op, one[0].sizes) for one in waited}) == 1 and len(waited) > 1
    near_phase = slow is not None and together and not late and NEAR * limit <= int(slow[0])
    if slow is not None and near_phase and "step_longer_than_limit" not in signals:
        because.append(slow[1])
        signals.append("phase_near_limit")
        if goes_on := [one for one in last_said(evidence).values() if unfinished_evaluation(one[0])]:
            because.append(goes_on[0])
            signals.append("same_work_still_going")
    if not signals and together and (done := _nearly_done(evidence)):
        because.append(done)
        signals += ["work_nearly_done", "same_work_still_going"]
    if not signals:
        return
    signals += ["limit_is_low"] if limit <= LOW_MS else []
    at_work = _gpus_at_work(evidence)
    signals += ["gpus_worked_until_limit"] if at_work else []
    near = longest is not None and longest[0] >= NEAR * limit
    says = f"a step takes {longest[0] / 1000:.0f} s" if longest and near else "the work ended after it"
    if slow is not None and signals[0] == "phase_near_limit":
        says = f"the same work took {int(slow[0]) / 1000:.0f} s before"
    if signals[0] == "work_nearly_done":
        says = f"of the work {share_done(because[0][0].text) or 1:.0%} was done when it ran out"
    yield Hypothesis(
        CAUSE,
        {},
        f"The limit of {limit / 1000:.0f} s for a collective is too short: {says}",
        (*dict.fromkeys(quoted(*one) for one in (*because, *waited[:2])), *at_work),
        tuple(signals),
        would_change=("a rank that stands at the same place for longer than any step takes",),
        ranks=everyone(evidence),
        nodes=frozenset(evidence.nodes),
    )


def _nearly_done(evidence: Evidence) -> Said | None:
    """An evaluation of which nearly all was done when the limit ran out: it needed little more than that."""
    some = [one for one in last_said(evidence).values() if unfinished_evaluation(one[0])]
    return next((one for one in some if (share_done(one[0].text) or 0.0) >= NEARLY), None)


def _ended_after_all(event: LogEvent) -> bool:
    """The work that the watchdog gave up on counts as completed in its own account."""
    completed = event.more.get("completed")
    return isinstance(completed, int) and event.seq is not None and completed >= event.seq > 0


def _gpus_at_work(evidence: Evidence) -> list[Reason]:
    """Every GPU of which anything tells computed, and did not only wait: then it draws less than half of this."""
    told = [(seen, gpu) for seen in evidence.of("gpu.dmon") for gpu in seen.facts.gpus]
    if not told or any((gpu.power_w or 0) < AT_WORK_W or (gpu.sm_percent or 0) < FULL for _, gpu in told):
        return []
    least = min(gpu.power_w for _, gpu in told)
    return [Reason(f"{len(told)} GPUs compute until then, at {least:.0f} W or more", told[0][0].ref)]


def step_ms(event: LogEvent) -> float | None:
    """How long a step takes, as a bar or Megatron prints it, or by the times at which steps are told."""
    for key in ("steady_ms", "step_ms"):
        if isinstance(ms := event.more.get(key), int):
            return float(ms)
    if "rate" not in event.more and isinstance(ms := event.more.get("apart_ms"), int):
        return float(ms)
    rate, per = event.more.get("rate"), event.more.get("per")
    try:
        value = float(str(rate))
    except ValueError:
        return None
    if value <= 0:
        return None
    return value * 1000 if per == "s/it" else 1000 / value


RULE = Rule((CAUSE,), judge)
