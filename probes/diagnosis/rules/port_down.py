"""A port of an HCA is down while the others are up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.catalog.kernel.events import Link
from probes.core import Finding
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.interfaces import NOT_TRAINING, training_interfaces
from probes.diagnosis.job import quoted
from probes.diagnosis.ports import PortView
from probes.diagnosis.sockets import sockets_of
from probes.diagnosis.times import apart, local, times_of

CAUSE = "ib.link_down"
BOOT_S = 600.0  # judgement, as for findings of kernel logs
SOON_S = 2400.0  # judgement: torch's usual 10 minutes, or the 30 that some set, until a rank complains
TRIES = 3  # judgement: TCP repeats a lost packet or two at once, and not more often
DATA = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    up = sum(port.state == "ACTIVE" for seen in evidence.of("ib.ports") for port in seen.facts.ports)
    everywhere = any(stall.complete for stall in evidence.stalls.all)
    for seen, finding in evidence.findings("ib.port_down", "ib.port_not_active"):
        if finding.severity == "info" or _never_used(seen, finding) or _waits_for_manager(evidence, seen, finding):
            continue
        yield _down(evidence, seen, finding, up, everywhere)
    yield from _unlike_others(evidence)
    yield from _by_kernel(evidence)
    yield from _interfaces(evidence)
    yield from _unanswered(evidence)


def _unlike_others(evidence: Evidence) -> Iterator[Hypothesis]:
    """A port without a finding of its own, as of RoCE without an interface that is up, which is ACTIVE on two other
    nodes at least and down on no second one."""
    found = {(seen.node, one.subject.get("hca"), one.subject.get("port"))
        for seen, one in evidence.findings("ib.port_down", "ib.port_not_active")}  # fmt: skip
    same: dict[tuple[str, int], list[PortView]] = {}
    for view in evidence.ports.of_nodes:
        if view.facts is not None and view.facts.state and view.node:
            same.setdefault((view.hca, view.port), []).append(view)
    for views in same.values():
        down = [view for view in views if view.facts is not None and view.facts.state == "DOWN"]
        if len(down) != 1 or len(views) < 3 or (down[0].node, down[0].hca, down[0].port) in found:
            continue
        view = down[0]
        others = sum(one.facts is not None and one.facts.state == "ACTIVE" for one in views)
        if others < 2:
            continue
        yield Hypothesis(
            CAUSE, view.subject,
            f"Port {view.port} of {view.hca} on {view.node} is down, on {others} other nodes it works",
            (Reason(f"{view.called} is down, on {others} other nodes it is ACTIVE", view.ref),),
            ("port_down_unlike_others",),
            would_change=("the port ACTIVE at a second look",), nodes=view.nodes,
        )  # fmt: skip


def _by_kernel(evidence: Evidence) -> Iterator[Hypothesis]:
    """The kernel saw a link go down and never come back, and no look at the port says more, or only that it is so."""
    found = {(seen.node, one.subject.get("hca"), one.subject.get("port"))
        for seen, one in evidence.findings("ib.port_down", "ib.port_not_active") if one.severity != "info"}  # fmt: skip
    for seen in evidence.of("host.kernel_log"):
        bad = {
            one.subject.get("device") for _, one in evidence.findings("kernel.link") if one.severity in ("bad", "warn")
        }
        for link in seen.facts.links:
            view = evidence.ports.of_device(seen.node, link.device) or evidence.ports.of_device(seen.node, link.name)
            told = view is not None and view.facts is not None and view.facts.state
            judged = view is not None and (view.node, view.hca, view.port) in found
            late = link.drops or link.name.startswith("hsn") or _after_boot(seen, link)
            now = _down_now(evidence, seen.node, link.name, view) if late and not judged else ""
            soon = link.device not in bad and _as_it_stopped(evidence, link.last)
            if (
                link.up is not False
                or (told and not now)
                or not (link.device in bad or soon or now)
                or times_of(evidence).over(seen.node, link.last_at, link.last)
            ):
                continue
            name = link.name or link.device
            says = f"the kernel saw {name} on {seen.node or 'a node'} go down, and not come back"
            yield Hypothesis(
                CAUSE,
                view.subject if now and view is not None
                else ({"node": seen.node} if seen.node else {}) | {"device": name},
                says[:1].upper() + says[1:],
                (Reason(says, seen.ref), *[Reason(f"{name} is down now, others of the node are up", now)] * bool(now)),
                ("link_lost_in_log" if link.drops else "link_down_in_log", *["link_down_as_it_stopped"] * soon,
                    *["down_now_as_logged"] * bool(now)),
                would_change=("the state of the port now: ibstat, or ip link",),
                nodes=frozenset({seen.node} if seen.node else ()),
            )  # fmt: skip


def _after_boot(seen: Seen, link: Link) -> bool:
    """Long after: while a node boots, ports without a cable tell that they are down."""
    since = re.fullmatch(r"\[ {0,8}(\d{1,9})\.\d{3,6}\]", link.first)
    booted = seen.facts.booted_at
    if since is None and (link.first_at is None or booted is None):
        return False
    return (int(since[1]) if since else (link.first_at or 0.0) - (booted or 0.0)) > BOOT_S


def _down_now(evidence: Evidence, node: str, name: str, view: PortView | None) -> str:
    """Where a look shows it down and another of its kind on that node up; "" where none does."""
    if view is not None and view.facts is not None and view.facts.state == "DOWN":
        others = [one for one in evidence.ports.on(node) if one is not view and one.facts is not None]
        return view.ref if any(one.facts is not None and one.facts.state == "ACTIVE" for one in others) else ""
    mine = {at[1]: one for at, one in evidence.ports.links.items() if at[0] == node}
    if name not in mine or mine[name][0].up is not False:
        return ""
    kind = re.sub(r"\d+", "#", name)
    up = any(one.up and re.sub(r"\d+", "#", other) == kind for other, (one, _) in mine.items())
    return mine[name][1] if up else ""


def _as_it_stopped(evidence: Evidence, stamp: str) -> bool:
    """Whether it was shortly before ranks complained, by times as printed: no link of a node that boots."""
    at = local(stamp)
    told = [local(event.stamp) for event, _, _ in evidence.job.said("watchdog_timeout", "ib_completion", "heartbeat")]
    return at is not None and any(-60.0 <= apart(one, at) <= SOON_S for one in told if one is not None)


def _interfaces(evidence: Evidence) -> Iterator[Hypothesis]:
    """A network interface without carrier, which the same one of two other nodes has; its port may not be told."""
    links = evidence.ports.links
    used = training_interfaces(evidence, evidence.ports)
    for (node, name), (link, ref) in links.items():
        up = sum(m == name and n != node and one.up is True for (n, m), (one, _) in links.items())
        view = evidence.ports.of_device(node, name)
        if (
            link.up is not False
            or up < 2
            or name.startswith(NOT_TRAINING)
            or (view is not None and view.facts is not None and view.facts.state)
        ):
            continue
        yield Hypothesis(
            CAUSE,
            {"node": node, "device": name} | ({"hca": link.hca} if link.hca else {}),
            f"{name} on {node} has no link, on {up} other nodes it has",
            (Reason(f"{name} has no carrier", ref),),
            ("interface_down" if name in used else "interface_down_elsewhere",),
            would_change=(f"ethtool {name}: link detected",),
            nodes=frozenset({node}),
        )


def _unanswered(evidence: Evidence) -> Iterator[Hypothesis]:
    """An interface that has carried data has no link, and connections of its node, or to it, get no answer. Of two
    that face each other the one that somebody switched off is at fault."""
    stuck = [
        (seen, one)
        for seen, sockets in sockets_of(evidence)
        for one in sockets
        if one.state == "ESTAB" and one.send_queue and one.tries >= TRIES
    ]
    lost = [
        (node, link, ref)
        for (node, _), (link, ref) in evidence.ports.links.items()
        if link.up is False and link.carried and not link.name.startswith(NOT_TRAINING)
        and any(seen.node == node for seen, _ in stuck)
    ]  # fmt: skip
    lost = [one for one in lost if one[1].off] or lost
    for node, link, ref in lost if len(lost) == 1 else ():
        seen, one = next(item for item in stuck if item[0].node == node)
        why = "is switched off" if link.off else "has no carrier"
        yield Hypothesis(
            CAUSE,
            {"node": node, "device": link.name} if node else {"device": link.name},
            f"{link.name} on {node or 'a node'} {why}, and what was connected by it gets no answer",
            (
                Reason(f"{link.name} {why}, though data came in by it before", ref),
                Reason(f"{one.local} sent {one.send_queue:,} bytes to {one.peer} {one.tries} times in vain", seen.ref),
            ),
            ("interface_lost",),
            would_change=(f"ip link show {link.name}: LOWER_UP",),
            nodes=frozenset({node}),
        )


def _waits_for_manager(evidence: Evidence, seen: Seen, finding: Finding) -> bool:
    """Its cable works, and no subnet manager brought it up: see gid_or_route."""
    view = _view(evidence, seen.node, finding)
    facts = view.facts if view is not None else None
    return facts is not None and facts.state in ("INIT", "ARMED") and facts.phys_state in ("LinkUp", None)


def _view(evidence: Evidence, node: str, finding: Finding) -> PortView | None:
    found: PortView | None = evidence.ports.views.get((node, str(finding.subject["hca"]), finding.subject["port"]))
    return found


def _like_elsewhere(evidence: Evidence, view: PortView | None) -> bool:
    """Down on every node, three at least, and nothing shows that it ever worked: no cable is meant to be there."""
    if view is None:
        return False
    same = [one for one in evidence.ports.of_nodes if (one.hca, one.port) == (view.hca, view.port) and one.facts]
    if len(same) < 3 or any(one.facts is not None and one.facts.state == "ACTIVE" for one in same):
        return False
    return not any(value for one in same for look in one.looks for key, value in look.counters.items() if key in DATA)


def _never_used(seen: Seen, finding: Finding) -> bool:
    """A port that has carried nothing since the node's boot, of an adapter that works by another one."""
    if seen.facts is None or finding.severity != "warn":
        return False
    about = finding.subject.get("hca"), finding.subject.get("port")
    ports = [one for one in seen.facts.ports if (one.hca, one.port) == about]
    return any([one.counters.get(name) for name in ("port_xmit_data", "port_rcv_data")] == [0, 0] for one in ports)


