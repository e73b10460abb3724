"""A GPU that should be there is not shown: fewer than on the PCI bus, or than on the other nodes."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.gpus import gpus_of, usual

CAUSE = "gpu.fell_off_bus"


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    nodes = gpus_of(evidence)
    value, count, total = usual([there.listed for there in nodes.values()])
    for node, there in nodes.items():
        if there.listed is None or any(not gpu.answered for gpu in there.gpus.values()):
            continue  # the silent one is named by gpu_fault
        signals: tuple[str, ...] = ()
        because = []
        if there.on_pci is not None and there.on_pci > there.listed:
            because.append(Reason(f"{there.on_pci} GPUs are on the PCI bus of {node or 'the node'}", there.pci_ref))
            signals += ("gpu_missing_from_driver",)
        if isinstance(value, int) and count > 1 and count * 2 > total and there.listed < value:
            because.append(Reason(f"{count} other nodes show {value} GPUs each", there.listed_ref))
            signals += ("gpu_fewer_than_peers",)
        if not signals:
            continue
        gap = sorted(gpu.index for gpu in there.gpus.values() if gpu.index is not None)
        because.append(Reason(f"the driver shows {there.listed} GPUs: {', '.join(map(str, gap))}", there.listed_ref))
        yield Hypothesis(
            CAUSE,
            {"node": node} if node else {},
            f"{node or 'A node'} shows {there.listed} GPUs: at least one is missing",
            tuple(because),
            signals,
            against=(Reason("a GPU may have been taken out on purpose", there.listed_ref),),
            would_change=("all GPUs in nvidia-smi",),
            nodes=frozenset({node}),
        )


RULE = Rule((CAUSE,), judge)
