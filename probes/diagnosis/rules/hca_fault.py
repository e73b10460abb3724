"""The adapter itself failed: its driver says so, PCIe reports a fatal error of it, or it does not answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import everyone, node_of
from probes.diagnosis.times import times_of

CAUSE = "ib.hca_fault"
DRIVERS = ("mlx5_core ", "bnxt_en ", "ice ", "irdma ", "hfi1 ", "ionic ")  # of adapters with RDMA
# Of the whole device: IBV_EVENT_DEVICE_FATAL, which libibverbs calls "local catastrophic error"; of a queue it is none.
_DIED = re.compile(r"catastrophic|device fatal|fatal \w{1,8} on device|DEVICE_FATAL")
_ON_BUS = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d")
Found = dict[tuple[str, str], tuple[list[Reason], list[str]]]  # node and adapter -> why


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found: Found = {}
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
                and (aer.device in named or aer.text.startswith(DRIVERS))
                and not times_of(evidence).over(seen.node, aer.last_at, aer.last)
            ):
                says = f"PCIe reports {aer.severity} errors of the adapter {aer.device}"
                _add(found, evidence, seen.node, aer.device, Reason(says, seen.ref), "hca_bus_error")
    for seen, finding in evidence.findings("ib.no_answer"):
        _add(found, evidence, seen.node, str(finding.subject["hca"]), Reason(finding.says, seen.ref), "hca_silent")
    for seen in evidence.of("host.pci"):
        nics = seen.facts.of("nic")
        for nic in nics if any(not one.dead for one in nics) else ():
            if nic.dead:
                says = f"the adapter at {nic.slot} answers nothing on its bus (revision ff), others do"
                _add(found, evidence, seen.node, nic.slot, Reason(says, seen.ref), "hca_silent")
    _told_by_nccl(evidence, found)
    for node, device in [key for key in found if _ON_BUS.fullmatch(key[1])]:
        if (name := _lost(evidence, node)) and (node, name) not in found:
            found[node, name] = found.pop((node, device))
    for (node, hca), (because, signals) in found.items():
        yield Hypothesis(
            CAUSE, ({"node": node} if node else {}) | ({"hca": hca} if " " not in hca else {}),
            f"The adapter {hca} on {node or 'a node'} failed: {because[0].says}",
            tuple(because), tuple(dict.fromkeys(signals)),
            would_change=("the adapter at work after a reset", "a kernel log without errors of it"),
            ranks=everyone(evidence) if "adapter_fatal_event" in signals else frozenset(),
            nodes=frozenset({node}),
        )  # fmt: skip


def _lost(evidence: Evidence, node: str) -> str:
    """The one adapter that all other nodes show and this one, which shows some, does not; "" where that tells none."""
    shown: dict[str, set[str]] = {}
    for view in evidence.ports.of_nodes:
        if view.node and view.facts is not None:
            shown.setdefault(view.node, set()).add(view.hca)
    mine = shown.pop(node, set())
    lost = set.intersection(*shown.values()) - mine if mine and shown else set()
    return lost.pop() if len(lost) == 1 else ""


def _told_by_nccl(evidence: Evidence, found: Found) -> None:
    """The event that NCCL got of an adapter. The kernel names adapters by their place on the bus: where it tells of one
    on that node, it is the same."""
    for one in evidence.job.said("ib_async"):
        if not _DIED.search(one[0].name):
            continue
        node, hca = node_of(evidence, one), one[0].where.partition(":")[0]
        mine = [key for key in found if key[0] == node]
        if len(mine) == 1 and mine[0][1] != hca and (not hca or mine[0][1].count(":") == 2):
            found[node, hca or mine[0][1]] = found.pop(mine[0])
        because, signals = found.setdefault((node, hca or "of InfiniBand"), ([], []))
        because.append(quoted(*one))
        signals.append("adapter_fatal_event")


def _add(
    found: Found,
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
