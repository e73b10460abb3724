"""Series of metrics, as Prometheus and what speaks its language give them: what is told of which node.

    container_cpu_cfs_periods_total{pod="trainer-0",container="main"} 181204 1712131260112     /metrics, /federate
    {"status": "success", "data": {"resultType": "matrix", "result": [...]}}                    /api/v1/query
    {"metric": {"__name__": ...}, "values": [...], "timestamps": [...]}                         VictoriaMetrics, export
    container_spec_cpu_quota{pod="trainer-0"} => 400000 @[1712131260.112]                       promtool query
    Time,{pod="trainer-0"},{pod="trainer-1"}                                                    Grafana, CSV of a panel
    time,pod,container_cpu_cfs_periods_total                                                    see metric_rows

Shape    series_of(text) -> Series; `is_metrics(head)` says whether a text is of these forms
Errors   none: a line that is no series is passed over
Source   Prometheus: exposition formats, HTTP API; VictoriaMetrics: /api/v1/export; promtool query
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

from probes.core import clean, lines_of
from probes.intake import container_tables, gpu_tables, metric_rows
from probes.intake.csv_rows import csv_rows
from probes.intake.series import Point, Series, number, time_of

MOST_SERIES, MOST_POINTS, LONGEST = 200_000, 2_000, 20_000
_NAME = r"[A-Za-z_:][\w:]{2,120}"
_LINE = re.compile(
    rf"(?:[\w.-]{{1,80}}: )?(?P<name>{_NAME})?\s{{0,2}}(?P<labels>\{{[^\n]{{0,4000}}\}})?\s{{0,8}}(?:=>)?\s{{1,8}}"
    r"(?P<value>[+-]?(?:\d{1,20}(?:\.\d{0,20})?(?:e[+-]?\d{1,3})?|NaN|Inf))"
    r"(?:\s{1,4}@?\[?(?P<at>\d{9,14}(?:\.\d{1,9})?)\]?)?\s{0,4}(?:#.{0,400})?",
    re.I,
)
_LABEL = re.compile(r'([A-Za-z_]\w{0,80})\s{0,2}=~?\s{0,2}"((?:[^"\\\n]|\\.){0,400})"')
_JSON = re.compile(
    r'^\s{0,8}\{\s{0,8}"status"\s{0,4}:\s{0,4}"success"|"resultType"\s{0,4}:|^\s{0,8}\[?\s{0,8}\{\s{0,8}"metric"\s{0,4}:\s{0,4}\{'
)
_KNOWN = re.compile(r"^(?:container|node|kube|namedprocess|process|machine|cadvisor)_\w{3,80}(?:\{|\s)", re.M)
_TYPED = re.compile(rf"^# (?:HELP|TYPE) {_NAME} ", re.M)


def is_metrics(head: str) -> bool:
    """Whether it begins as one of the forms. A log that quotes a metric is none."""
    body = head.lstrip("\ufeff \t\r\n")
    if body[:1] in "{[" and _JSON.search(body[:4000]):
        return '"streams"' not in body[:4000]  # lines of logs, of Loki
    first = body.partition("\n")[0]
    if _csv_heads(first) or gpu_tables.tells(body) or metric_rows.tells(body):
        return True
    lines = [line for line in itertools.islice(lines_of(body, LONGEST), 60) if line.strip()]
    plain = [line for line in lines if not line.startswith("#")]
    told = sum(bool(_LINE.fullmatch(line) and ("{" in line or line[:1].isalpha())) for line in plain)
    marked = bool(_KNOWN.search(body) or _TYPED.search(body)) or sum("{" in line for line in plain) * 2 > len(plain)
    return bool(plain) and marked and told * 10 >= len(plain) * 8


def series_of(text: str) -> list[Series]:
    body = text.lstrip("\ufeff \t\r\n")
    if container_tables.is_table(body[:65_536]):
        return container_tables.series(body)
    if body[:1] in ("{", "[") and _JSON.search(body[:4000]):
        return list(itertools.islice(_of_json(body), MOST_SERIES))
    if gpu_tables.tells(body):
        return gpu_tables.series(body)
    if metric_rows.tells(body[:65_536]):
        return metric_rows.series(body)
    if _csv_heads(body.partition("\n")[0]):
        return _of_csv(body)
    return _of_lines(body)


def _labels(text: str | None) -> dict[str, str]:
    return {key: clean(value)[:200] for key, value in _LABEL.findall(text or "")[:64]}


def _of_lines(text: str) -> list[Series]:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Point]] = {}
    for line in lines_of(text, LONGEST):
        one = _LINE.fullmatch(line.strip()) if line[:1] != "#" else None
        if one is None or not (one["name"] or one["labels"]):
            continue
        value, at = number(one["value"]), number(one["at"])
        if value is None:
            continue
        key = (one["name"] or "", tuple(sorted(_labels(one["labels"]).items())))
        if key in found or len(found) < MOST_SERIES:
            points = found.setdefault(key, [])
            if len(points) < MOST_POINTS:
                points.append((at / 1000 if at is not None and at > 1e11 else at, value))
    return [Series(name, dict(labels), tuple(points)) for (name, labels), points in found.items()]


def _of_json(text: str) -> Iterator[Series]:
    for said in _objects(text):
        rows = said.get("data", said) if isinstance(said, dict) else said
        rows = rows.get("result", [rows]) if isinstance(rows, dict) else rows
        for row in rows if isinstance(rows, list) else ():
            metric = row.get("metric") if isinstance(row, dict) else None
            if not isinstance(metric, dict):
                continue
            labels = {str(key)[:80]: clean(str(value))[:200] for key, value in list(metric.items())[:64]}
            points = tuple(itertools.islice(_points(row), MOST_POINTS))
            if points:
                yield Series(labels.pop("__name__", ""), labels, points)


def _objects(text: str) -> Iterator[Any]:
    try:
        yield json.loads(text)
        return
    except (ValueError, RecursionError):
        pass
    for line in itertools.islice(lines_of(text, 4_194_304), MOST_SERIES):  # one object a line
        try:
            if line.lstrip()[:1] == "{":
                yield json.loads(line)
        except (ValueError, RecursionError):
            continue


def _points(row: dict[str, Any]) -> Iterator[Point]:
    values, times = row.get("values"), row.get("timestamps")
    pairs: list[Any] = values if isinstance(values, list) else [row.get("value")]
    if isinstance(times, list):
        seconds = [at / 1000 if isinstance(at, (int, float)) else None for at in times]
        pairs = [list(pair) for pair in zip(seconds, pairs, strict=False)]
    for pair in pairs:
        if isinstance(pair, list) and len(pair) == 2 and (value := number(pair[1])) is not None:
            yield number(pair[0]), value


_LEGEND = r"[A-Za-z][\w.-]{1,80}(?::\d{1,5})?"  # a pod, a node, or where its exporter listens


def _csv_heads(line: str) -> list[str]:
    if not line[:8].strip(' "').lower().startswith("time"):
        return []
    cells = next(csv_rows([line[:LONGEST]], ";" if line.count(";") > line.count(",") else ","), [])
    series = cells[1:]
    if series and all("{" in cell for cell in series):
        return cells
    # A legend of names that differ in their number only: pods or nodes.
    shapes = {re.sub(r"\d{1,20}", "#", cell) for cell in series}
    legend = len(series) > 1 and len(shapes) == 1 and all(re.fullmatch(_LEGEND, one) for one in series)
    told = legend and (":" in series[0] or not re.match(r"(?i)(?:rank|gpu|loss|step|epoch|layer|value|col)", series[0]))
    return cells if told else []


def _of_csv(text: str) -> list[Series]:
    """A column a series, as Grafana saves a panel."""
    first, _, rest = text.partition("\n")
    heads = _csv_heads(first)
    mark = ";" if first.count(";") > first.count(",") else ","
    columns: list[list[Point]] = [[] for _ in heads]
    for row in itertools.islice(csv_rows(lines_of(rest, LONGEST), mark), MOST_POINTS):
        at = time_of(row[0]) if row else None
        for place, cell in enumerate(row[: len(heads)]):
            if place and (value := number(cell.strip().rstrip("%"))) is not None:
                columns[place].append((at, value))
    found = []
    for head, points in zip(heads[1:], columns[1:], strict=True):
        name = head.partition("{")[0].strip()
        if points:
            labels = _labels(head) if "{" in head else {"pod": clean(head)[:80]}
            found.append(Series(name if "{" in head and re.fullmatch(_NAME, name) else "", labels, tuple(points)))
    return found
