"""An RDMA call was refused for want of something: locked memory that a limit keeps, or resources of the adapter.

ibv_reg_mr(3) locks pages, so ENOMEM there is the limit of locked memory (NCCL's manual, Troubleshooting). ENOMEM of
ibv_create_qp(3) has two causes, the same limit or a full table of the adapter: the limit of the rank, and queue pairs
in use against max_qp, tell which. mlx5 gives EAGAIN where the adapter has no resource left (core/cmd.c of Linux).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from probes.catalog.network.rdma_resources import FULL
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, whom
from probes.diagnosis.times import times_of

MEMLOCK, PAIRS = "ib.memlock_limit", "ib.qp_exhausted"
_CALL = re.compile(
    r"(ibv_(?:reg_(?:dmabuf_)?mr\w{0,12}|create_qp\w{0,6}|create_cq\w{0,6}|alloc_pd|create_srq))[^\n]{0,80}", re.I
)
_NO_MEMORY = re.compile(r"Cannot allocate memory|ENOMEM|errno 12\b|error 12\b", re.I)
_USED_UP = re.compile(
    r"No space left on device|ENOSPC|Too many open|EMFILE|Device or resource busy|Resource temporarily unavailable"
    r"|EAGAIN", re.I,
)  # fmt: skip
USED_UP = (11, 16, 24, 28)  # errno(3): EAGAIN, EBUSY, EMFILE, ENOSPC
ENOUGH = 2**36  # bytes; judgement: a rank that may lock 64 GiB is not held by this limit
MANY = 10_000  # queue pairs; judgement: a training node uses some thousands
_NAMED = re.compile(r"([\w.-]{2,60})(?: on \S{1,80})? has [\d,]{1,12} of [\d,]{1,12} queue pairs")
SAID = ("nccl_warn", "nccl_error", "traceback", "bootstrap")


class Refused(NamedTuple):
    said: Said
    op: str
    registers: bool
    used_up: bool
    node: str


class Limits(NamedTuple):
    """What is known of locked memory where calls were refused."""

    low: list[tuple[Reason, bool]]  # with whether it is of a rank, not of a shell
    free: list[tuple[Reason, bool]]


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    refused = list(_refused(evidence))
    nodes = {one.node for one in refused}
    limits = _limits(evidence, nodes)
    full, many = _tables(evidence, nodes)
    full += [
        Reason(
            f"adapter {notice.device} on {seen.node or 'a node'} refused its driver: a resource of it is used up",
            seen.ref,
        )
        for seen in evidence.of("host.kernel_log")
        for notice in seen.facts.hca_notices
        if notice.what == "used up"
        and (not refused or nodes & {seen.node, ""})
        and not times_of(evidence).over(seen.node, notice.last_at, notice.last)
    ]
    if refused:
        yield from _of_refusals(evidence, refused, limits, full, many)
        return
    yield from _low_alone(evidence)
    if full:
        homes = {seen.ref: seen.node for seen in evidence.of("host.kernel_log", "host.settings", "ib.resources")}
        yield _pairs(evidence, [], {homes.get(one.reading, "") for one in full}, ["pair_table_full_alone"], full)


def _refused(evidence: Evidence) -> Iterator[Refused]:
    for one in evidence.job.said("ib_resource"):
        event = one[0]
        if not event.secondary:
            registers = event.op.startswith(("ibv_reg", "register"))
            used_up = event.code in USED_UP or bool(_USED_UP.search(event.text))
            yield Refused(one, event.op, registers, used_up, node_of(evidence, one))
    for one in evidence.job.said(*SAID):
        call = _CALL.search(one[0].text)
        if call is None or one[0].secondary:
            continue
        used_up = bool(_USED_UP.search(one[0].text))
        if used_up or _NO_MEMORY.search(one[0].text):
            yield Refused(one, call[1], "reg_" in call[1].lower(), used_up, node_of(evidence, one))


def _of_refusals(
    evidence: Evidence, refused: list[Refused], limits: Limits, full: list[Reason], many: list[Reason]
) -> Iterator[Hypothesis]:
    memory = [one for one in refused if one.registers or not one.used_up]
    pairs = [one for one in refused if not one.registers]
    registers = any(one.registers for one in refused)
    low, free = bool(limits.low), any(of_rank for _, of_rank in limits.free)
    if memory:
        signals = ["verbs_registration_refused" if registers else "pair_refused_as_memlock"]
        signals += ["memlock_low" if of_rank else "memlock_low_shell" for _, of_rank in limits.low]
        if not low:
            signals += ["memlock_not_limited" if of_rank else "memlock_free_in_shell" for _, of_rank in limits.free]
        signals += ["pair_table_full_against"] if full else []
        yield _memlock(evidence, memory, limits, signals)
    if pairs:
        used_up = any(one.used_up for one in pairs)
        name = "resources_used_up" if used_up or full else "pair_refused_low_memlock" if low else ""
        name = name or ("pair_refused_unlimited" if free else "pair_refused_as_resources")
        extra = ["pair_table_full"] if full else ["queue_pairs_many"] if many else []
        yield _pairs(evidence, pairs, {one.node for one in pairs}, [name, *extra], full or many)
    elif free and not low:
        yield _pairs(evidence, refused, {one.node for one in refused}, ["registration_refused_unlimited"], [])


def _memlock(evidence: Evidence, refused: list[Refused], limits: Limits, signals: list[str]) -> Hypothesis:
    nodes = {one.node for one in refused}
    lows = tuple(reason for reason, _ in limits.low[:2])
    return Hypothesis(
        MEMLOCK, whom(nodes),
        f"RDMA may not lock enough memory on {listed(nodes)}: {refused[0].op} was refused",
        (*(quoted(*one.said) for one in refused[:3]), *lows),
        tuple(dict.fromkeys(signals)),
        against=() if lows else tuple(reason for reason, _ in limits.free[:1]),
        would_change=("`Max locked memory` of the rank's own process in /proc/PID/limits: unlimited",),
        ranks=everyone(evidence), nodes=frozenset(nodes),
    )  # fmt: skip


def _pairs(
    evidence: Evidence, refused: list[Refused], nodes: set[str], signals: list[str], tables: list[Reason]
) -> Hypothesis:
    what = f": {refused[0].op} was refused" if refused else ": its table is full"
    named = {found[1] for one in tables if (found := _NAMED.match(one.says))}
    hca = {"hca": named.pop()} if len(named) == 1 and len(nodes) == 1 and "resources_used_up" in signals else {}
    return Hypothesis(
        PAIRS, {**whom(nodes), **hca},
        f"On {listed(nodes)} the adapter has no queue pairs or other resources left{what}",
        (*(quoted(*one.said) for one in refused[:3]), *tables[:3]),
        tuple(dict.fromkeys(signals)),
        would_change=("`rdma resource show`: far fewer queue pairs in use than max_qp of ibv_devinfo -v",),
        ranks=everyone(evidence), nodes=frozenset(nodes),
    )  # fmt: skip


def _limits(evidence: Evidence, nodes: set[str]) -> Limits:
    found = Limits([], [])
    for seen, pid, size in _told(evidence):
        if nodes & {seen.node, ""} or not seen.node:
            low = size is not None and size < ENOUGH
            (found.low if low else found.free).append((_said_of(seen, pid, size), pid != 0))
    for one in evidence.job.said("memlock"):
        node, size = node_of(evidence, one), one[0].more.get("bytes")
        if node in nodes or not node:
            low = isinstance(size, int) and size < ENOUGH
            (found.low if low else found.free).append((quoted(*one), True))
    for one in evidence.job.said("ib_resource"):  # UCX tells the limit beside the refusal
        kib = one[0].more.get("kib")
        if isinstance(kib, (int, str)) and str(kib).isdecimal() and int(kib) * 1024 < ENOUGH:
            found.low.append((quoted(one[0], one[1], one[2], f"the process may lock {int(kib):,} KiB of memory"), True))
    return found


def _told(evidence: Evidence) -> list[tuple[Seen, int, int | None]]:
    return [(seen, limit.pid, limit.memlock) for seen in evidence.of("host.settings") for limit in seen.facts.limits]


def _said_of(seen: Seen, pid: int, size: int | None) -> Reason:
    who = "a login shell" if pid == 0 else f"process {pid}" if pid > 0 else "a process"
    if size is None or size >= ENOUGH:
        return Reason(f"{who} on {seen.node or 'a node'} may lock as much memory as it likes", seen.ref)
    much = f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
    return Reason(f"{who} on {seen.node or 'a node'} may lock {much} of memory", seen.ref)


def _low_alone(evidence: Evidence) -> Iterator[Hypothesis]:
    """A rank's limit that is low where those of other nodes are free, before anything was refused."""
    told = _told(evidence)
    free = {seen.node for seen, _, size in told if size is None or size >= ENOUGH}
    for seen, pid, size in told:
        if size is not None and size < ENOUGH and free - {seen.node}:
            reason = _said_of(seen, pid, size)
            says = f"{reason.says}, on {len(free - {seen.node})} other nodes it is free"
            yield Hypothesis(
                MEMLOCK, whom({seen.node}), f"RDMA may not lock enough memory on {listed({seen.node})}",
                (Reason(says, seen.ref),), ("memlock_low" if pid else "memlock_low_shell",),
                would_change=("`Max locked memory` of the rank's own process in /proc/PID/limits: unlimited",),
                nodes=frozenset({seen.node} - {""}),
            )  # fmt: skip
            return


def _tables(evidence: Evidence, nodes: set[str]) -> tuple[list[Reason], list[Reason]]:
    """Adapters whose queue pairs are all in use, and those with very many where nobody told how many they may have."""
    used: dict[tuple[str, str], tuple[int, str]] = {}
    most: dict[tuple[str, str], int] = {}
    for seen in evidence.of("host.settings", "ib.resources"):
        for key, value in seen.facts.resources.items():
            hca, _, what = key.partition(" ")
            if what == "qp":
                used[(seen.node, hca)] = (value, seen.ref)
            elif what == "max_qp":
                most[(seen.node, hca)] = value
    full, many = [], []
    for (node, hca), (value, ref) in used.items():
        if nodes and node and node not in nodes and "" not in nodes:
            continue
        limit = most.get((node, hca)) or next((size for (_, name), size in most.items() if name == hca), 0)
        of = f" of {limit:,}" if limit else ""
        reason = Reason(f"{hca}{f' on {node}' if node else ''} has {value:,}{of} queue pairs in use", ref)
        if limit and value >= FULL * limit:
            full.append(reason)
        elif not limit and value > MANY:
            many.append(reason)
    return full, many


RULE = Rule((MEMLOCK, PAIRS), judge)
