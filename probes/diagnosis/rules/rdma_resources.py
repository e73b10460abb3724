"""An RDMA call was refused for want of something: locked memory that a limit keeps, or resources of the adapter.

ibv_reg_mr and ibv_create_cq lock pages, so ENOMEM there is the limit of locked memory. For a queue pair ENOMEM may be
either: what the limit is decides. ENOSPC is the adapter's own. Source: NCCL's manual, chapter Troubleshooting;
ibv_create_qp(3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_of, whom

MEMLOCK, QPS = "ib.memlock_limit", "ib.qp_exhausted"
SAID = ("ib_resource", "nccl_warn", "nccl_error", "traceback", "bootstrap")
# The call and errno(3) in lines that are not of NCCL's form.
_CALL = re.compile(
    r"(ibv_(?:reg_(?:dmabuf_)?mr\w{0,12}|create_qp\w{0,6}|create_cq\w{0,6}|alloc_pd|create_srq))[^\n]{0,80}", re.I
)
_NO_MEMORY = re.compile(r"Cannot allocate memory|ENOMEM|errno 12\b|error 12\b|Resource temporarily unavailable", re.I)
_FULL = re.compile(r"No space left on device|ENOSPC|Too many open|EMFILE|Device or resource busy", re.I)
NO_MEMORY, NO_SPACE = 12, 28  # ENOMEM, ENOSPC of errno(3)
TOO_LOW = 2**30  # bytes; judgement: NCCL locks hundreds of MiB per rank
ENOUGH = 2**36  # bytes; judgement: a rank that may lock 64 GiB is not held by this limit
MANY = 10_000  # queue pairs; judgement: a training node uses some thousands


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    memory: list[Said] = []
    full: list[Said] = []
    for one in evidence.job.said(*SAID):
        kind = _refused(one)
        if kind is not None:
            (full if kind else memory).append(one)
    if full:
        yield _pairs(evidence, full, "resources_used_up")
    low, free = _limits(evidence)
    if memory:
        yield from _for_memory(evidence, memory, low, free)
    elif not full and (odd := [one for one in low if one[3]]):
        node, reason, of_rank, _ = odd[0]
        yield _memlock({node}, "", (reason,), ("memlock_low" if of_rank else "memlock_low_shell",))


def _refused(one: Said) -> bool | None:
    """True: for want of the adapter's resources; False: of memory; None: neither is told."""
    event = one[0]
    if event.secondary or not (event.kind == "ib_resource" or _CALL.search(event.text)):
        return None
    if event.code == NO_SPACE or _FULL.search(event.text):
        return True
    told = event.kind == "ib_resource" and event.code in (NO_MEMORY, None)
    return False if told or _NO_MEMORY.search(event.text) else None


def _op(one: Said) -> str:
    found = _CALL.search(one[0].text)
    return str(one[0].op or (found[1] if found else "a call"))


Low = tuple[str, Reason, bool, bool]  # node, why, of a rank (not of a shell), unlike other nodes


def _limits(evidence: Evidence) -> tuple[list[Low], list[tuple[str, Reason]]]:
    """Limits of locked memory that are too low, and those that hold nobody. A rank's own counts; a shell's says what a
    login would get."""
    told: list[tuple[str, Reason, int | None, bool]] = []
    for seen in evidence.of("host.settings"):
        for limit in seen.facts.limits:
            who = "a login shell" if limit.pid == 0 else f"process {limit.pid}" if limit.pid > 0 else "a process"
            says = f"{who} on {seen.node or 'a node'} may lock {_size(limit.memlock)} of memory"
            told.append((seen.node, Reason(says, seen.ref), limit.memlock, limit.pid != 0))
    for one in evidence.job.said("memlock"):
        size = one[0].more.get("bytes")
        if isinstance(size, int) or one[0].name == "unlimited":
            told.append((node_of(evidence, one), quoted(*one), size if isinstance(size, int) else None, True))
    free = [(node, reason) for node, reason, size, _ in told if size is None or size >= ENOUGH]
    low = []
    for node, reason, size, of_rank in told:
        if size is not None and size < (TOO_LOW if of_rank else ENOUGH):
            others = {one for one, _ in free} - {node}
            unlike = f", on {len(others)} other nodes it is free" if others else ""
            low.append((node, Reason(reason.says + unlike, reason.reading), of_rank, bool(others)))
    return low, free


def _size(memlock: int | None) -> str:
    if memlock is None:
        return "any amount"
    return f"{memlock / 2**20:.0f} MiB" if memlock >= 2**20 else f"{memlock / 2**10:.0f} KiB"


def _for_memory(
    evidence: Evidence, said: list[Said], low: list[Low], free: list[tuple[str, Reason]]
) -> Iterator[Hypothesis]:
    nodes = {node_of(evidence, one) for one in said}
    places = {*nodes, *(seen.node for _, _, seen in said), ""}  # a container may call itself by another name
    here = [one for one in low if one[0] in places]
    unlimited = [] if here else [reason for node, reason in free if node in places]
    registers = [one for one in said if "reg" in _op(one) or "create_cq" in _op(one)]
    signals = ["registration_refused" if registers or here else "queue_pair_refused_perhaps_memlock"]
    signals += ["memlock_low" if of_rank else "memlock_low_shell" for _, _, of_rank, _ in here[:2]]
    signals += ["memlock_unlimited"] * bool(unlimited)
    because = (*(quoted(*one) for one in (registers or said)[:3]), *(reason for _, reason, _, _ in here[:2]))
    against = tuple(Reason(f"locked memory is not limited: {one.says}", one.reading) for one in unlimited[:1])
    yield _memlock(nodes, _op((registers or said)[0]), because, tuple(signals), against, everyone(evidence))
    if not registers:
        known = "queue_pair_refused_unlimited" if unlimited else "queue_pair_refused_memory" if here else ""
        yield _pairs(evidence, said, known or "queue_pair_refused_unclear")


def _memlock(
    nodes: set[str], op: str, because: tuple[Reason, ...], signals: tuple[str, ...], against: tuple[Reason, ...] = (),
    ranks: frozenset[int] = frozenset(),
) -> Hypothesis:  # fmt: skip
    return Hypothesis(
        MEMLOCK,
        whom(nodes),
        f"On {listed(nodes)} RDMA may not lock enough memory" + (f": {op} was refused" if op else ""),
        because,
        tuple(dict.fromkeys(signals)),
        against=against,
        would_change=("`Max locked memory` in /proc/PID/limits of the rank's own process: unlimited",),
        ranks=ranks,
        nodes=frozenset(nodes),
    )


def _pairs(evidence: Evidence, said: list[Said], signal: str) -> Hypothesis:
    nodes = {node_of(evidence, one) for one in said}
    many = [
        Reason(f"{key.partition(' ')[0]} has {value:,} queue pairs in use", seen.ref)
        for seen in evidence.of("host.settings")
        if seen.node in nodes or not seen.node
        for key, value in seen.facts.resources.items()
        if key.endswith(" qp") and value > MANY
    ]
    return Hypothesis(
        QPS,
        whom(nodes),
        f"On {listed(nodes)} the adapter has no queue pairs or other resources left: {_op(said[0])} was refused",
        (*(quoted(*one) for one in said[:3]), *many[:2]),
        (signal, *(("queue_pairs_many",) if many else ())),
        would_change=("`rdma resource show`: queue pairs in use, far fewer than max_qp of ibv_devinfo -v",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


RULE = Rule((MEMLOCK, QPS), judge)
