"""A queue pair could not be connected to the other end.

ibv_modify_qp to the state RTR resolves the other end's address, so its error is of GIDs, routes or the other end.
What is refused for want of memory or of resources is told by rdma_resources.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, whom

ROUTE = "ib.gid_or_route"
NO_ADDRESS = ("::", "0:0:0:0:0:0:0:0")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    routes = [one for one in evidence.job.said("ib_route") if not one[0].secondary]
    if routes:
        yield _route(evidence, routes)


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


RULE = Rule((ROUTE,), judge)
