"""A trace of torch.profiler: how much of its steps goes to fetching data.

Source, errors   see _kineto
Units            seconds
"""

from __future__ import annotations

import re

from probes.catalog.stacks.time_shares import TimeShares
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.training._kineto import covered, events, host_in_trace, is_trace, rank_in
from probes.intake.tools.training.time_tables import findings

_LOADS = re.compile(
    r"enumerate\(DataLoader\)|torch/utils/data/dataloader\.py\(\d{1,5}\): __next__|data_?load|next_batch", re.I
)
_STEP = re.compile(r"ProfilerStep#\d{1,9}")
LEAST = 1  # steps that the trace holds as a whole


def read(text: str) -> TimeShares:
    """Nested events count once."""
    loads: dict[str, list[tuple[float, float]]] = {}
    names: dict[str, str] = {}
    steps: list[tuple[float, float]] = []
    count = 0
    for one in events(text):
        count += 1
        if _STEP.fullmatch(one.name) and not one.kind.startswith("gpu"):
            steps.append((one.at, one.took))
        elif _LOADS.search(one.name):
            loads.setdefault(one.thread, []).append((one.at, one.took))
            names.setdefault(one.thread, one.name)
    if len(steps) < LEAST:
        raise refuse("steps (ProfilerStep#5) in a trace of torch.profiler", text)
    whole = covered(steps) / 1e6
    thread = max(loads, key=lambda key: covered(loads[key]), default="")
    data = covered(loads[thread]) / 1e6 if loads else 0.0
    share = min(data / whole, 1.0) if whole else 0.0
    return TimeShares(
        count, clean(names.get(thread, ""))[:80], data, f"{len(steps)} steps", whole, round(share, 4),
        len(loads.get(thread, ())), rank_in(text),
    )  # fmt: skip


TOOL = Tool("steps of a trace", "rank.time_shares", lambda head, name: is_trace(head), read, findings, host_in_trace)
