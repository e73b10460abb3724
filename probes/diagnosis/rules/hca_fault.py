"""The adapter itself failed: its driver says so, PCIe reports a fatal error of it, or it does not answer."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.times import times_of

CAUSE = "ib.hca_fault"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found: dict[tuple[str, str], tuple[list[Reason], list[str]]] = {}
    for seen in evidence.of("host.kernel_log"):
        notices = [one for one in seen.facts.hca_notices if one.what in ("health", "firmware")]
        for notice in notices:
            if not times_of(evidence).over(seen.node, notice.last_at, notice.last):
                says = f"the driver of {notice.device} reports a fault of it: {notice.text[:160]}"
                _add(found, evidence, seen.node, notice.device, Reason(says, seen.ref), "hca_health")
        named = {one.device for one in seen.facts.hca_notices} | {one.device for one in seen.facts.links}
        named |= {view.facts.pci for view in evidence.ports.on(seen.node) if view.facts and view.facts.pci}
        for aer in seen.facts.aer:
            if (
                aer.severity != "corrected"
                and aer.device in named
                and not times_of(evidence).over(seen.node, aer.last_at, aer.last)
            ):
                says = f"PCIe reports {aer.severity} errors of the adapter {aer.device}"
                _add(found, evidence, seen.node, aer.device, Reason(says, seen.ref), "hca_bus_error")
    for seen, finding in evidence.findings("ib.no_answer"):
        _add(found, evidence, seen.node, str(finding.subject["hca"]), Reason(finding.says, seen.ref), "hca_silent")
    for (node, hca), (because, signals) in found.items():
        yield Hypothesis(
            CAUSE, ({"node": node} if node else {}) | {"hca": hca},
            f"The adapter {hca} on {node or 'a node'} failed: {because[0].says}",
            tuple(because), tuple(dict.fromkeys(signals)),
            would_change=("the adapter at work after a reset", "a kernel log without errors of it"),
            nodes=frozenset({node}),
        )  # fmt: skip


def _add(
    found: dict[tuple[str, str], tuple[list[Reason], list[str]]],
    evidence: Evidence,
    node: str,
    device: str,
    why: Reason,
    signal: str,
) -> None:
    view = evidence.ports.of_device(node, device)
    because, signals = found.setdefault((node, view.hca if view is not None else device), ([], []))
    because.append(why)
    signals.append(signal)


RULE = Rule((CAUSE,), judge)
