"""A trace of torch.profiler: its CUDA calls, and how long the device worked.

Source, errors   see _kineto
Units            ns
"""

from __future__ import annotations

from probes.catalog.stacks.cuda_calls import CudaCalls
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.training._kineto import covered, events, host_in_trace, is_trace, rank_in
from probes.intake.tools.training.cuda_calls import COPY, LAUNCH, SYNC, findings

CALLS = ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "xpu_runtime")
WORK = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


def read(text: str) -> CudaCalls:
    """The device's work is without NCCL's kernels, which run while they wait for other ranks."""
    total = sync = copied = 0.0
    syncs = launches = copies = 0
    most: dict[str, float] = {}
    work: list[tuple[float, float]] = []
    first, last = float("inf"), 0.0
    for one in events(text):
        first, last = min(first, one.at), max(last, one.at + one.took)
        if one.kind in WORK:
            if not one.name.startswith("nccl"):
                work.append((one.at, one.took))
        elif one.kind in CALLS:
            total += one.took
            if SYNC.fullmatch(one.name):
                sync, syncs = sync + one.took, syncs + 1
                most[one.name] = most.get(one.name, 0.0) + one.took
            launches += bool(LAUNCH.fullmatch(one.name))
            if COPY.fullmatch(one.name):
                copies, copied = copies + 1, copied + one.took
    if last == 0:
        raise refuse("events in a trace of torch.profiler", text)
    name = clean(max(most, key=lambda key: most[key]))[:60] if most else ""
    return CudaCalls(
        round(1000 * total), round(1000 * sync), syncs, launches, copies, name,
        round(1000 * covered(work)), round(1000 * (last - first)) if work else 0, round(1000 * copied), rank_in(text),
    )  # fmt: skip


TOOL = Tool(
    "CUDA calls of a trace", "rank.cuda_calls", lambda head, name: is_trace(head), read, findings, host_in_trace
)
