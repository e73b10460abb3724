"""What rules need of the logs: on which node a line was written, whom it names, and what came first.

Peers in NCCL's lines are addresses of its bootstrap network, not of the fabric: they are translated by the lines in
which every node names its own.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from probes.catalog.logs.events import LogEvent, RankLog
from probes.diagnosis.core import Evidence, Seen, Subject

Said = tuple[LogEvent, RankLog, Seen]
_NAMED = re.compile(  # bond0:10.2.0.1<0>; retyped: bond0 10.2.0.1
    r"([A-Za-z][\w.-]{0,40})(?::([0-9a-fA-F:.]{2,45})<\d{1,5}>|[ :(]{1,2}(\d{1,3}(?:\.\d{1,3}){3})(?![\d.<]))"
)
_PEER = re.compile(r"[(\[]?([A-Za-z0-9][\w.:-]{0,120}?)(?:[\])]|<\d{1,5}>|,|$)")
# What fails by itself, whatever other ranks do. Waiting, lost connections and errors of the network are not among them.
OWN_FAULTS = ("cuda_error", "loader_killed", "shm_full", "disk_full", "hook_order", "ddp_unused", "collective_mismatch")


_COUNTED = re.compile(r"node[-_]?[01]")


def node_of(evidence: Evidence, one: Said) -> str:
    """The node on which a line was written: by the name in front of it, by its rank, or by its file, or as that of all
    ranks. In a container the name in front may be one that only the container knows."""
    event, _, seen = one
    host = str(event.more.get("host", ""))
    if host and (node := node_called(evidence, host)):
        return node
    if event.rank is not None and (node := evidence.job.view(event.rank).node):
        # A node that such names told is no other name of one that wrote beside it.
        return host if host and node in evidence.places.writers else str(node)
    return host or str(evidence.places.counted.get(seen.node, seen.node)) or str(evidence.places.lone)


def node_called(evidence: Evidence, host: str) -> str:
    """The node that we call so; "" where none is."""
    return str(evidence.places.called.get(_short(host), ""))


def _short(host: str) -> str:
    """A name without its domain; an address as it is."""
    return host if host.replace(".", "").isdecimal() else host.partition(".")[0]


def address(peer: str) -> str:
    """`10.0.0.4` of `10.0.0.4<41453>`, `[10.0.0.4]:41453` and `(10.0.0.4, 29500)`; a name where it is one."""
    found = _PEER.match(peer.strip())
    return found[1] if found else ""


def interfaces(evidence: Evidence) -> dict[str, dict[str, str]]:
    """{node: {address: interface}} that NCCL took for its bootstrap and sockets."""
    found: dict[str, dict[str, str]] = evidence.places.interfaces
    return found


def node_at(evidence: Evidence, peer: str, beside: Iterable[str] = ()) -> str:
    """The node of a peer; "" where nothing tells it. A name like those `beside` it, but for its number, is a node too,
    of which nothing else was brought."""
    where = address(peer)
    known = str(evidence.places.addresses.get(where) or node_called(evidence, where)) if where else ""
    return known or (where if (shape := _shape(where)) and shape in map(_shape, beside) else "")


def _shape(name: str) -> str:
    """`gpu-#` of gpu-12.example.org; "" of an address and of what has no number."""
    shape = re.sub(r"\d{1,12}", "#", _short(name))
    return shape if "#" in shape and re.search("[A-Za-z]", shape) else ""


class Places:
    """Built once per evidence: names, addresses and clocks of nodes as logs and nodes tell them."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.called: dict[str, str] = {}
        for node in evidence.nodes:
            self.called.setdefault(_short(node), node)
        for log in evidence.of("rank.log"):
            if log.node and log.facts.host:  # how the node calls itself, where that is another name
                self.called.setdefault(_short(log.facts.host), log.node)
        self.ahead: dict[str, float] = {}
        for clock in evidence.of("host.clock"):
            if clock.node:
                self.ahead.setdefault(clock.node, _ahead(clock.facts))

    @functools.cached_property
    def writers(self) -> frozenset[str]:
        """The names in front of lines."""
        return frozenset(str(event.more["host"]) for event, _, _ in self._evidence.job.events if "host" in event.more)

    @functools.cached_property
    def lone(self) -> str:
        """The node of the whole job, where every one of its ranks is known to be there."""
        job = self._evidence.job
        nodes = {view.node for view in job.ranks.values()}
        whole = job.world_size is not None and job.ranks.keys() >= set(range(job.world_size))
        return str(nodes.pop()) if whole and len(nodes) == 1 else ""

    @functools.cached_property
    def counted(self) -> dict[str, str]:
        """node0, node1 as who saved logs numbers them -> the node: the first of a job runs where the ranks are told to
        meet (MASTER_ADDR), and of two nodes the second is the other."""
        logs = {log.node for log in self._evidence.of("rank.log") if _COUNTED.fullmatch(log.node)}
        homes = {
            at: seen.node
            for seen in self._evidence.of("net.links")
            for link in seen.facts.links
            for at in link.addresses
        }
        told = {seen.facts.env.get("MASTER_ADDR", "") for seen in self._evidence.of("host.settings")}
        first = {homes[at] for at in told if at in homes} - {""}
        others = set(homes.values()) - first - {""}
        if len(first) != 1 or _COUNTED.fullmatch(min(first)) or logs & others:
            return {}
        second = min(others) if len(others) == 1 else ""
        return {name: node for name in logs if (node := {"0": min(first), "1": second}.get(name[-1]))}

    @functools.cached_property
    def timed(self) -> bool:
        """Whether any line has a time that is certain."""
        return any(event.at is not None for event, _, _ in self._evidence.job.events)

    @functools.cached_property
    def pids(self) -> dict[tuple[str, int], int]:
        """Node and pid -> rank, by their processes and by the lines of NCCL, which begin with both."""
        found = {(view.node, view.pid): rank for rank, view in self._evidence.job.ranks.items() if view.pid is not None}
        for one in self._evidence.job.said("nccl_init_done", "nccl_init_start"):
            pid, rank = one[0].more.get("of_pid"), one[0].rank
            if isinstance(pid, int) and rank is not None:
                found.setdefault((node_of(self._evidence, one), pid), rank)
        for event, _, _ in self._evidence.job.said("torchrun_failure"):
            pid, rank = event.more.get("pid"), next(iter(event.about), None)
            if isinstance(pid, int) and rank is not None and event.peer:
                found.setdefault((node_called(self._evidence, event.peer) or event.peer, pid), rank)
        return found

    @functools.cached_property
    def interfaces(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for one in self._evidence.job.said("nccl_net"):
            event = one[0]
            listed = str(event.more.get("devices", ""))
            if event.name == "NET/IB":
                listed = listed.partition("OOB ")[2]
            for name, at, bare in _NAMED.findall(listed):
                found.setdefault(node_of(self._evidence, one), {})[at or bare] = name
        return found

    @functools.cached_property
    def addresses(self) -> dict[str, str]:
        """Address -> node. One that several nodes have is nobody's."""
        owners: dict[str, set[str]] = {}
        for node, mine in self.interfaces.items():
            for at in mine:
                owners.setdefault(at, set()).add(node)
        return {at: min(nodes) for at, nodes in owners.items() if len(nodes) == 1}


def address_kind(where: str) -> str:
    """Why no other node can reach this address: "loopback" or "link-local"; "" where one may."""
    try:
        at = ipaddress.ip_address(where.partition("%")[0])
    except ValueError:
        return "loopback" if where == "localhost" else ""
    return "loopback" if at.is_loopback else "link-local" if at.is_link_local else ""


def when(evidence: Evidence, one: Said) -> float | None:
    """When it was written, as far as the node's clock is known to be off, put right.

    Where no line of the job has a time that is certain, the local times as printed give the order.
    """
    event, _, seen = one
    at = event.at if event.at is not None else event.after
    if at is None and not evidence.places.timed:
        at = _as_printed(event.stamp or str(event.more.get("after_stamp", "")))
    if at is None:
        return None
    return at - float(evidence.places.ahead.get(seen.node, 0.0))


def _as_printed(stamp: str) -> float | None:
    """`11-29 14:13:49` and `2026-11-29 14:13:49` as seconds, of no zone."""
    try:
        moment = datetime.fromisoformat(stamp if len(stamp) > 15 else f"2000-{stamp}")
        return moment.replace(year=2000, tzinfo=UTC).timestamp()  # glog prints no year
    except ValueError:
        return None


def _ahead(clock: Any) -> float:
    """How many seconds a node's clock is ahead: as measured, beyond what the measure may err; else as its service says,
    where that is more than a second."""
    if clock.offset_s is not None and clock.bound_s is not None:
        return float(clock.offset_s) if abs(clock.offset_s) > clock.bound_s else 0.0
    believed = clock.service_offset_s
    return float(believed) if believed is not None and abs(believed) > 1.0 else 0.0


def before(evidence: Evidence, one: Said, other: Said) -> bool | None:
    """Whether one was written before the other: by time, else by their place in one file; None where nothing tells."""
    if one[1] is other[1] and not (_own_time(one[0]) and _own_time(other[0])):
        return _place(one[0]) < _place(other[0])  # the time of an earlier line says less than the place
    times = when(evidence, one), when(evidence, other)
    if times[0] is not None and times[1] is not None and times[0] != times[1]:
        return times[0] < times[1]
    if one[1] is other[1]:
        return _place(one[0]) < _place(other[0])
    return None


def _own_time(event: LogEvent) -> bool:
    return event.at is not None or bool(event.stamp)


def _place(event: LogEvent) -> tuple[int, int]:
    return event.line or 0, event.offset or 0


def own_faults(evidence: Evidence) -> list[Said]:
    """Failures that no other rank's end explains, in any order."""
    from probes.diagnosis.rules.rank_exited import own_ends, own_exceptions

    found = list(own_exceptions(evidence))
    found += [one for one in evidence.job.said(*OWN_FAULTS) if not one[0].secondary]
    return found + [one for _, one in own_ends(evidence)]


def rank_of(evidence: Evidence, one: Said) -> int | None:
    """The rank of a process that a launcher names by its pid, or by its place on the node."""
    more, node = one[0].more, node_of(evidence, one)
    views = [view for view in evidence.job.ranks.values() if not node or view.node in (node, "")]
    found = {view.rank for view in views if view.pid is not None and view.pid == more.get("pid")}
    if not found and node and isinstance(local := more.get("local_rank"), int):
        found = placed(evidence, node, local)
    return found.pop() if len(found) == 1 else None


def placed(evidence: Evidence, node: str, local_rank: int) -> set[int]:
    """Ranks that have this place on a node, as their processes or NCCL's lines tell it."""
    found = {
        view.rank
        for view in evidence.job.ranks.values()
        if view.node == node and view.place is not None and view.place.local_rank == local_rank
    }
    for one in evidence.job.said("nccl_topology"):
        if one[0].more.get("local_rank") == local_rank and one[0].rank is not None and node_of(evidence, one) == node:
            found.add(one[0].rank)
    return found


def tasks_are_launchers(evidence: Evidence) -> bool:
    """Whether a launcher tells of its own processes: then tasks of srun are launchers, and their numbers no ranks."""
    return any("local_rank" in one[0].more for one in evidence.job.said("torchrun_failure"))


def several_nodes(evidence: Evidence) -> bool:
    """Whether the job spans nodes: by where it was read, or as NCCL counts them."""
    hosts = {str(event.more["host"]) for event, _, _ in evidence.job.events if "host" in event.more}
    counted = (event.more.get("nodes") for event, _, _ in evidence.job.said("nccl_topology"))
    return len(hosts) > 1 or len(evidence.nodes) > 1 or any(isinstance(n, int) and n > 1 for n in counted)


def everyone(evidence: Evidence) -> frozenset[int]:
    """Every rank that was seen: what breaks a communicator stops all of them."""
    return frozenset(evidence.job.ranks)


def whom(nodes: Iterable[str]) -> Subject:
    """One node as a subject. Several alike are no one's fault alone: then none is named."""
    named = {node for node in nodes if node}
    return {"node": named.pop()} if len(named) == 1 else {}


def listed(nodes: Iterable[str]) -> str:
    """`gpu-a`, `gpu-a and gpu-b`, `5 nodes`, `a node`"""
    named = sorted({node for node in nodes if node})
    if not named:
        return "a node"
    if len(named) > 3:
        return f"{len(named)} nodes"
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def odd_ones(values: dict[str, object]) -> Sequence[str]:
    """Names whose value differs from that of most; none where there is no majority."""
    counts: dict[object, int] = {}
    for value in values.values():
        counts[value] = counts.get(value, 0) + 1
    most = max(counts.items(), key=lambda item: item[1], default=(None, 0))
    if len(counts) < 2 or most[1] * 2 <= len(values):
        return ()
    return tuple(name for name, value in values.items() if value != most[0])


def number(told: object) -> float:
    """What an event's `more` tells as a figure; 0 where it tells none."""
    try:
        return float(str(told))
    except ValueError:
        return 0.0
