"""InfiniBand as NCCL sees it while the job runs: completion errors, and events of ports (of adapters: hca_fault).

Who reports status 12 (retries exhausted) is the victim: it sends, and nobody answers. The peer in the line is named by
its bootstrap address. So one node that many name, or that alone complains of many, is at fault; a single pair tells
nothing. Status 5 (flushed) follows an earlier error. A rank that ended leaves the same errors behind: then it leads.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import (
    Said,
    address,
    before,
    everyone,
    listed,
    node_at,
    node_of,
    own_faults,
    when,
)
from probes.diagnosis.rules.fabric_events import lost_switches

DOWN, SWITCH = "ib.link_down", "ib.switch_down"
RETRIES = 12  # IBV_WC_RETRY_EXC_ERR of ibv_wc_status(3)
TOGETHER_S = 30.0  # judgement: ports that go within this time went together
Port = tuple[str, str]  # node, adapter:port


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    errors = sorted(_errors(evidence), key=lambda one: when(evidence, one) or float("inf"))
    down = _ports(evidence, "port error")
    if len({node for node, _ in down}) >= 3 and _together(evidence, down):
        yield _switch(evidence, down, errors)
    elif down:
        yield from _by_event(evidence, down, errors)
    elif errors:
        yield from _by_errors(evidence, errors)


def _errors(evidence: Evidence) -> Iterator[Said]:
    for one in evidence.job.said("ib_completion"):
        if one[0].code == RETRIES and not one[0].secondary:
            yield one


def _ports(evidence: Evidence, name: str) -> dict[Port, list[Said]]:
    found: dict[Port, list[Said]] = {}
    for one in evidence.job.said("ib_async"):
        if one[0].name.startswith(name):
            found.setdefault((node_of(evidence, one), one[0].where), []).append(one)
    return found


def _first(evidence: Evidence, said: list[Said]) -> float:
    return min((at for one in said if (at := when(evidence, one)) is not None), default=float("inf"))


def _together(evidence: Evidence, down: dict[Port, list[Said]]) -> bool:
    times = [at for said in down.values() if (at := _first(evidence, said)) != float("inf")]
    return len(times) < len(down) or max(times) - min(times) <= TOGETHER_S


def _by_event(evidence: Evidence, down: dict[Port, list[Said]], errors: list[Said]) -> Iterator[Hypothesis]:
    """The port that went first; the others may have lost their peer by it. One that came back, or whose state now is
    known, is for link_flapping and port_down."""
    back = {(node, where.partition(":")[0]) for node, where in _ports(evidence, "port active")}
    order = sorted(down, key=lambda port: _first(evidence, down[port]))
    for port in order[:4]:
        said, (node, where) = down[port], port
        hca, _, number = where.partition(":")
        view = evidence.ports.of_device(node, hca)
        if (node, hca) in back or (view is not None and view.facts is not None and view.facts.state is not None):
            continue
        subject: dict[str, str | int] = {"node": node} if node else {}
        subject |= {"hca": hca} if hca else {}
        subject |= {"port": int(number)} if number.isdecimal() else {}
        signal = "port_error_event" if port == order[0] else "port_error_later"
        peers = [one for one in errors if node_of(evidence, one) == node or node_at(evidence, one[0].peer) == node]
        yield Hypothesis(
            DOWN,
            subject,
            f"Port {where or 'of an adapter'} on {node or 'a node'} went down, says NCCL",
            tuple(quoted(*one) for one in (*said[:2], *peers[:2])),
            (signal, *(("completion_error",) if peers else ())),
            would_change=(f"the state of {hca or 'the port'} now: ibstat on that node",),
            ranks=everyone(evidence),
            nodes=frozenset({node}),
        )


def _switch(evidence: Evidence, down: dict[Port, list[Said]], errors: list[Said]) -> Hypothesis:
    nodes = {node for node, _ in down}
    lost = lost_switches(evidence)
    shared = evidence.ports.switch_of((node, where.partition(":")[0]) for node, where in down)
    switch = lost[0] if len(lost) == 1 else shared
    unknown = Reason("which switch they share is not known here", down[min(down)][0][2].ref)
    return Hypothesis(
        SWITCH,
        {"switch": switch} if switch else {},
        f"Ports of {len(nodes)} nodes went down together, as when a switch is lost",
        tuple(quoted(*said[0]) for said in list(down.values())[:4]),
        ("ports_lost_together",),
        against=() if switch else (unknown,),
        would_change=("ports of one switch that stayed up",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


def _by_errors(evidence: Evidence, errors: list[Said]) -> Iterator[Hypothesis]:
    exits = [one for one in own_faults(evidence) if before(evidence, one, errors[0]) is not False]
    reporters: dict[str, set[str]] = {}
    named: dict[str, set[str]] = {}
    for one in errors:
        node, peer = node_of(evidence, one), node_at(evidence, one[0].peer) or address(one[0].peer)
        if not peer or node == peer:
            continue
        reporters.setdefault(node, set()).add(peer)
        named.setdefault(peer, set()).add(node)
    if exits or not named:
        return  # a rank that ended leaves the same errors on its peers
    blamed: list[tuple[str, str]] = []
    most = max(named, key=lambda peer: len(named[peer]))
    if len(named[most]) > 1 and all(most in pair for pair in _pairs(reporters)):
        blamed = [(most, "named_by_many" if most not in reporters else "named_by_many_and_reports")]
    elif len(reporters) == 1 and len(named) > 1:
        blamed = [(next(iter(reporters)), "reports_many_peers")]
    elif len(named) == 1 and len(reporters) == 1:
        signal = "one_pair_fails" if sum(one[0].count for one in errors) > 1 else "one_pair_fails_once"
        blamed = [(next(iter(reporters)), signal), (most, signal)]
    elif len(_pairs(reporters)) == 1:
        blamed = [(node, "one_pair_fails") for node in sorted(_pairs(reporters).pop())]
    elif len(named[most]) > 1 and all(2 * len(by) <= len(named[most]) for peer, by in named.items() if peer != most):
        blamed = [(most, "named_by_most")]
    elif (rail := _one_rail(evidence, errors)) and len(reporters) > 2:
        yield _of_rail(evidence, rail, errors)
    for node, signal in blamed:
        yield _of_node(evidence, node, signal, errors, reporters, named)


def _one_rail(evidence: Evidence, errors: list[Said]) -> str:
    """The adapter that all errors are of, where nodes use several: adapters of one number share a switch."""
    hcas = {one[0].where.partition(":")[0] for one in errors}
    used = {str(one[0].more.get("devices", "")) for one in evidence.job.said("nccl_net") if one[0].name == "NET/IB"}
    several = any("[1]" in devices for devices in used)
    return hcas.pop() if len(hcas) == 1 and several else ""


def _of_rail(evidence: Evidence, hca: str, errors: list[Said]) -> Hypothesis:
    nodes = {node_of(evidence, one) for one in errors}
    return Hypothesis(
        SWITCH,
        {},
        f"All errors of {len(nodes)} nodes are on {hca}: what these adapters share is at fault, a switch of their rail",
        tuple(quoted(*one) for one in errors[:4]),
        ("one_rail_fails",),
        would_change=("errors on another adapter of these nodes", "ports of that switch that work"),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


def _pairs(reporters: dict[str, set[str]]) -> set[frozenset[str]]:
    return {frozenset((node, peer)) for node, peers in reporters.items() for peer in peers}


def _of_node(
    evidence: Evidence, node: str, signal: str, errors: list[Said], reporters: dict[str, set[str]],
    named: dict[str, set[str]],
) -> Hypothesis:  # fmt: skip
    about = [
        one for one in errors if node in (node_of(evidence, one), node_at(evidence, one[0].peer), address(one[0].peer))
    ]
    by = named.get(node, set())
    own = {one[0].where for one in errors if node_of(evidence, one) == node and one[0].where}
    says = f"no answer from {node} to {listed(by)}" if by else f"no answer to {node} from {listed(reporters[node])}"
    known = node in reporters or node in evidence.nodes or node in evidence.places.interfaces
    subject: dict[str, str | int] = {"node": node} if known else {}
    signals = [signal if known else "named_by_address"]
    against = [Reason("no port event tells it; a node that is gone looks the same from its peers", about[0][2].ref)]
    if up := _all_up(evidence, node):
        signals.append("ports_up_now")
        against.append(Reason(f"all InfiniBand ports of {node} are ACTIVE now", up))
    if len(own) == 1 and not by:
        subject["hca"] = next(iter(own)).partition(":")[0]
    return Hypothesis(
        DOWN,
        subject,
        f"The fabric link of {node} fails: {says} (InfiniBand status 12, retries exhausted)",
        tuple(quoted(*one) for one in about[:4]),
        tuple(signals),
        against=tuple(against),
        would_change=(
            "port state, link_downed and the kernel log of this node",
            "an exit or crash of one of its ranks before these errors",
        ),
        ranks=everyone(evidence),
        nodes=frozenset({node}),
    )


def _all_up(evidence: Evidence, node: str) -> str:
    """The reading in which every port of a node is up; "" where none is."""
    for seen in evidence.of("ib.ports"):
        if seen.node == node and seen.facts.ports and all(port.state == "ACTIVE" for port in seen.facts.ports):
            return seen.ref
    return ""


RULE = Rule((DOWN, SWITCH), judge)
