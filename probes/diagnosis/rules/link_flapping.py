"""A port goes down and comes back: the kernel saw it, its counter of downs rose, or NCCL was told of a port error."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.catalog.kernel.events import Link
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import everyone, node_of
from probes.diagnosis.ports import PortView
from probes.diagnosis.times import times_of

CAUSE = "ib.link_flapping"
EVENTS = frozenset(("port_event_in_log", "port_error_recovered"))  # what NCCL was told, once
DOWNS = ("link_downed", "link_down_events_phy")
STARTS_S = 90.0  # judgement: after a boot, until a scheduler gives the node to a job
CHANGES = "carrier_changes"  # of /sys/class/net: down and up are one each


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    found: dict[tuple[str, str], tuple[PortView, list[Reason], list[str]]] = {}

    def add(view: PortView, reason: Reason, signal: str) -> None:
        _, because, signals = found.setdefault((view.node, view.hca), (view, [], []))
        because.append(reason)
        signals.append(signal)

    for view in evidence.ports.views.values():
        rise = max(*(view.rise(name) for name in DOWNS), (view.rise(CHANGES) + 1) // 2)
        if rise and _is_up(view):
            times = "once" if rise == 1 else f"{rise} times"
            add(
                view,
                Reason(f"{view.called} went down {times} between two looks", view.ref_of(*DOWNS, CHANGES)),
                "link_downed_rises",
            )
    for seen in evidence.of("host.kernel_log"):
        for link in seen.facts.links:
            _logged(evidence, seen, link, add)
    for node, hca, reason in _recovered(evidence):
        view = evidence.ports.of_device(node, hca) or PortView(node, hca, 1)
        if (view.node, view.hca) not in found:
            add(view, reason, "port_error_recovered")
    if not found:
        return
    for event, log, seen in evidence.job.said("ib_async"):
        if "port" not in event.name.lower() or event.secondary:
            continue
        hca = event.where.partition(":")[0]
        for (node, name), (_, because, signals) in found.items():
            if (
                name == hca
                and seen.node in (node, "")
                and not {*signals} & {"port_event_in_log", "port_error_recovered"}
            ):
                because.append(quoted(event, log, seen))
                signals.append("port_event_in_log")
    for view, because, signals in found.values():
        yield Hypothesis(
            CAUSE, view.subject, f"Port {view.called} goes down and comes back",
            tuple(because), tuple(dict.fromkeys(signals)),
            would_change=("a kernel log of the same minutes without link messages", "the count of downs, unchanged"),
            ranks=everyone(evidence) if EVENTS & {*signals} else frozenset(),
            nodes=view.nodes,
        )  # fmt: skip


def _recovered(evidence: Evidence) -> Iterator[tuple[str, str, Reason]]:
    """Adapters that NCCL was told a port error of, and that are up again: NCCL was told so, or they are ACTIVE now."""
    errors: dict[tuple[str, str], Reason] = {}
    active = set()
    for one in evidence.job.said("ib_async"):
        event, log, seen = one
        node = node_of(evidence, one)
        key = node, event.where.partition(":")[0]
        name = event.name.lower()
        if key[1] and "port error" in name:
            errors.setdefault(key, quoted(event, log, seen))
        elif "port active" in name:
            active.add(key)
    for (node, hca), reason in errors.items():
        view = evidence.ports.of_device(node, hca)
        if (node, hca) in active or (view is not None and view.facts is not None and view.facts.state == "ACTIVE"):
            yield node, hca, reason


def _is_up(view: PortView) -> bool:
    return view.facts is None or view.facts.state in ("ACTIVE", None)


def _since_boot(stamp: str) -> float:
    """Seconds from the boot to a line of the kernel's that tells no other time."""
    found = re.fullmatch(r"\[ {0,8}(\d{1,9}\.\d{1,9})\]", stamp)
    return float(found[1]) if found else float("inf")


def _logged(evidence: Evidence, seen: Seen, link: Link, add: object) -> None:
    downs = max(link.drops, link.count // 2 if link.up else link.drops)
    if not link.up or not downs or times_of(evidence).over(seen.node, link.last_at, link.last):
        return
    if _since_boot(link.last) < STARTS_S:
        return  # ports come up and go while drivers and firmware start, before any job
    view = evidence.ports.of_device(seen.node, link.device) or evidence.ports.of_device(seen.node, link.name)
    view = view or PortView(seen.node, link.name or link.device, 1, ref=seen.ref)
    if not _is_up(view):
        return  # it stays down: that is another cause
    signal = "link_flaps_in_log" if downs > 1 else "link_down_once_in_log"
    times = f"{downs} times" if downs > 1 else "once"
    add(view, Reason(f"the kernel saw {view.called} go down {times} and come back", seen.ref), signal)  # type: ignore[operator]


RULE = Rule((CAUSE,), judge)
