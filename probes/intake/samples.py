"""The newest value of each series that a text of metrics tells, and whose it is.

    DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="gpu-017"} 61          an exporter's own answer
    {"status":"success","data":{"resultType":"vector", ...}}     Prometheus' answer to a query

Shape    samples(text) -> Sample; by_node(text) -> node: its lines, {} where fewer than two nodes are told
Errors   none: what is no sample is left out
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from probes.intake.metrics import series_of
from probes.intake.series import Series

# The most exact first: `instance` is where the exporter listens, which may be a pod's address.
_NODES = ("node", "nodename", "kubernetes_node", "hostname", "exported_hostname", "host", "exported_instance",
    "instance")  # fmt: skip
_QUERY = re.compile(r'\{\s{0,20}"(?:status|data|resultType)"\s{0,8}:')


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    labels: Mapping[str, str]  # names in lower case
    value: float

    @property
    def node(self) -> str:
        """Where it was measured, without the exporter's port."""
        said = next((self.labels[name] for name in _NODES if self.labels.get(name)), "")
        return re.sub(r":\d{1,5}$", "", said)[:120]


def is_query(head: str) -> bool:
    """Whether this is Prometheus' answer as JSON."""
    return bool(_QUERY.match(head.lstrip())) and '"resultType"' in head and '"metric"' in head


def names_one_of(head: str, names: Sequence[str]) -> bool:
    return any(name in head and re.search(rf'(?:^|[ "]){name}["{{ ]', head, re.M) for name in names)


def samples(text: str, names: Sequence[str] = ()) -> Iterator[Sample]:
    """Of a range of time the last of each; all where no names are given."""
    for one in series_of(text):
        if one.name and one.points and (not names or one.name in names):
            yield _last(one)


def _last(one: Series) -> Sample:
    return Sample(one.name, {key.lower(): said for key, said in one.labels.items()}, one.points[-1][1])


def by_node(text: str) -> dict[str, str]:
    """The metrics of each node as lines, where they are of two or more."""
    lines: dict[str, list[str]] = {}
    for series in series_of(text):
        one = _last(series) if series.name and series.points else None
        if one is None or not one.node:
            continue
        labels = ",".join(f'{key}="{said}"' for key, said in one.labels.items())
        mine = lines.setdefault(one.node, [])
        at, value = series.points[0]
        if "infiniband" in one.name and len(series.points) > 1 and None not in (at, series.points[-1][0]):
            # Of counters of ports two looks tell more than one, in the form of an exposition with times.
            mine.append(f"{one.name}{{{labels}}} {value!r} {1000 * (at or 0.0):.0f}")
            mine.append(f"{one.name}{{{labels}}} {one.value!r} {1000 * (series.points[-1][0] or 0.0):.0f}")
        else:
            mine.append(f"{one.name}{{{labels}}} {one.value!r}")
    return {node: "\n".join(some) + "\n" for node, some in lines.items()} if len(lines) > 1 else {}
