"""The name of the node where all are to meet leads elsewhere on one of them, or nowhere.

torch asks for the address of MASTER_ADDR or of the rendezvous endpoint on each node by itself, so one stale line in one
/etc/hosts sends that node alone to another machine, or to itself. Source: TCPStore, torch/distributed/rendezvous.py
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.log_evidence import everyone, listed, node_at, odd_ones, whom

CAUSE = "fw.rendezvous_failed"
FAILS = ("rendezvous", "store_timeout", "bootstrap", "setup_missed")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    meeting = _meeting_places(evidence)
    told: dict[str, dict[str, tuple[set[str], str]]] = {}
    for seen in evidence.of("host.settings"):
        for name, address in seen.facts.names:
            short = name.partition(".")[0].lower()
            if short in meeting:
                node = node_at(evidence, seen.node) or seen.node
                addresses, _ = told.setdefault(short, {}).setdefault(node, (set(), seen.ref))
                if ":" not in address:  # of both families a node may use either
                    addresses |= {address} - {""}
    failed = any(True for _ in evidence.job.said(*FAILS))
    for name, by_node in told.items():
        yield from _judged(evidence, name, by_node, failed)


def _judged(
    evidence: Evidence, name: str, by_node: dict[str, tuple[set[str], str]], failed: bool
) -> Iterator[Hypothesis]:
    # On the node itself a name may lead to its own loopback, as Debian writes it.
    others = {node: said for node, said in by_node.items() if node.partition(".")[0].lower() != name}
    lost = {node for node, (found, _) in others.items() if not found}
    looped = {node for node, (found, _) in others.items() if node and found and all(map(_is_loopback, found))}
    values: dict[str, object] = {node: tuple(sorted(found)) for node, (found, _) in others.items() if found}
    apart = len(values) > 1 and not set.intersection(*(set(found) for found, _ in others.values() if found))
    bad = lost or looped or (set(odd_ones(values)) if apart else set())
    if not (lost or looped or apart):
        return
    signal = "name_has_no_address" if lost else "name_leads_elsewhere"
    because = [
        Reason(f"{name} is {', '.join(sorted(found)) or 'not known'} on {node or 'a node'}", ref)
        for node, (found, ref) in by_node.items()
    ]
    how = "has no address" if lost else "leads elsewhere"
    yield Hypothesis(
        CAUSE, whom(bad - {""}), f"The name {name}, where the ranks are to meet, {how} on {listed(bad or set(values))}",
        tuple(because[:6]), (signal, *(("meeting_failed",) if failed else ())),
        would_change=(f"`getent hosts {name}` the same on every node",), ranks=everyone(evidence),
        nodes=frozenset(bad - {""}),
    )  # fmt: skip


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _meeting_places(evidence: Evidence) -> set[str]:
    """Short names of the nodes at which the job's ranks are told to meet."""
    found = {
        job_rank.master or "" for seen in evidence.of("rank.env") for job in seen.facts.jobs for job_rank in job.ranks
    }
    for seen in evidence.of("host.settings"):
        found.add(seen.facts.env.get("MASTER_ADDR", ""))
        found |= {env.get("MASTER_ADDR", "") for env in seen.facts.envs.values()}
        for one in seen.facts.launches:
            options = dict(one.options)
            found |= {options.get("master_addr", ""), options.get("rdzv_endpoint", "")}
    for event, _, _ in evidence.job.said("rendezvous", "launch"):
        found.add(str(event.more.get("value", "")) if event.name == "rdzv_endpoint" else "")
        found.add(event.peer.strip("()[]").partition(",")[0])
    hosts = {one.rpartition(":")[0] or one for one in found if one}
    return {host.partition(".")[0].lower() for host in hosts if host[:1].isalpha()}


RULE = Rule((CAUSE,), judge)
