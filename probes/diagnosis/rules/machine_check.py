"""The machine itself erred: uncorrected machine checks, a kernel panic. Corrected errors stop nothing."""

from __future__ import annotations

from collections.abc import Iterator

from probes.core import Finding
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.times import times_of

CAUSE = "host.machine_check"
PANIC = ("Kernel panic", "Fatal machine check", "Machine check: Processor context")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    times = times_of(evidence)
    for seen in evidence.of("host.kernel_log"):
        facts = seen.facts
        for code, events in (
            ("kernel.machine_check", facts.machine_checks),
            ("kernel.oops", facts.oopses),
            ("kernel.soft_lockup", facts.lockups),
        ):
            said = [finding for finding in seen.findings if finding.code == code]
            for event, finding in zip(events, said, strict=False):
                signal = _signal(code, finding, event.text)
                old = times.old(seen.node, event.last_at, event.last)
                if signal and old != "yes":
                    yield _found(seen, finding, (signal, "fault_before_job") if old else (signal,))
    for seen, finding in evidence.findings("host.hardware_error"):
        yield _found(seen, finding, ("hardware_log_uncorrected",))
    for seen, finding in evidence.findings("host.hardware_counted"):
        yield _found(seen, finding, ("hardware_counted_since_boot",))


def _signal(code: str, finding: Finding, text: str) -> str:
    if code == "kernel.oops":
        return "kernel_panic" if any(words in text for words in PANIC) else "kernel_oops"
    if code == "kernel.soft_lockup":
        return "kernel_lockup"
    return {"bad": "machine_check_uncorrected", "warn": "machine_check_many"}.get(finding.severity, "")


def _found(seen: Seen, finding: Finding, signals: tuple[str, ...]) -> Hypothesis:
    subject: dict[str, str | int] = {"node": seen.node} if seen.node else {}
    sure = signals[0] in ("machine_check_uncorrected", "kernel_panic", "hardware_log_uncorrected") and len(signals) == 1
    return Hypothesis(
        CAUSE,
        subject,
        f"The machine {seen.node or ''} itself erred: {finding.says}".replace("  ", " "),
        (Reason(finding.says, seen.ref),),
        signals,
        would_change=("no uncorrected error after the job's start",),
        nodes=frozenset({seen.node}) if sure else frozenset(),
    )


RULE = Rule((CAUSE,), judge)
