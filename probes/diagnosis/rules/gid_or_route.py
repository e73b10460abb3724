"""RDMA finds no way: a port that no subnet manager brought up, a GID that leads nowhere, no route between rails.

ibv_modify_qp to the state RTR resolves the other end's address, so its error is of GIDs, routes or the other end: see
NCCL's manual, chapter Troubleshooting.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, whom
from probes.diagnosis.ports import Ports, PortView
from probes.diagnosis.rules._gids import odd_gids

CAUSE = "ib.gid_or_route"
# Words of errno(3) beside the call, in lines that are not of NCCL's form.
_MODIFY = re.compile(
    r"ibv_modify_qp[^\n]{0,120}?(Network is unreachable|No route to host|Connection timed out|No such device"
    r"|Invalid argument|errno (?:101|113|110|19|22)\b)", re.I,
)  # fmt: skip
_PKEY = re.compile(
    r"\b(p_?key)\b[^\n]{0,60}(?:not found|invalid|mismatch)|(GID index) \d{1,4}[^\n]{0,60}(?:invalid|not)", re.I
)
NO_LID = (0, 0xFFFF)
NO_ADDRESS = ("::", "0:0:0:0:0:0:0:0")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    waiting = [view for view in ports.of_nodes if _without_manager(view)]
    if waiting:
        yield from _manager(evidence, ports, waiting)
    said = [one for one in evidence.job.said("ib_route") if not one[0].secondary]
    said += [
        one
        for one in evidence.job.said("nccl_warn", "nccl_error", "bootstrap", "traceback")
        if not one[0].secondary and (_MODIFY.search(one[0].text) or _PKEY.search(one[0].text))
    ]
    odd = odd_gids(evidence) or _odd_partitions(evidence)
    if said:
        yield _route(evidence, said, odd)
    elif odd:
        yield _shifted(odd)


def _odd_partitions(evidence: Evidence) -> dict[str, list[Reason]]:
    """Node -> why, of the few whose port is in other partitions than the same port of most others: two ends talk only
    within one, and never two limited members (InfiniBand Architecture Specification vol. 1, 10.9)."""
    same: dict[tuple[str, int], list[PortView]] = {}
    for view in evidence.ports.of_nodes:
        if view.node and view.facts is not None and view.facts.pkeys:
            same.setdefault((view.hca, view.port), []).append(view)
    odd: dict[str, list[Reason]] = {}
    for views in same.values():
        most, count = Counter(view.facts.pkeys for view in views if view.facts).most_common(1)[0]
        for view in views if len(views) > 2 and count * 3 >= 2 * len(views) else ():
            if view.facts is not None and view.facts.pkeys != most:
                says = f"{view.called} is in the partitions {', '.join(view.facts.pkeys[:6])}, on {count} other nodes"
                odd.setdefault(view.node, []).append(Reason(f"{says} {', '.join(most[:6])}", view.ref))
    return odd


def _shifted(odd: dict[str, list[Reason]]) -> Hypothesis:
    """Nobody said that a queue pair was refused: the table alone."""
    return Hypothesis(
        CAUSE,
        whom(set(odd)),
        f"{_unlike(odd)} on {listed(set(odd))} than on the other nodes",
        tuple(reason for some in odd.values() for reason in some[:2])[:4],
        ("gid_unlike_others_alone",),
        would_change=("show_gids and pkeys of the ports: the same on every node",),
        nodes=frozenset(odd),
    )


def _unlike(odd: dict[str, list[Reason]]) -> str:
    if any("partitions" in reason.says for some in odd.values() for reason in some):
        return "Ports are in other partitions"
    return "The GID index that NCCL is told to take is another address"


def _route(evidence: Evidence, said: list[Said], odd: dict[str, list[Reason]]) -> Hypothesis:
    nodes = {node_of(evidence, one) for one in said}
    own = {node_of(evidence, one) for one in said if _bad_gid(one)}
    local = {view.node: view for view in evidence.ports.of_nodes if view.node in nodes and _only_link_local(view)}
    remotes = Counter(str(one[0].more["remote_gid"]) for one in said if "remote_gid" in one[0].more)
    owners = {str(one[0].more["local_gid"]): node_of(evidence, one) for one in said if "local_gid" in one[0].more}
    blamed, signals = nodes, ["queue_pair_not_connected"]
    table: PortView | None = None
    if own or local:
        blamed = own or set(local)
        signals += ["gid_unusable"] * bool(own) + ["gid_link_local"] * bool(local)
    elif odd:
        blamed = set(odd)
        signals.append("gid_unlike_others")
    elif table := _odd_table(evidence):
        blamed = {table.node}
        signals.append("gid_table_differs")
    elif len(nodes) > 1 and len(remotes) == 1:  # all of them reach for one end
        blamed = {owners.get(next(iter(remotes)), "")}
    gids = {str(one[0].more.get("local_gid", "")) for one in said if _bad_gid(one)}
    gid = f"; local GID {', '.join(sorted(gids))} cannot be reached from other nodes" if gids else ""
    return Hypothesis(
        CAUSE,
        whom(blamed),
        f"On {listed(blamed or nodes)} queue pairs could not be connected{_what(said[0])}{gid}",
        (
            *(quoted(*one) for one in said[:4]),
            *(Reason(f"{view.called} has link-local addresses only", view.ref) for view in list(local.values())[:2]),
            *(reason for some in odd.values() for reason in some[:1]),
            *_other_places(table),
        ),
        tuple(signals),
        against=_other_end_down(evidence),
        would_change=(
            "show_gids on both nodes: a RoCE v2 row with a routable address at the index that NCCL takes",
            "ping between the two adapters' addresses that succeeds",
        ),
        ranks=everyone(evidence),
        nodes=frozenset(blamed | nodes),
    )


def _odd_table(evidence: Evidence) -> PortView | None:
    """The one adapter in whose table other kinds of address stand at the same places than in all others' of its name:
    one index for all nodes then means another address there."""
    tables: dict[str, dict[tuple[str, ...], list[PortView]]] = {}
    for view in evidence.ports.of_nodes:
        if view.facts is not None and view.facts.gids:
            kinds = tuple(" ".join((*gid.split(" ")[:2], _kind(gid.rsplit(" ", 1)[-1]))) for gid in view.facts.gids)
            tables.setdefault(view.hca, {}).setdefault(kinds, []).append(view)
    odd = [
        few[0]
        for kinds in tables.values()
        if len(kinds) == 2
        for few, most in (sorted(kinds.values(), key=len),)
        if len(few) == 1 and len(most) > 1
    ]
    return odd[0] if len({view.node for view in odd}) == 1 else None


def _other_places(odd: PortView | None) -> tuple[Reason, ...]:
    return () if odd is None else (Reason(f"GIDs of {odd.called} stand at other places than the others'", odd.ref),)


def _kind(address: str) -> str:
    if address.startswith("fe80"):
        return "link-local"
    return "IPv4" if "." in address or re.match(r"(?:0{1,4}:){5}ffff:|::ffff:", address) else "IPv6"


def _what(one: Said) -> str:
    event = one[0]
    if event.kind == "ib_route":
        return (f" by {event.where}" if event.where else "") + (f": {event.name}" if event.name else "")
    if found := _MODIFY.search(event.text):
        return f": {found[1]}"
    return ": a partition key or GID index that is not there"


def _bad_gid(one: Said) -> bool:
    """No address at all, or a link-local one that speaks to an end which has a routable one."""
    local, remote = (str(one[0].more.get(key, "")) for key in ("local_gid", "remote_gid"))
    return local in NO_ADDRESS or (local.startswith("fe80") and bool(remote) and not remote.startswith("fe80"))


def _other_end_down(evidence: Evidence) -> tuple[Reason, ...]:
    found = ((seen, finding) for seen, finding in evidence.findings("ib.port_down", "ib.port_not_active"))
    return tuple(Reason(f"a port is down: {finding.says}", seen.ref) for seen, finding in found)[:2]


def _only_link_local(view: PortView) -> bool:
    gids = view.facts.gids if view.facts is not None else ()
    addresses = [gid.rsplit(" ", 1)[-1] for gid in gids]
    alone = len(addresses) > 1 and all(one.startswith("fe80") for one in addresses)
    return alone and view.facts is not None and view.facts.link_layer != "InfiniBand"


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


RULE = Rule((CAUSE,), judge)
