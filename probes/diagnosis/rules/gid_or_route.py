"""RDMA finds no way: a port that no subnet manager brought up, a GID that leads nowhere, no route between rails."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.ports import Ports, PortView

CAUSE = "ib.gid_or_route"
# ibv_modify_qp(3) to RTR resolves the peer's GID; the message of errno tells what failed (field cases 2, 4, 12).
_MODIFY = re.compile(
    r"ibv_modify_qp[^\n]{0,120}?(Network is unreachable|No route to host|Connection timed out|No such device"
    r"|Invalid argument|errno (?:101|113|110|19|22)\b)", re.I,
)  # fmt: skip
_PKEY = re.compile(
    r"\bp_?key\b[^\n]{0,60}(?:not found|invalid|mismatch)|GID index \d{1,4}[^\n]{0,60}(?:invalid|not)", re.I
)
NO_LID = (0, 0xFFFF)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    waiting = [view for view in ports.of_nodes if _without_manager(view)]
    if waiting:
        yield from _manager(evidence, ports, waiting)
    links = {view.node: gid for view in ports.of_nodes if (gid := _only_link_local(view))}
    for event, log, seen in evidence.job.said("nccl_warn", "nccl_error", "bootstrap", "traceback"):
        found = _MODIFY.search(event.text) or _PKEY.search(event.text)
        if found is None or event.secondary:
            continue
        rank = event.rank
        node = seen.node or (evidence.job.view(rank).node if rank is not None else "")
        because, signals = [quoted(event, log, seen)], ["queue_pair_no_path"]
        if node in links:
            because.append(Reason(f"{links[node].called} has link-local addresses only", links[node].ref))
            signals.append("gid_link_local")
        what = found[1] if found.re is _MODIFY else "partition or GID index"
        yield Hypothesis(
            CAUSE, {"node": node} if node else {},
            f"RDMA finds no way to its peer{f' from {node}' if node else ''}: {what}",
            tuple(because), tuple(signals),
            would_change=("show_gids of both ends, and a route between their addresses",),
            ranks=frozenset({rank} if rank is not None else ()), nodes=frozenset({node} if node else ()),
        )  # fmt: skip


def _without_manager(view: PortView) -> bool:
    """The cable works, and nobody gave it an address: INIT or ARMED with the link up."""
    facts = view.facts
    if facts is None or facts.state not in ("INIT", "ARMED") or facts.link_layer == "Ethernet":
        return False
    return facts.phys_state in ("LinkUp", None)


def _manager(evidence: Evidence, ports: Ports, waiting: list[PortView]) -> Iterator[Hypothesis]:
    active = [view for view in ports.of_nodes if view.facts is not None and view.facts.state == "ACTIVE"]
    none = [seen for seen in evidence.of("host.settings") if seen.facts.sm_state == "none"]
    because = []
    for view in waiting[:6]:
        assert view.facts is not None
        lid = f", LID {view.facts.lid}" if view.facts.lid in NO_LID else ""
        manager = ", no subnet manager" if view.facts.sm_lid == 0 else ""
        because.append(Reason(f"{view.called} is {view.facts.state} with its link up{lid}{manager}", view.ref))
    because += [Reason("sminfo reaches no subnet manager", seen.ref) for seen in none[:1]]
    nodes = frozenset(view.node for view in waiting if view.node)
    if not active or len(waiting) > len(active):
        state = waiting[0].facts.state if waiting[0].facts else ""
        yield Hypothesis(
            CAUSE, {}, f"No subnet manager brings {len(waiting)} ports up: their links work, their state stays {state}",
            tuple(because), ("no_subnet_manager",), would_change=("sminfo from one of these nodes",), nodes=nodes,
        )  # fmt: skip
        return
    for view, reason in zip(waiting[:6], because, strict=False):
        yield Hypothesis(
            CAUSE, view.subject,
            f"The subnet manager does not bring {view.called} up: its link works, {len(active)} others are ACTIVE",
            (reason,), ("port_without_manager",),
            would_change=("the log of the subnet manager about this GUID",), nodes=view.nodes,
        )  # fmt: skip


def _only_link_local(view: PortView) -> PortView | None:
    gids = view.facts.gids if view.facts is not None else ()
    addresses = [gid.rsplit(" ", 1)[-1] for gid in gids]
    alone = bool(addresses) and all(one.startswith("fe80") for one in addresses) and len(addresses) > 1
    return view if alone and view.facts is not None and view.facts.link_layer != "InfiniBand" else None


RULE = Rule((CAUSE,), judge)
