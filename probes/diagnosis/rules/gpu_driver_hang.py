"""The GPU driver does not come back: tasks that are stuck in it, by the kernel's own word or at two looks."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.times import Times

CAUSE = "gpu.driver_hang"
# Kernel modules and functions of the drivers; the process that asks the driver for its state says it as well.
OF_DRIVER = ("nvidia", "nv_", "uvm", "os_acquire", "amdgpu", "kfd", "_nv0", "rm_")


def of_driver(words: str) -> bool:
    """Whether a kernel function or module is a GPU driver's."""
    low = words.lower()
    return any(low.startswith(part) or f" {part}" in low for part in OF_DRIVER) or "nvidia" in low


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    times = Times(evidence)
    for seen in evidence.of("host.kernel_log"):
        said = [finding for finding in seen.findings if finding.code == "kernel.hung_task"]
        for event, finding in zip(seen.facts.hung_tasks, said, strict=False):
            mine = of_driver(event.where) or any(of_driver(name) for name in event.modules)
            mine = mine or event.process.startswith(("nvidia-", "nv_queue", "nvidia"))
            if mine and times.old(seen.node, event.last_at, event.last) != "yes":
                yield _stuck(seen.node, finding.says, seen.ref, event.pid, evidence)
    for seen in evidence.of("host.storage"):
        for task in seen.facts.blocked:
            if task.stuck and (
                "NVIDIA" in task.waits_for or "AMD GPU" in task.waits_for or task.comm.startswith("nvidia-smi")
            ):
                says = f"{task.comm} ({task.pid}) is stuck in state D in {task.wchan or 'an unknown function'}"
                yield _stuck(seen.node, says, seen.ref, task.pid, evidence)
    for rank, view in evidence.job.ranks.items():
        process = view.process
        if process is not None and process.stuck and of_driver(process.wchan):
            says = f"rank {rank} is in state D in {process.wchan}, at both looks"
            yield _stuck(view.node, says, view.ref("rank.process"), process.pid, evidence)


def _stuck(node: str, says: str, ref: str, pid: int, evidence: Evidence) -> Hypothesis:
    ranks = frozenset(rank for rank, view in evidence.job.ranks.items() if view.node == node and view.pid == pid)
    return Hypothesis(
        CAUSE,
        {"node": node} if node else {},
        f"The GPU driver of {node or 'a node'} does not come back: {says}",
        (Reason(says, ref),),
        ("driver_task_stuck",),
        would_change=("the same call, answered",),
        ranks=ranks,
        nodes=frozenset({node}),
    )


RULE = Rule((CAUSE,), judge)
