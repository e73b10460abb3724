"""NCCL talks over sockets by a slow interface, such as that for management, while a much faster one is beside it.

It takes the first that has an address and is no loopback or docker, unless NCCL_SOCKET_IFNAME says which.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from probes.catalog.network.net_facts import NetLink
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import everyone, interfaces, listed, node_of, several_nodes
from probes.diagnosis.rules.bootstrap import INSIDE

CAUSE = "net.wrong_interface"
FASTER = 4.0  # judgement: 10 beside 25 Gb/s may be on purpose, 1 or 10 beside 100 is not
IDLE = 20  # times less than the one in use: judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    if not several_nodes(evidence):
        return
    over_sockets = {node_of(evidence, one): one for one in evidence.job.said("nccl_net") if one[0].name == "Socket"}
    over_sockets |= {
        node_of(evidence, one): one for one in evidence.job.said("nccl_link") if "NET/Socket" in one[0].name
    }
    because: list[Reason] = []
    nodes: dict[str, tuple[NetLink, NetLink]] = {}
    for node, mine in interfaces(evidence).items():
        if node not in over_sockets:
            continue
        links = {name: told for (where, name), told in evidence.ports.links.items() if where == node}
        used = [links[name][0] for name in mine.values() if name in links]
        if len(used) != 1 or used[0].speed_gbps is None:
            continue
        better = [link for link, _ in links.values() if _better(link, used[0])]
        if better:
            nodes[node] = used[0], max(better, key=lambda link: link.speed_gbps or 0.0)
            ref = links[used[0].name][1]
            because.append(
                Reason(
                    f"on {node} {used[0].name} has {used[0].speed_gbps:g} Gb/s, {nodes[node][1].name} beside it "
                    f"{nodes[node][1].speed_gbps:g} Gb/s",
                    ref,
                )
            )
    if not nodes:
        return
    signals = ["slower_interface_taken"]
    carried = _carried(evidence, nodes)
    if carried:
        signals.append("traffic_on_slow_interface")
    node = min(nodes)
    slow, fast = nodes[node]
    yield Hypothesis(
        CAUSE,
        {"node": node} if len(nodes) == 1 and len(over_sockets) > 1 else {},
        f"NCCL on {listed(set(nodes))} talks over {slow.name} with {slow.speed_gbps:g} Gb/s, while {fast.name} with "
        f"{fast.speed_gbps:g} Gb/s is beside it",
        (*because[:3], *carried[:2], quoted(*over_sockets[node])), tuple(signals),
        would_change=("no way between the nodes over the faster interface", "NCCL_SOCKET_IFNAME naming the faster one"),
        ranks=everyone(evidence), nodes=frozenset(nodes),
    )  # fmt: skip


def _better(link: NetLink, used: NetLink) -> bool:
    fast = (link.speed_gbps or 0.0) >= FASTER * (used.speed_gbps or 0.0)
    return fast and link.up is not False and not INSIDE.match(link.name) and any(map(_routable, link.addresses))


def _routable(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_link_local)


def _carried(evidence: Evidence, nodes: dict[str, tuple[NetLink, NetLink]]) -> list[Reason]:
    """That the slow one carries the job, by two looks at the same counters."""
    said = []
    for seen in evidence.of("ib.counters"):
        pair = nodes.get(seen.node)
        grown: dict[str, int] = {}
        for name in (link.name for link in pair or ()):
            looks = [
                one.counters.get("rx_bytes") for one in seen.facts.sets if (one.kind, one.name) == ("netdev", name)
            ]
            known = [count for count in looks if count is not None]
            if len(known) > 1:
                grown[name] = known[-1] - known[0]
        if pair and len(grown) == 2 and grown[pair[0].name] > IDLE * max(grown[pair[1].name], 1):
            says = f"{pair[0].name} on {seen.node} received {grown[pair[0].name] / 1e6:,.0f} MB between two looks"
            said.append(Reason(f"{says}, {pair[1].name} {grown[pair[1].name] / 1e6:,.2f} MB", seen.ref))
    return said


RULE = Rule((CAUSE,), judge)
