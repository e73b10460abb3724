"""Ranks cannot reach each other to begin with: the wrong interface, a blocked port, or a store that is not there.

NCCL's bootstrap and torch's store use TCP, not the fabric. "No route" and a time-out are of the network; "refused"
means that the node answers and nobody listens there: a rank that ended or has not begun, or a firewall that rejects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import (
    Said,
    address,
    address_kind,
    before,
    everyone,
    interfaces,
    listed,
    node_at,
    node_of,
    odd_ones,
    own_faults,
    several_nodes,
    whom,
)

LOOPBACK = "loopback address as fallback"  # what gloo tells of itself
LEAST = 3  # steps; judgement: one that an earlier run wrote may be flushed late
INTERFACE, BLOCKED = "net.wrong_interface", "net.bootstrap_blocked"
# Interfaces that lead to no other node: made by container engines, virtual machines, Kubernetes networks, VPNs.
INSIDE = re.compile(
    r"(?:lo$|docker|virbr|br-|veth|cni|flannel|cali|lxc|lxd|podman|kube-|nodelocal|vmnet|vboxnet|dummy"
    r"|tailscale|zt\w{8}|wg\d|wt\d|tun\d|utun\d|ppp\d)"
)
BRIDGES = ("172.17.", "192.168.122.")  # that docker and libvirt make on every machine
NO_ROUTE = ("No route", "Network is unreachable", "Host is unreachable", "Network unreachable")
LATE = ("Connection timed out", "onnect timeout", "exceeded timeouts", "Software caused connection abort")
REFUSED = ("Connection refused", "exceeded retries")
SIGNALS = {"no_route": "connection_no_route", "timed_out": "connection_timed_out", "refused": "connection_refused"}
NO_INTERFACE = re.compile(r"(?i)no (?:usable )?(?:socket |listening |ip )?interface|^unable to find address for")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    failed = [one for one in evidence.job.said("bootstrap") if not one[0].secondary and not _tried_again(evidence, one)]
    loops = [one for one in failed if one[0].name == LOOPBACK]  # a remark, of no matter within one node
    failed = [one for one in failed if one[0].name != LOOPBACK]
    failed += _tries(evidence)
    # A connection that is reset was there: its address led to the peer.
    failed += [one for one in evidence.job.said("gloo_timeout") if address_kind(address(one[0].peer))]
    wrong = list(_interface(evidence, failed, loops if failed else []))
    yield from wrong
    yield from _blocked(evidence, failed, bool(wrong))


def _tried_again(evidence: Evidence, one: Said) -> bool:
    """Whether the steps of its log all came after it: what was refused was tried again, and the job began."""
    event, log, _ = one
    return any(
        steps.count >= LEAST and (steps.line or 0) > event.last_place > 0
        for steps, other, _ in evidence.job.said("progress")
        if other is log
    )


def _tries(evidence: Evidence) -> list[Said]:
    """Lines of tries count where the rank never came further; a job that starts tries for a while."""
    done = {one[0].rank for one in evidence.job.said("nccl_init_done", "progress")}
    tries = [one for one in evidence.job.said("nccl_retry") if one[0].peer and one[0].rank not in done]
    return [] if done & {None} else tries


def _interface(evidence: Evidence, failed: list[Said], loops: list[Said]) -> Iterator[Hypothesis]:
    several = several_nodes(evidence)
    none = [one for one in failed if NO_INTERFACE.search(one[0].name)]
    bridged = [one for one in failed if address(one[0].peer).startswith(BRIDGES)]
    if not several and not none and not bridged:
        return  # within one node every interface will do
    taken = interfaces(evidence)
    lines = {node_of(evidence, one): one for one in evidence.job.said("nccl_net") if one[0].name != "NET/IB"}
    lines |= {node_of(evidence, one): one for one in loops}
    done = {node_of(evidence, one) for one in evidence.job.said("nccl_init_done")}
    bad: dict[str, str] = {}
    for node, mine in taken.items():
        inside = [f"{name} ({at})" for at, name in mine.items() if INSIDE.match(name) or address_kind(at)]
        if inside and len(inside) == len(mine) and (node not in done or failed):
            bad[node] = inside[0]
    bad |= {node_of(evidence, one): "the loopback address" for one in loops}
    names = {node: sorted(mine.values())[0] for node, mine in taken.items() if mine}
    nets = {node: ".".join(next(iter(mine)).split(".")[:2]) for node, mine in taken.items() if mine}
    apart = (set(odd_ones(dict(names))) & set(odd_ones(dict(nets)))) - (set() if failed else done)
    lost = [one for one in failed if address_kind(address(one[0].peer)) or address(one[0].peer).startswith(BRIDGES)]
    signals = ["interface_of_inside"] * bool(bad) + ["peer_address_of_inside"] * bool(lost)
    signals += ["no_interface"] * bool(none) + ["interface_differs"] * bool(apart and not bad)
    if not signals:
        return
    signals += ["connections_fail"] * bool(failed)
    nodes = set(bad) or apart or {node_of(evidence, one) for one in none} or {node_at(evidence, lost[0][0].peer)}
    what = (
        f"took {next(iter(bad.values()))}"
        if bad
        else f"took {names[min(apart)]}"
        if apart
        else "did not take the right one"
    )
    if lost and not bad and not apart and not none:
        what = f"gave its peers the address {address(lost[0][0].peer)}"
    shown = [lines[node] for node in sorted(nodes) if node in lines][:3]
    yield Hypothesis(
        INTERFACE,
        whom(nodes),
        f"{'Gloo' if loops else 'NCCL'} on {listed(nodes)} {what}, an interface by which other nodes are not reached",
        tuple(quoted(*one) for one in (*shown, *none[:1], *lost[:2], *failed[:1])),
        tuple(signals),
        would_change=("NCCL_SOCKET_IFNAME naming the interface of the job's network, on every node",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


def _kind(one: Said) -> str:
    name = one[0].name
    for words, kind in ((NO_ROUTE, "no_route"), (LATE, "timed_out"), (REFUSED, "refused")):
        if name.startswith(words) or any(word in name for word in words):
            return kind
    return ""


def _blocked(evidence: Evidence, failed: list[Said], wrong_interface: bool) -> Iterator[Hypothesis]:
    said = [one for one in failed if _kind(one)]
    if not said or wrong_interface:
        return
    kinds = {_kind(one) for one in said}
    kind = next(kind for kind in ("no_route", "timed_out", "refused") if kind in kinds)
    told = [one for one in said if _kind(one) == kind]
    ended = [one for one in own_faults(evidence) if before(evidence, one, told[0]) is not False]
    if ended and kind == "refused":
        return  # nobody listens where a rank has ended
    running = any(one[0].more.get("call") in ("recv", "send") for one in told)
    nodes = blamed(evidence, told)
    words = {"no_route": "there is no route", "timed_out": "it does not answer", "refused": "it refuses"}[kind]
    reporters = {node_of(evidence, one) for one in told}
    where = f"the connection port of {listed(nodes)}" if any(nodes - reporters) else "the connection ports of its peers"
    yield Hypothesis(
        BLOCKED,
        whom(nodes),
        f"{listed(reporters)[:1].upper()}{listed(reporters)[1:]} cannot reach {where}: {words}",
        tuple(quoted(*one) for one in told[:4]),
        ("connection_lost_running" if running else SIGNALS[kind],),
        against=tuple(quoted(*one, "a rank had failed by then") for one in ended[:1]),
        would_change=("a connection between the two nodes on a port as high as NCCL's, that succeeds",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes | reporters),
    )


def blamed(evidence: Evidence, said: list[Said]) -> set[str]:
    """Whom most name; who alone complains of several; of a pair the end that does not complain itself."""
    named: dict[str, set[str]] = {}
    by: dict[str, set[str]] = {}
    told = {node_of(evidence, one) for one in said}
    for one in said:
        node, peer = node_of(evidence, one), node_at(evidence, one[0].peer, told)
        if peer and peer != node:
            named.setdefault(peer, set()).add(node)
            by.setdefault(node, set()).add(peer)
    if not named:
        return set()
    if len(by) == 1 and len(named) > 1:
        return set(by)
    counts = sorted(named, key=lambda peer: -len(named[peer]))
    if len(counts) == 1 or len(named[counts[0]]) > len(named[counts[1]]):
        return {counts[0]} if counts[0] not in by or len(by) > 2 else set()
    return set()


RULE = Rule((INTERFACE, BLOCKED), judge)
