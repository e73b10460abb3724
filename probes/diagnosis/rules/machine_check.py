"""The machine itself erred: uncorrected machine checks, a kernel panic. Corrected errors stop nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from probes.core import Finding
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.log_evidence import node_of
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
                    rank = _by_bus_error(evidence, seen.node) if signal == "machine_check_uncorrected" else None
                    nameless = signal == "machine_check_uncorrected" and rank is None and _nameless(evidence, seen.node)
                    signals = (signal, "bus_error_there") if nameless and not old else (signal,)
                    one = _found(seen, finding, (*signals, "fault_before_job") if old else signals, rank)
                    yield dataclasses.replace(one, nodes=one.nodes | {seen.node, ""}) if nameless else one
    for code, signal in (
        ("host.hardware_error", "hardware_log_uncorrected"),
        ("host.hardware_counted", "hardware_counted_since_boot"),
        ("host.hardware_rising", "machine_check_many"),
    ):
        for seen, finding in evidence.findings(code):
            rank = _by_bus_error(evidence, seen.node)
            nameless = rank is None and _nameless(evidence, seen.node)
            signals = (signal, "bus_error_there") if rank is not None or nameless else (signal,)
            one = _found(seen, finding, signals, rank)
            yield dataclasses.replace(one, nodes=one.nodes | {seen.node, ""}) if nameless else one


def _by_bus_error(evidence: Evidence, node: str) -> int | None:
    """The one rank of this node that a SIGBUS ended: the kernel sends it to who touches memory that failed."""
    found: set[int] = set()
    for event, _, _ in evidence.job.said("torchrun_failure", "fatal_signal", "scheduler_kill"):
        if event.code in (-7, 135):
            found |= set(event.about) or ({event.rank} if event.rank is not None else set())
    # A rank of which nothing tells the node is of the only one whose memory failed.
    failed = {seen.node for seen, one in evidence.findings("kernel.machine_check") if one.severity == "bad"}
    there = (node, "") if failed == {node} else (node,)
    here = {rank for rank in found if node and evidence.job.view(rank).node in there}
    return here.pop() if len(here) == 1 else None


def _nameless(evidence: Evidence, node: str) -> bool:
    """Whether a process of this node, or of which no node is told, ended by SIGBUS, and no rank is told."""
    ends = evidence.job.said("torchrun_failure", "fatal_signal", "scheduler_kill")
    return any(
        event.code in (-7, 135)
        and not event.about
        and event.rank is None
        and node_of(evidence, (event, log, seen)) in ("", node)
        for event, log, seen in ends
    )


def _signal(code: str, finding: Finding, text: str) -> str:
    if code == "kernel.oops":
        return "kernel_panic" if any(words in text for words in PANIC) else "kernel_oops"
    if code == "kernel.soft_lockup":
        return "kernel_lockup"
    return {"bad": "machine_check_uncorrected", "warn": "machine_check_many"}.get(finding.severity, "")


def _found(seen: Seen, finding: Finding, signals: tuple[str, ...], rank: int | None = None) -> Hypothesis:
    subject: dict[str, str | int] = {"node": seen.node} if seen.node else {}
    if rank is not None:
        subject["rank"] = rank
    sure = signals[0] in ("machine_check_uncorrected", "kernel_panic", "hardware_log_uncorrected") and len(signals) == 1
    return Hypothesis(
        CAUSE,
        subject,
        f"The machine {seen.node or ''} itself erred: {finding.says}".replace("  ", " "),
        (Reason(finding.says, seen.ref),),
        signals,
        would_change=("no uncorrected error after the job's start",),
        ranks=frozenset({rank}) if rank is not None else frozenset(),
        nodes=frozenset({seen.node}) if sure else frozenset(),
    )


RULE = Rule((CAUSE,), judge)
