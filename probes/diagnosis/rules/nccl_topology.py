"""NCCL built other rings, channels or transports than the hardware allows, or not the same on every node.

All ranks of a communicator agree on channels and on the network before they connect, so a difference is never right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, odd_ones, whom

CAUSE = "nccl.topology_degraded"
FAST = 100.0  # Gb/s: a port of that rate is there for the job; judgement
WITHIN = ("P2P", "SHM")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _network(evidence)
    yield from _within(evidence)
    yield from _channels(evidence)
    yield from _rings(evidence)
    yield from _crossing(evidence)
    yield from _unfinished(evidence)


def _network(evidence: Evidence) -> Iterator[Hypothesis]:
    """The network of each node: of the line that says so, else of its links."""
    found: dict[str, str] = {}
    lines: dict[str, Said] = {}
    for one in evidence.job.said("nccl_net"):
        if "Using network" in one[0].text:
            found[node_of(evidence, one)] = one[0].name
            lines[node_of(evidence, one)] = one
    links: dict[str, Counter[str]] = {}
    for one in evidence.job.said("nccl_link"):
        kind = "/".join(one[0].name.split("/")[:2])
        if kind.startswith("NET/"):
            links.setdefault(node_of(evidence, one), Counter())[kind.removeprefix("NET/")] += one[0].count
            lines.setdefault(node_of(evidence, one), one)
    for node, counts in links.items():
        found.setdefault(node, counts.most_common(1)[0][0])
    slow = {node for node, name in found.items() if name == "Socket"}
    if slow and len(slow) == len(found):
        yield from _sockets_everywhere(evidence, slow, lines)
    if not slow or len(slow) == len(found):
        return
    fast = sorted(set(found) - slow)
    shown = [lines[node] for node in (*sorted(slow)[:2], *fast[:1])]
    # NCCL brings InfiniBand itself; a plug-in must be found by each rank, and a setting that is missing hides it.
    own = all(found[node].startswith(("IB", "RoCE")) for node in fast)
    yield _hypothesis(
        evidence, slow, f"NCCL on {listed(slow)} talks over sockets, on {listed(fast)} over {found[fast[0]]}", shown,
        "network_differs" if own else "plugin_not_taken",
    )  # fmt: skip


def _sockets_everywhere(evidence: Evidence, nodes: set[str], lines: dict[str, Said]) -> Iterator[Hypothesis]:
    """No node uses its fabric, though its ports are up: in a container without /dev/infiniband, or by a setting."""
    several = len(nodes) > 1 or any(int(one[0].more.get("nodes", 1)) > 1 for one in evidence.job.said("nccl_topology"))
    up = [view for view in evidence.ports.of_nodes if view.facts is not None and view.facts.state == "ACTIVE"]
    up = [view for view in up if view.node in nodes or not view.node]
    fabric = [view for view in up if (view.facts.link_layer or "") in ("InfiniBand", "IB")]
    fast = [view for view in up if (view.rate_gbps or 0) >= FAST]
    if not several or not up:
        return
    signal = "sockets_beside_fabric" if fabric else "sockets_beside_fast_ports" if fast else ""
    if not signal:
        return
    shown = [lines[node] for node in sorted(nodes)[:2]]
    shown += [one for one in evidence.job.said("nccl_net") if "No device found" in str(one[0].more.get("devices"))][:1]
    shown += [one for one in evidence.job.said("nccl_setting") if one[0].name == "NCCL_IB_DISABLE"][:1]
    best = (fabric or fast)[0]
    says = (
        f"NCCL on {listed(nodes)} talks over sockets though {len(fabric or fast)} ports of the fabric are ACTIVE there"
    )
    yield Hypothesis(
        CAUSE, whom(nodes), says,
        (*(quoted(*one) for one in shown), Reason(f"{best.called} is ACTIVE", best.ref)), (signal,),
        would_change=("`NET/IB : Using [0]mlx5_0:1/IB` in NCCL's log", "/dev/infiniband in the ranks' container"),
        ranks=everyone(evidence), nodes=frozenset(nodes),
    )  # fmt: skip


def _within(evidence: Evidence) -> Iterator[Hypothesis]:
    """Links within a node: one that copies through shared memory only, where others go from GPU to GPU."""
    kinds: dict[str, set[str]] = {}
    lines: dict[tuple[str, str], Said] = {}
    for one in evidence.job.said("nccl_link"):
        kind = one[0].name.partition("/")[0]
        if kind in WITHIN:
            kinds.setdefault(node_of(evidence, one), set()).add(kind)
            lines.setdefault((node_of(evidence, one), kind), one)
    without = {node for node, seen in kinds.items() if seen == {"SHM"}}
    direct = sorted(node for node, seen in kinds.items() if "P2P" in seen)
    if not without or not direct:
        return
    shown = [*(lines[node, "SHM"] for node in sorted(without)[:2]), lines[direct[0], "P2P"]]
    says = f"GPUs of {listed(without)} talk through shared memory, those of {listed(direct)} directly"
    yield _hypothesis(evidence, without, says, shown, "peer_access_differs")


def _channels(evidence: Evidence) -> Iterator[Hypothesis]:
    told: dict[str, set[int]] = {}
    lines: dict[str, Said] = {}
    for one in evidence.job.said("nccl_channels"):
        if isinstance(one[0].more.get("coll"), int):
            told.setdefault(node_of(evidence, one), set()).add(int(one[0].more["coll"]))
            lines.setdefault(node_of(evidence, one), one)
    # Of several communicators each has its own number: only where every node tells one, they are of the same.
    values: dict[str, object] = {node: max(counts) for node, counts in told.items() if len(counts) == 1}
    if len(values) == len(told) and (odd := odd_ones(values)):
        others = next(value for node, value in values.items() if node not in odd)
        says = f"NCCL on {listed(odd)} has {values[odd[0]]} channels, on the other nodes {others}"
        shown = [lines[node] for node in (*odd, *(node for node in values if node not in odd))][:3]
        yield _hypothesis(evidence, set(odd), says, shown, "channels_differ")


def _rings(evidence: Evidence) -> Iterator[Hypothesis]:
    """Who follows whom, as each rank says it: in one ring everybody has one before and one after, and they agree."""
    rings: dict[int, dict[int, tuple[int, int, Said]]] = {}
    for one in evidence.job.said("nccl_ring"):
        place = [one[0].more.get(key) for key in ("channel", "me", "prev", "next")]
        channel, me, prev, following = (value if isinstance(value, int) else -1 for value in place)
        if min(channel, me, prev, following) < 0:
            continue
        if me in rings.setdefault(channel, {}) and rings[channel][me][:2] != (prev, following):
            return  # lines of several communicators: nothing tells them apart
        rings[channel][me] = (prev, following, one)
    for channel, ring in rings.items():
        for me, (_, following, one) in ring.items():
            other = ring.get(following)
            if other is not None and other[0] != me:
                says = f"Ring {channel} is broken: rank {me} sends to rank {following}, which expects rank {other[0]}"
                nodes = {node_of(evidence, one), node_of(evidence, other[2])}
                yield _hypothesis(evidence, nodes, says, [one, other[2]], "rings_disagree")
                return


def _crossing(evidence: Evidence) -> Iterator[Hypothesis]:
    """A ring that goes from node to node for each GPU: of n nodes it needs to leave each but once."""
    homes: dict[int, str] = {}
    for one in evidence.job.said("nccl_topology"):
        rank, node = one[0].more.get("comm_rank"), node_of(evidence, one)
        if isinstance(rank, int) and node and homes.setdefault(rank, node) != node:
            return  # several communicators
    for one in evidence.job.said("nccl_ring"):
        order = [int(rank) for rank in str(one[0].more.get("order", "")).split()]
        nodes = [homes.get(rank, "") for rank in order]
        counts = Counter(nodes)
        if len(counts) < 2 or "" in counts or min(counts.values()) < 2:
            continue
        crossings = sum(a != b for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True))
        if crossings >= 2 * len(counts):
            says = f"A ring goes {crossings} times from one node to another, {len(counts)} times would do"
            yield _hypothesis(evidence, set(), says, [one], "ring_crosses_often")
            return


def _unfinished(evidence: Evidence) -> Iterator[Hypothesis]:
    """Who began to set up a communicator and did not come to its end, although others of it did."""
    begun = {_comm(one): one for one in evidence.job.said("nccl_init_start")}
    done = {_comm(one) for one in evidence.job.said("nccl_init_done")}
    groups = {key[0] for key in done if key[0]}
    left = {key: one for key, one in begun.items() if key not in done and key[0] in groups}
    if left:
        nodes = {node_of(evidence, one) for one in left.values()}
        ranks = ", ".join(str(key[1]) for key in sorted(left, key=str)[:6])
        says = f"On {listed(nodes)} the set-up of a communicator did not end (ranks {ranks} of it), for others it did"
        yield _hypothesis(evidence, nodes, says, list(left.values())[:3], "set_up_unfinished")


def _comm(one: Said) -> tuple[str, object]:
    return one[0].group, one[0].more.get("comm_rank")


def _hypothesis(evidence: Evidence, nodes: set[str], says: str, said: list[Said], signal: str) -> Hypothesis:
    return Hypothesis(
        CAUSE,
        whom(nodes),
        says,
        tuple(quoted(*one) for one in said),
        (signal,),
        would_change=("a port, an adapter or a GPU of that node which is missing or down: then that is the cause",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


RULE = Rule((CAUSE,), judge)
