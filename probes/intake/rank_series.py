"""Times of parts of a step that monitoring keeps per rank, as the lines of a job that writes them as JSON.

    train_step_compute_seconds{rank="5",host="a1"} 3.91        {"rank": 5, "host": "a1", "step": 1, "compute_s": 3.91}

Source   none: everybody names such metrics; one counts where what is left of its name, without words in front such as
         train_step, is a part of a step as _log_timings knows them
Units    the unit that the name ends in, else seconds
Shape    times_of_ranks(text) -> lines, "" where fewer than LEAST ranks tell such a time
Errors   none
"""

from __future__ import annotations

import json
import re

from probes.catalog.logs.legends import unit_of
from probes.catalog.logs.timings import part_of
from probes.intake.metrics import series_of

LEAST, MOST_STEPS, MOST_RANKS = 2, 64, 4096
HEAD = 65_536
_RANK = re.compile(r"(?:global_?|world_?)?rank(?:_?id)?", re.I)
_LABEL = re.compile(r"[\"{, ](?:global_?|world_?)?rank(?:_?id)?\"{0,2} ?[=:] ?\"", re.I)
_HOST = ("host", "hostname", "node", "node_name", "instance", "nodename")
_REST = re.compile(r"_(?:duration|latency|avg|mean|last|gauge|p50)(?=_|$)|_(?:sum|count|bucket|total)$")


def times_of_ranks(text: str) -> str:
    if not _LABEL.search(text[:HEAD]):
        return ""
    steps: dict[tuple[int, int], dict[str, float | int | str]] = {}
    for one in series_of(text):
        rank = next((value for key, value in one.labels.items() if _RANK.fullmatch(key)), "")
        name = _name(one.name)
        if not name or not re.fullmatch(r"\d{1,7}", rank):
            continue
        host = next((one.labels[key] for key in _HOST if one.labels.get(key)), "").partition(":")[0]
        for at, (_, value) in enumerate(one.points[-MOST_STEPS:]):
            if (int(rank), at) in steps or len(steps) < MOST_RANKS * 8:
                told = steps.setdefault((int(rank), at), {"rank": int(rank), "step": at + 1})
                told |= {"host": host} if host else {}
                told[name] = value
    if len({rank for rank, _ in steps}) < LEAST:
        return ""
    # One value of each is what its exporter keeps of many steps: as a table it counts, as lines it needs more.
    found = sorted(steps.items(), key=lambda item: (item[0][1], item[0][0]))
    return "".join(json.dumps(told) + "\n" for _, told in found)


def _name(metric: str) -> str:
    """`compute_s` of train_step_compute_seconds; "" where it is no part of a step."""
    if metric.endswith(("_bucket", "_count", "_sum", "_total")):
        return ""
    bare, scale = unit_of(_REST.sub("", metric.rpartition(":")[2]))
    words = bare.split("_")
    unit = {1e-6: "us", 1e-3: "ms"}.get(scale, "s")
    for at in range(min(len(words), 5)):
        if part_of(rest := "_".join(words[at:])):
            return f"{rest}_{unit}"
    return ""
