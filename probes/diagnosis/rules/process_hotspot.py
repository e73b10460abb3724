"""A process that is none of the job's takes the CPU, and ranks wait for it. A busy process on an idle node is none."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.cpus import NodeCpu, busiest, decides

CAUSE = "cpu.process_hotspot"
SHARE = 0.2  # of the node's CPUs; judgement
UNKNOWN_CPUS = 400.0  # percent, where nobody told how many CPUs there are; judgement


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for here in evidence.cpus.values():
        yield from _on(evidence, here)


def _on(evidence: Evidence, here: NodeCpu) -> Iterator[Hypothesis]:
    found = busiest(here.others())
    if not found:
        return
    name, taken, some = found[0]
    least = SHARE * here.cpus * 100 if here.cpus else UNKNOWN_CPUS
    waiting = here.waiting
    if taken < least:
        return
    if not waiting and (taken < 2 * least or here.has_room):
        return
    numbered = [one for one in some if one.pid > 0]
    pids = ", ".join(str(one.pid) for one in sorted(numbered, key=lambda one: -(one.cpu or 0))[:4])
    what = (
        (f"{name} ({pids})" if pids else name)
        if len(some) == 1
        else f"{len(some)} processes {name} ({pids}{' and more' if len(some) > 4 else ''})"
    )
    of = f" of the node's {here.cpus}" if here.cpus else ""
    over = ", over its life" if some[0].lifetime else ""
    because = [
        Reason(f"{what} take{'s' * (len(some) == 1)} {taken / 100:.1f} CPUs{of}{over}", some[0].ref),
        *waiting[:4],
    ]
    subject: dict[str, str | int] = {"node": here.node} if here.node else {}
    worst = max(some, key=lambda one: one.cpu or 0.0)
    strong = bool(waiting) and decides(evidence, here)
    yield Hypothesis(
        CAUSE, subject | ({"pid": worst.pid} if worst.pid > 0 else {}) | {"process": name},
        f"{what} on {here.node or 'a node'} take{'s' * (len(some) == 1)} {taken / 100:.1f} CPUs that ranks need",
        tuple(because), ("hotspot" if strong else "hotspot_no_wait",),
        would_change=("run delay of the ranks: none", "that process belongs to the job"),
        ranks=here.late_ranks if strong else frozenset(),
        nodes=frozenset({here.node}) if strong and here.node else frozenset(),
    )  # fmt: skip


RULE = Rule((CAUSE,), judge)
