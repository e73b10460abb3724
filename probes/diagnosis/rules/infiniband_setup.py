"""An InfiniBand or RoCE adapter refuses what NCCL asks for while it connects: a route, locked memory, queue pairs.

ibv_modify_qp to the state RTR resolves the other end's address, so its error is of GIDs, routes or the other end.
ibv_reg_mr locks pages: ENOMEM there is the limit of locked memory. Source: NCCL's manual, chapter Troubleshooting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, whom

ROUTE, MEMORY, PAIRS = "ib.gid_or_route", "ib.memlock_limit", "ib.qp_exhausted"
NO_MEMORY, NO_SPACE = 12, 28  # ENOMEM, ENOSPC of errno(3)
NO_ADDRESS = ("::", "0:0:0:0:0:0:0:0")
MUCH_BYTES = 2**30  # judgement: NCCL locks hundreds of MiB per rank; below this a limit is too small


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    routes = [one for one in evidence.job.said("ib_route") if not one[0].secondary]
    if routes:
        yield _route(evidence, routes)
    refused = list(evidence.job.said("ib_resource"))
    if refused:
        yield from _resources(evidence, refused)


def _route(evidence: Evidence, said: list[Said]) -> Hypothesis:
    nodes = {node_of(evidence, one) for one in said}
    own = {node_of(evidence, one) for one in said if _bad_gid(one)}
    remotes = Counter(str(one[0].more["remote_gid"]) for one in said if "remote_gid" in one[0].more)
    owners = {str(one[0].more["local_gid"]): node_of(evidence, one) for one in said if "local_gid" in one[0].more}
    blamed, signals = nodes, ["queue_pair_not_connected"]
    if own:
        blamed = own
        signals.append("gid_unusable")
    elif len(nodes) > 1 and len(remotes) == 1:  # all of them reach for one end
        blamed = {owners.get(next(iter(remotes)), "")}
    event = said[0][0]
    where = f" of {event.where}" if event.where else ""
    why = f": {event.name}" if event.name else ""
    gids = {str(one[0].more.get("local_gid", "")) for one in said if _bad_gid(one)}
    gid = f"; local GID {', '.join(sorted(gids))} cannot be reached from other nodes" if gids else ""
    return Hypothesis(
        ROUTE,
        whom(blamed),
        f"On {listed(blamed or nodes)} queue pairs{where} could not be connected{why}{gid}",
        tuple(quoted(*one) for one in said[:4]),
        tuple(signals),
        against=_other_end_down(evidence),
        would_change=(
            "show_gids on both nodes: a RoCE v2 row with a routable address at the index that NCCL takes",
            "ping between the two adapters' addresses that succeeds",
        ),
        ranks=everyone(evidence),
        nodes=frozenset(blamed | nodes),
    )


def _bad_gid(one: Said) -> bool:
    """No address at all, or a link-local one that speaks to an end which has a routable one."""
    local, remote = (str(one[0].more.get(key, "")) for key in ("local_gid", "remote_gid"))
    return local in NO_ADDRESS or (local.startswith("fe80") and bool(remote) and not remote.startswith("fe80"))


def _other_end_down(evidence: Evidence) -> tuple[Reason, ...]:
    found = ((seen, finding) for seen, finding in evidence.findings("ib.port_down", "ib.port_not_active"))
    return tuple(Reason(f"a port is down: {finding.says}", seen.ref) for seen, finding in found)[:2]


def _resources(evidence: Evidence, said: list[Said]) -> Iterator[Hypothesis]:
    space = [one for one in said if one[0].code == NO_SPACE]
    memory = [one for one in said if one[0].code in (NO_MEMORY, None)]
    limits: list[Said] = list(evidence.job.said("memlock"))
    unlimited = bool(limits) and all(one[0].name == "unlimited" for one in limits)
    low = [one for one in limits if _too_low(one)]
    if space:
        yield _pairs(evidence, space, ("resources_used_up",))
    if not memory:
        return
    by_memory = any(one[0].op.startswith(("ibv_reg", "register")) for one in memory)
    signals = ["registration_refused" if by_memory else "queue_pair_refused"]
    signals += ["memlock_unlimited"] if unlimited else ["memlock_low"] if low else []
    nodes = {node_of(evidence, one) for one in memory}
    op = memory[0][0].op
    yield Hypothesis(
        MEMORY,
        whom(nodes),
        f"On {listed(nodes)} the adapter may not lock more memory: {op} was refused",
        tuple(quoted(*one) for one in (*memory[:3], *low[:1])),
        tuple(signals),
        against=tuple(quoted(*limits[0], "locked memory is not limited") for _ in range(unlimited)),
        would_change=("Max locked memory of the rank's own process (/proc/PID/limits): unlimited",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )
    if not by_memory:
        yield _pairs(evidence, memory, ("queue_pair_refused_unlimited" if unlimited else "queue_pair_refused_unknown",))


def _pairs(evidence: Evidence, said: list[Said], signals: tuple[str, ...]) -> Hypothesis:
    nodes = {node_of(evidence, one) for one in said}
    return Hypothesis(
        PAIRS,
        whom(nodes),
        f"On {listed(nodes)} the adapter has no queue pairs or other resources left: {said[0][0].op} was refused",
        tuple(quoted(*one) for one in said[:3]),
        signals,
        would_change=("rdma resource show: far fewer queue pairs than the adapter's limit",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


def _too_low(one: Said) -> bool:
    value = one[0].more.get("bytes")
    return isinstance(value, int) and value < MUCH_BYTES


RULE = Rule((ROUTE, MEMORY, PAIRS), judge)
