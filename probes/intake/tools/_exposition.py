"""Metrics as exporters print them and as Prometheus answers a query: one row for each series, with its node.

    node_boot_time_seconds{instance="gpu-017:9100"} 1.780308071e+09
    {"metric": {"__name__": "node_boot_time_seconds", "instance": "gpu-017:9100"}, "value": [1780309211, "1780308071"]}

Source   Prometheus' text format 0.0.4 and its HTTP API (/api/v1/query, query_range: the last value counts)
Shape    series(text, names) -> Series; whether(text, names) is quick
Errors   none: a line that is none of these is left out
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from probes.core import clean, lines_of

MOST = 200_000
_ROW = re.compile(
    r"(?:[\w.-]{1,80}: )?([a-zA-Z_:][\w:]{2,120})(?:\{([^}]{0,4000})\})? {1,8}([-+]?[\d.eE+-]{1,40}|NaN|[+-]?Inf)"
    r"(?: |$)"
)
_LABEL = re.compile(r'([a-zA-Z_]\w{0,80})="((?:[^"\\]|\\.){0,400})"')
_NODE = ("node", "nodename", "kubernetes_node", "Hostname", "hostname", "host", "exported_instance", "instance")


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    labels: dict[str, str]
    value: float

    @property
    def node(self) -> str:
        """Where it was measured, without the exporter's port."""
        word = next((self.labels[key] for key in _NODE if self.labels.get(key)), "")
        return re.sub(r":\d{1,5}$", "", word)[:120]


def whether(text: str, names: Sequence[str]) -> bool:
    return any(re.search(rf'(?:^|[ "]){name}["{{ ]', text, re.M) for name in names)


def series(text: str, names: Sequence[str]) -> Iterator[Series]:
    if text.lstrip()[:1] in "{[":
        yield from (one for one in _answers(text) if one.name in names)
        return
    for count, line in enumerate(lines_of(text, 5000)):
        found = _ROW.match(line)
        if count > MOST:
            return
        if found is not None and found[1] in names and (value := _number(found[3])) is not None:
            yield Series(found[1], {key: clean(word) for key, word in _LABEL.findall(found[2] or "")}, value)


def _answers(text: str) -> Iterator[Series]:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return
    data = said.get("data") if isinstance(said, dict) else said
    rows: Any = data.get("result") if isinstance(data, dict) else data
    for row in (rows if isinstance(rows, list) else [])[:MOST]:
        labels = row.get("metric") if isinstance(row, dict) else None
        if not isinstance(labels, dict):
            continue
        values = row.get("values")
        pair = row.get("value") if not isinstance(values, list) or not values else values[-1]
        value = _number(str(pair[1])) if isinstance(pair, list) and len(pair) == 2 else None
        if value is not None:
            words = {str(key): clean(str(word))[:400] for key, word in labels.items()}
            yield Series(words.get("__name__", ""), words, value)


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if abs(value) < 1e18 else None
