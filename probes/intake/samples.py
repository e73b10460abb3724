"""Metrics of a monitoring system as text: whose they are, where one file holds those of several nodes.

    DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="gpu-017"} 61          an exporter's own answer
    {"status":"success","data":{"resultType":"vector", ...}}     Prometheus' answer to a query

Source   Prometheus documentation: text-based exposition format; HTTP API, instant and range vectors
Shape    samples(text) -> Sample; by_node(text) -> node: its lines, {} where fewer than two nodes are told
Errors   none: lines that are no sample are left out
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from probes.core import lines_of

MOST = 200_000
_LINE = re.compile(r"([A-Za-z_:][\w:]{1,120})\{([^\n{}]{1,3000})\} {1,4}(\S{1,40})(?: {1,4}-?\d{1,20})?\s{0,4}$")
_LABEL = re.compile(r'([A-Za-z_]\w{0,60})="([^"\n]{0,300})"')
# The most exact first: `instance` is where the exporter listens, which may be a pod's address.
_NODES = (
    "hostname",
    "node",
    "nodename",
    "kubernetes_node",
    "exported_hostname",
    "host",
    "exported_instance",
    "instance",
)
_QUERY = re.compile(r'\{\s{0,20}"(?:status|data|resultType)"\s{0,8}:')


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: Mapping[str, str]  # names in lower case
    value: float

    @property
    def node(self) -> str:
        said = next((self.labels[name] for name in _NODES if self.labels.get(name)), "")
        return re.sub(r":\d{1,5}$", "", said)


def is_query(head: str) -> bool:
    """Whether this is Prometheus' answer as JSON."""
    return bool(_QUERY.match(head.lstrip())) and '"resultType"' in head and '"metric"' in head


def samples(text: str) -> Iterator[Sample]:
    """Of a range of time the last of each."""
    if is_query(text[:65_536]):
        yield from _of_query(text)
        return
    for number, line in enumerate(lines_of(text, 4096)):
        if number > MOST:
            return
        if line[:1] != "#" and (found := _LINE.match(line.strip())) and (value := _value(found[3])) is not None:
            yield Sample(found[1], {key.lower(): said for key, said in _LABEL.findall(found[2])}, value)


def _value(said: object) -> float | None:
    try:
        value = float(str(said)[:40])
    except ValueError:
        return None
    return value if -1e18 < value < 1e18 else None


def _of_query(text: str) -> Iterator[Sample]:
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        return
    data = said.get("data", said) if isinstance(said, dict) else None
    rows = data.get("result") if isinstance(data, dict) else None
    for row in rows[:MOST] if isinstance(rows, list) else ():
        metric = row.get("metric") if isinstance(row, dict) else None
        if not isinstance(metric, dict) or not metric.get("__name__"):
            continue
        values = row.get("values")
        pair = values[-1] if isinstance(values, list) and values else row.get("value")
        value = _value(pair[1]) if isinstance(pair, list) and len(pair) == 2 else None
        if value is not None:
            labels = {str(key).lower(): str(one)[:300] for key, one in metric.items() if key != "__name__"}
            yield Sample(str(metric["__name__"])[:120], labels, value)


def by_node(text: str) -> dict[str, str]:
    """The metrics of each node as lines, where they are of two or more."""
    if "{" not in text[:65_536] or not (is_query(text[:65_536]) or _has_samples(text)):
        return {}
    lines: dict[str, list[str]] = {}
    for one in samples(text):
        if one.node:
            labels = ",".join(f'{key}="{said}"' for key, said in one.labels.items())
            lines.setdefault(one.node, []).append(f"{one.name}{{{labels}}} {one.value:g}")
    return {node: "\n".join(some) + "\n" for node, some in lines.items()} if len(lines) > 1 else {}


def _has_samples(text: str) -> bool:
    plain = (line for line in lines_of(text[:65_536], 4096) if line.strip() and line[0] != "#")
    head = list(islice(plain, 20))
    return len(head) > 1 and sum(bool(_LINE.match(line.strip())) for line in head) * 2 > len(head)
