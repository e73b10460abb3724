"""An RDMA call was refused for want of something: locked memory that a limit keeps, or resources of the adapter."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.job import quoted

MEMLOCK, QPS = "ib.memlock_limit", "ib.qp_exhausted"
_CALL = re.compile(
    r"(ibv_(?:reg_(?:dmabuf_)?mr\w{0,12}|create_qp\w{0,6}|create_cq\w{0,6}|alloc_pd|create_srq))[^\n]{0,80}", re.I
)
_NO_MEMORY = re.compile(r"Cannot allocate memory|ENOMEM|errno 12\b|error 12\b|Resource temporarily unavailable", re.I)
_FULL = re.compile(r"No space left on device|ENOSPC|Too many open|EMFILE|Device or resource busy", re.I)
ENOUGH = 2**36  # bytes; judgement: a rank that may lock 64 GiB is not held by this limit
SAID = ("nccl_warn", "nccl_error", "traceback", "bootstrap")


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    low = list(_low(evidence))
    for event, log, seen in evidence.job.said(*SAID):
        call = _CALL.search(event.text)
        if call is None or event.secondary:
            continue
        node = seen.node or (evidence.job.view(event.rank).node if event.rank is not None else "")
        no_memory, full = bool(_NO_MEMORY.search(event.text)), bool(_FULL.search(event.text))
        if not no_memory and not full:
            continue
        registers = "reg_" in call[1].lower()
        limits = [one for one in low if one[0] in (node, "")]
        said = quoted(event, log, seen)
        if registers or no_memory:
            signal = "registration_refused" if registers or limits else "queue_pair_refused_perhaps_memlock"
            yield _memlock(node, [said], limits, signal, event.rank)
        if not registers:
            refused = (
                "queue_pair_refused"
                if full
                else "queue_pair_refused_memory"
                if limits
                else "queue_pair_refused_unclear"
            )
            yield _qps(evidence, node, said, refused, event.rank)
    if low and not any(True for _ in _registrations(evidence)):
        for limit in low[:1]:
            if limit[3]:
                yield _memlock(limit[0], [], [limit], "", None)


def _registrations(evidence: Evidence) -> Iterator[object]:
    return (event for event, _, _ in evidence.job.said(*SAID) if _CALL.search(event.text))


Low = tuple[str, Reason, bool, bool]  # node, why, of a rank (not of a shell), unlike other nodes


def _low(evidence: Evidence) -> Iterator[Low]:
    """Limits of locked memory that are too low. A rank's own counts; the shell's says what a login would get."""
    told: list[tuple[Seen, int, int | None]] = [
        (seen, limit.pid, limit.memlock) for seen in evidence.of("host.settings") for limit in seen.facts.limits
    ]
    free = {seen.node for seen, _, size in told if size is None or size >= ENOUGH}
    for seen, pid, size in told:
        if size is not None and size < ENOUGH:
            who = "a login shell" if pid == 0 else f"process {pid}" if pid > 0 else "a process"
            mib = f"{size / 2**20:.0f} MiB" if size >= 2**20 else f"{size / 2**10:.0f} KiB"
            unlike = f", on {len(free)} other nodes it is free" if free - {seen.node} else ""
            says = f"{who} on {seen.node or 'a node'} may lock {mib} of memory{unlike}"
            yield seen.node, Reason(says, seen.ref), pid != 0, bool(free - {seen.node})


def _memlock(node: str, because: list[Reason], limits: list[Low], signal: str, rank: int | None) -> Hypothesis:
    signals = [signal] if signal else []
    for _, reason, of_rank, unlike in limits[:2]:
        because.append(reason)
        signals.append("memlock_low" if of_rank and (signal or unlike) else "memlock_low_shell")
    where = f" on {node}" if node else ""
    return Hypothesis(
        MEMLOCK, {"node": node} if node else {},
        f"RDMA may not lock enough memory{where}" + (": memory could not be registered" if signal else ""),
        tuple(because), tuple(dict.fromkeys(signals)),
        would_change=("`Max locked memory` in /proc/PID/limits of the rank: unlimited",),
        ranks=frozenset({rank} if rank is not None else ()), nodes=frozenset({node} if node else ()),
    )  # fmt: skip


def _qps(evidence: Evidence, node: str, said: Reason, signal: str, rank: int | None) -> Hypothesis:
    because = [said]
    signals = [signal]
    for seen in evidence.of("host.settings"):
        counts = {key: value for key, value in seen.facts.resources.items() if key.endswith(" qp")}
        for key, value in counts.items():
            if seen.node in (node, "") and value > 10_000:  # judgement: a training node uses some thousands
                because.append(Reason(f"{key.partition(' ')[0]} has {value:,} queue pairs in use", seen.ref))
                signals.append("queue_pairs_many")
    where = f" on {node}" if node else ""
    return Hypothesis(
        QPS, {"node": node} if node else {}, f"The adapter{where} gives no more queue pairs",
        tuple(because), tuple(dict.fromkeys(signals)),
        would_change=("`rdma resource show`: queue pairs in use, against max_qp of ibv_devinfo -v",),
        ranks=frozenset({rank} if rank is not None else ()), nodes=frozenset({node} if node else ()),
    )  # fmt: skip


RULE = Rule((MEMLOCK, QPS), judge)