def _down(evidence: Evidence, seen: Seen, finding: Finding, up: int, everywhere: bool) -> Hypothesis:
    hca, port = str(finding.subject["hca"]), finding.subject["port"]
    because = [Reason(finding.says + (f"; {up} other ports are ACTIVE" if up else ""), seen.ref)]
    if evidence.expected is not None and (leaf := _other_end(evidence, seen.node, hca, port)):
        because.append(Reason(f"its cable leads to {leaf}, as the expected topology has it", seen.ref))
    signals = ["port_down" if finding.severity == "bad" else "port_down_unused"]
    if _like_elsewhere(evidence, _view(evidence, seen.node, finding)):
        signals = ["port_down_everywhere"]
    # The kernel names an adapter by its PCI address, sysfs by its name.
    named = {hca, *(one.pci for one in seen.facts.ports if one.hca == hca and one.pci)}
    for source, link in evidence.findings("kernel.link"):
        if source.node == seen.node and link.subject.get("device") in named:
            because.append(Reason(link.says, source.ref))
            signals.append("port_down_in_log")
    told: set[str] = set()  # one line of each kind, whichever rank wrote it
    for event, log, source in evidence.job.said("ib_completion", "ib_async"):
        if event.kind not in told and event.where.partition(":")[0] == hca and source.node in (seen.node, ""):
            because.append(quoted(event, log, source))
            signals.append("completion_error")
            told.add(event.kind)
    if everywhere:
        stall = next(stall for stall in evidence.stalls.all if stall.complete)
        rank = evidence.job.view(min(stall.waiting))
        because.append(
            Reason(f"all ranks are in {stall.called}, and it does not end", rank.ref("rank.flight_recorder"))
        )
        signals.append("launched_everywhere")
    against: tuple[Reason, ...] = ()
    if evidence.stalls.moving:
        against = (Reason("the recorders of the ranks show work that ended a moment ago", seen.ref),)
    return Hypothesis(
        CAUSE,
        ({"node": seen.node} if seen.node else {}) | {"hca": hca, "port": port},
        f"Port {port} of {hca} on {seen.node or 'a node'} {finding.says.partition(' ')[2]}",
        tuple(because),
        tuple(dict.fromkeys(signals)),
        against=against,
        would_change=("the port ACTIVE at a second look", "a topology in which this port has no cable"),
        nodes=frozenset({seen.node}),
    )


def _other_end(evidence: Evidence, node: str, hca: str, port: object) -> str:
    ports = (one.port for one in evidence.fabric.ports if one.seen is not None and one.seen.hca == hca)
    return next((one.other_end for one in ports if (one.node, one.port) == (node, port)), "")


RULE = Rule((CAUSE,), judge)
