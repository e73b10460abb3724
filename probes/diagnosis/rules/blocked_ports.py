"""A packet filter drops what ranks send each other: a rule with packets counted, beside ranks that cannot connect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from probes.catalog.network.net_facts import FilterRule, Socket
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import node_at
from probes.diagnosis.sockets import sockets_of

CAUSE = "net.bootstrap_blocked"
SAID = ("bootstrap", "store_timeout", "rendezvous", "setup_missed")
CHAINS = ("input", "forward", "output")
_NO_WAY = re.compile(r"timed out|timeout|No route to host|refused|unreachable|Connection reset|retr(?:y|ies)", re.I)
_LOGGED = re.compile(r" to (\d{1,3}(?:\.\d{1,3}){3}) port \d")
_PORT = re.compile(r"(?:[:<]|port[ =]{1,2})(\d{4,5})\b>?")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    failed = [(event, log, seen) for event, log, seen in evidence.job.said(*SAID) if _NO_WAY.search(event.text)]
    ports = {int(one) for event, _, _ in failed for one in _PORT.findall(f"{event.peer} {event.text}")}
    yield from _by_hand(evidence, failed, ports)
    for seen in evidence.of("host.settings"):
        dropping = [rule for rule in seen.facts.filters if _matters(rule, ports)]
        if dropping and (failed or any(rule.packets for rule in dropping if not rule.policy)):
            yield _dropped(seen.node or _to(evidence, dropping), seen.ref, dropping, failed, ports)
    for seen, sockets in sockets_of(evidence):
        sending = [one for one in sockets if one.state == "SYN-SENT"]
        # One that waits may be caught in its first moment, but not where ranks gave up for want of an answer.
        mine = bool(sending) and _listened_to(evidence, seen.node, sending, 1 if failed else 2)
        if sending and (failed or mine):
            peers = ", ".join(sorted({one.peer for one in sending})[:4])
            where = frozenset({seen.node} if seen.node else ())
            told = (Reason(f"{len(sending)} sockets in SYN-SENT, to {peers}", seen.ref), *_lines(failed))
            yield Hypothesis(
                CAUSE, {"node": seen.node} if seen.node else {},
                f"Connections from {seen.node or 'a node'} get no answer: {peers}",
                told, ("syn_unanswered_listening" if mine else "syn_unanswered",),
                would_change=("`nc -z` from that node to that port",), nodes=where,
            )  # fmt: skip


def _listened_to(evidence: Evidence, node: str, sending: list[Socket], least: int) -> bool:
    """Whether so many connections wait for one port at which another node listens."""
    ports = Counter(one.peer.rpartition(":")[2] for one in sending)
    listens = {
        one.local.rpartition(":")[2] for seen, sockets in sockets_of(evidence) if seen.node != node
        for one in sockets if one.state == "LISTEN"
    }  # fmt: skip
    return any(count >= least and port in listens for port, count in ports.items())


def _to(evidence: Evidence, rules: list[FilterRule]) -> str:
    """The node, or its address, to which all packets went that a filter logged."""
    to = {found[1] for rule in rules if (found := _LOGGED.search(rule.text))}
    return node_at(evidence, one := to.pop()) or one if len(to) == 1 else ""


def _by_hand(evidence: Evidence, failed: list[Any], ports: set[int]) -> Iterator[Hypothesis]:
    """Tries with nc: a port of a node that answers on others. Refused tells least: nobody may listen there any more."""
    if not failed and any(True for _ in evidence.job.said("nccl_init_done", "progress")):
        return  # the job got past it
    tries = [(seen, one) for seen in evidence.of("host.settings") for one in seen.facts.reaches]
    opened = {one.peer for _, one in tries if not one.why}
    opened |= {ping.peer for seen in evidence.of("host.settings") for ping in seen.facts.pings if ping.received}
    for peer in dict.fromkeys(one.peer for _, one in tries if one.why):
        some = [(seen, one) for seen, one in tries if one.peer == peer and one.why]
        hard = [item for item in some if item[1].why != "refused"]
        seen, one = (hard or some)[0]
        alive = peer in opened
        if not hard and not (failed and one.port in ports):
            continue
        signals = ["port_blocked_host_alive" if hard and alive else "port_unreachable" if hard else "port_refused"]
        signals += ["bootstrap_failed"] if failed else []
        node = node_at(evidence, peer) or peer
        says = f"port {one.port} of {node} cannot be reached from {seen.node or 'a node'}: {one.why}"
        but = ", though it answers otherwise" if alive else ""
        yield Hypothesis(
            CAUSE, {"node": node}, f"{says[:1].upper()}{says[1:]}{but}",
            (Reason(says + but, seen.ref), *_lines(failed)), tuple(signals),
            would_change=("a packet filter on neither side", "`nc -z` to that port that succeeds"),
            nodes=frozenset({node, seen.node} - {""}),
        )  # fmt: skip
        return


def _matters(rule: FilterRule, ports: set[int]) -> bool:
    """Of the host's own traffic over TCP; a rule for another port than the job's says nothing."""
    name = rule.chain.lower()
    if not any(part in name for part in CHAINS) and not (rule.packets and rule.ports):
        return False
    if "docker" in name or rule.protocol not in ("", "tcp") or "invalid" in rule.text.lower() or "127.0.0" in rule.text:
        return False
    if rule.ports:
        wide = any(last - first > 1000 or first >= 29400 for first, last in rule.ports)
        return any(first <= port <= last for port in ports for first, last in rule.ports) or (wide and not ports)
    return True


def _lines(failed: list[Any]) -> tuple[Reason, ...]:
    return tuple(quoted(*one) for one in failed[:2])


def _dropped(node: str, ref: str, rules: list[FilterRule], failed: list[Any], ports: set[int]) -> Hypothesis:
    exact = [one for one in rules if any(a <= port <= b for port in ports for a, b in one.ports)]
    first = (exact or sorted(rules, key=lambda one: (one.policy, -(one.packets or 0))))[0]
    counted = f", {first.packets:,} packets met it" if first.packets else ""
    signals = ["filter_drops" if failed and (exact or first.packets) else "filter_may_drop"]
    if failed:
        signals.append("bootstrap_failed")
    return Hypothesis(
        CAUSE, {"node": node} if node else {},
        f"A packet filter on {node or 'a node'} drops what ranks send: {first.text[:120]}",
        (Reason(f"{first.chain}: {first.text[:160]}{counted}", ref), *_lines(failed)), tuple(signals),
        would_change=("the job's ports open between its nodes",), nodes=frozenset({node} if node else ()),
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
