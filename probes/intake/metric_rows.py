"""Tables of metrics in which a row is a moment of one pod or node, as Grafana's joined frames and scripts save them.

    time,pod,container_cpu_cfs_periods_total,container_cpu_cfs_throttled_periods_total     a column a metric
    timestamp,__name__,instance,value                                                    a row a point

Shape    heads_of(line) -> Heads, None where it begins no such table; series(text) -> Series
Errors   none: a row that does not fit is passed over
Source   Grafana, "Joining by field" and "Series to rows"; names of cAdvisor, node_exporter and kube-state-metrics
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from probes.core import clean, lines_of
from probes.intake.csv_rows import csv_rows
from probes.intake.series import Point, Series, number, time_of

MOST_ROWS, LONGEST = 200_000, 4_000
# Those of a CPU that metric_facts knows by name; `node_name` and `node_rank` are labels.
_METRIC = re.compile(
    r"(?:cadvisor_)?(?:container|node|namedprocess|machine)_(?:\w{1,40}_)?(?:cpu|load\d{1,2}|procs|pressure)(?:_\w{1,60})?"
    r"|kube_pod_container_resource_limits\w{0,20}"
)
_TIME = re.compile(r"_?(?:time(?:stamp)?|ts|date(?:time)?|at)(?:[ _(].{0,20})?", re.I)
_NAME = ("__name__", "metric", "metric_name", "series", "_measurement", "_field", "name")
_VALUE = ("value", "_value", "val")
_LABEL = re.compile(r"[A-Za-z_]\w{0,60}")


@dataclass(frozen=True, slots=True)
class Heads:
    mark: str
    names: tuple[str, ...]
    at: int | None
    metrics: tuple[int, ...]  # columns that are each a metric
    named: int | None  # the column that says of which metric a row is, and that of its value
    value: int | None


def heads_of(line: str) -> Heads | None:
    mark = max(",;\t", key=line.count)
    if not 1 <= line.count(mark) <= 60:
        return None
    names = tuple(cell.strip() for cell in next(csv_rows([line[:LONGEST]], mark), []))
    at = next((place for place, name in enumerate(names) if _TIME.fullmatch(name)), None)
    metrics = tuple(place for place, name in enumerate(names) if _METRIC.fullmatch(name))
    lower = [name.lower() for name in names]
    named = next((lower.index(name) for name in _NAME if name in lower), None)
    value = next((lower.index(name) for name in _VALUE if name in lower), None)
    if metrics and len(metrics) + (at is not None) < len(names):
        return Heads(mark, names, at, metrics, None, None)
    if named is not None and value is not None and at is not None:
        return Heads(mark, names, at, (), named, value)
    return None


def tells(head: str) -> bool:
    """Whether such a table begins here, and, where its rows say the metric, whether they say a known one."""
    body = head.lstrip("\ufeff\r\n")
    heads = heads_of(body.partition("\n")[0])
    if heads is None or heads.metrics:
        return heads is not None
    return any(_METRIC.fullmatch(one.name) for one in series(body[:20_000]))


def series(text: str) -> list[Series]:
    first, _, rest = text.lstrip("\ufeff\r\n").partition("\n")
    heads = heads_of(first)
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Point]] = {}
    for row in itertools.islice(csv_rows(lines_of(rest, LONGEST), heads.mark), MOST_ROWS) if heads else ():
        if heads is None or len(row) < len(heads.names):
            continue
        at = time_of(row[heads.at]) if heads.at is not None else None
        apart = {*heads.metrics, heads.at, heads.named, heads.value}
        labels = tuple(
            (name, clean(cell.strip())[:200])
            for place, (name, cell) in enumerate(zip(heads.names, row, strict=False))
            if place not in apart and cell.strip() and _LABEL.fullmatch(name)
        )
        told = [(heads.names[place], row[place]) for place in heads.metrics]
        if heads.named is not None and heads.value is not None:
            told = [(row[heads.named].strip(), row[heads.value])]
        for name, cell in told:
            if (value := number(cell)) is not None:
                found.setdefault((name, labels), []).append((at, value))
    return [Series(name, dict(labels), tuple(points)) for (name, labels), points in found.items()]
