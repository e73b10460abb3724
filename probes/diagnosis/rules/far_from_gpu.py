"""A rank that may run only on CPUs of the other socket than its GPU is on, where other ranks are near to theirs.

Its launches, copies from host memory and NCCL's proxy thread cross the sockets. That makes it slower than its peers,
and stops nothing. Where all ranks are far the site runs them so, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog.host.load_facts import cpu_set
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.gpus import gpu_states

CAUSE = "cpu.affinity_collision"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    gpus = {seen.node: seen.facts for seen in gpu_states(evidence)}
    near: dict[tuple[str, str], str] = {}
    for seen in evidence.of("host.pci"):
        near.update({(seen.node, gpu.slot): gpu.cpus for gpu in seen.facts.of("gpu") if gpu.cpus})
    for seen in evidence.of("host.settings"):
        if seen.node not in gpus:
            continue
        masks = {mask.pid: mask.cpus for mask in seen.facts.masks}
        pairs = [
            (pid, masks[pid], gpu, near[seen.node, gpu.bus_id])
            for gpu in gpus[seen.node].gpus
            for pid in gpu.pids
            if pid in masks and (seen.node, gpu.bus_id) in near
        ]
        far = [pair for pair in pairs if not cpu_set(pair[1]) & cpu_set(pair[3])]
        if not far or len(far) * 2 > len(pairs):
            continue
        for pid, mask, gpu, cpus in far[:4]:
            rank = evidence.places.pids.get((seen.node, pid))
            who = f"rank {rank}" if rank is not None else f"process {pid}"
            says = f"{who} on {seen.node or 'a node'} may use CPUs {mask} only, its GPU {gpu.index} is near CPUs {cpus}"
            yield Hypothesis(
                CAUSE,
                ({"node": seen.node} if seen.node else {}) | ({"rank": rank} if rank is not None else {}),
                says[:1].upper() + says[1:],
                (Reason(says, seen.ref), Reason(f"{len(pairs) - len(far)} others are near to their GPUs", seen.ref)),
                ("mask_far_from_gpu",),
                would_change=("a mask with CPUs of the GPU's own NUMA node",),
            )


RULE = Rule((CAUSE,), judge)
