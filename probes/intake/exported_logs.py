"""Lines of logs as services export them: each a record in JSON or a row of CSV, with its time and its writer beside it.

Source   aws logs get-log-events and filter-log-events ("events": timestamp, message, logStreamName); Elasticsearch and
         OpenSearch ("hits": "_source"); gcloud logging read (textPayload, jsonPayload, resource.labels); Datadog
         ("data": "attributes"); Loki's query API ("result": "stream", "values"); CSV of Grafana, Kibana and of
         CloudWatch Insights
Units    seconds, milliseconds or nanoseconds since the epoch, or ISO 8601
Shape    lines_in(text) -> the log as text, "" where it is none; lines_of_rows(text) -> the same of CSV
Errors   none
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from probes.catalog.logs.json_lines import TEXTS, TIMES

MOST, DEPTH, LEAST = 1_000_000, 6, 2
MOST_BYTES = 67_108_864
_TEXTS = (*TEXTS, "@message", "body", "content", "Line", "Message", "Log", "event.original")
_TIMES = (*TIMES, "Time", "Date", "date", "@ingestionTime", "tsNs", "receiveTimestamp")
_WRITERS = ("pod", "pod_name", "kubernetes.pod_name", "podName", "Pod", "logStreamName", "@logStream", "instance",
    "hostname", "host", "Host", "node", "container_name")  # fmt: skip
_NODES = ("node", "nodename", "hostname", "host", "Host", "instance", "machine", "server")
_KERNEL = re.compile(
    r"NVRM: |nvidia-nvswitch\d|mlx5_core [0-9a-f]{4}:|\[ {0,6}\d{1,9}\.\d{4,6}\] "
)  # of a node, not of a pod
_INSIDE = ("_source", "attributes", "jsonPayload", "fields", "kubernetes", "resource", "labels", "stream", "metadata")
_NAME = re.compile(r"[A-Za-z0-9][\w./-]{0,100}")


def lines_in(text: str) -> str:
    """Of one JSON value that holds records. One object a line is read without this."""
    if len(text) > MOST_BYTES or not any(f'"{key}"' in text[:65_536] for key in (*_TEXTS, "values")):
        return ""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    records = [one for one, _ in zip(_records(said, {}, DEPTH), range(MOST), strict=False)]
    return _log(records)


def lines_of_rows(text: str) -> str:
    """Of CSV or TSV with a heading that names a column for the text."""
    head = text[:4096].partition("\n")[0]
    if len(text) > MOST_BYTES or not any(key.lower() in head.lower() for key in _TEXTS):
        return ""
    rows = csv.DictReader(io.StringIO(text), delimiter="\t" if head.count("\t") > head.count(",") else ",")
    try:
        return _log([found for row, _ in zip(rows, range(MOST), strict=False) if (found := _record(row))])
    except csv.Error:
        return ""


Record = tuple[str, str, str]  # time, writer, text


def _records(one: Any, around: dict[str, Any], depth: int) -> Iterator[Record]:
    if depth == 0:
        return
    if isinstance(one, list):
        for inner in one:
            yield from _records(inner, around, depth - 1)
    elif isinstance(one, dict):
        values = one.get("values")
        if isinstance(values, list) and isinstance(one.get("stream"), dict):  # Loki
            for pair in values:
                if isinstance(pair, list) and len(pair) > 1 and isinstance(pair[1], str):
                    yield _when(pair[0]), _writer(_flat(one)), pair[1]
        elif found := _record(_flat(one)):
            yield found
        else:
            for inner in one.values():
                if isinstance(inner, list | dict):
                    yield from _records(inner, one, depth - 1)


def _flat(one: dict[str, Any], depth: int = 3) -> dict[str, Any]:
    """What lies in the object, and in those within it that describe it."""
    found = {key: value for key, value in one.items() if not isinstance(value, list | dict)}
    for key in _INSIDE:
        if depth and isinstance(inner := one.get(key), dict):
            found = {**_flat(inner, depth - 1), **found}
    return found


def _record(one: dict[str, Any]) -> Record | None:
    text = next((value for key in _TEXTS if isinstance(value := one.get(key), str)), None)
    if not text:
        return None
    stamp = next((stamp for key in _TIMES if (stamp := _when(one.get(key)))), "")
    if stamp and _KERNEL.match(text) and (node := _writer(one, _NODES)):
        return stamp, node, f"kernel: {text}"
    return (stamp, _writer(one), text) if stamp else None


def _writer(one: dict[str, Any], keys: tuple[str, ...] = _WRITERS) -> str:
    found = next((value for key in keys if isinstance(value := one.get(key), str) and value), "")
    name = _NAME.fullmatch(found)
    return name[0].rpartition("/")[2][:62] if name else ""


def _when(value: Any) -> str:
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 1e9 < value < 1e20:
        seconds = value / (1e9 if value > 1e17 else 1e6 if value > 1e14 else 1e3 if value > 1e11 else 1)
        if seconds < 1e11:
            return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, str) and re.match(r"20\d\d-\d\d-\d\d[ T]\d\d:\d\d", value):
        return value[:40].replace(" ", "T", 1)
    return ""


def _log(records: list[Record]) -> str:
    """The lines in their order: services often tell the newest first."""
    if len(records) < LEAST:
        return ""
    if records[0][0] > records[-1][0]:
        records = records[::-1]
    rows = []
    for stamp, writer, text in records:
        front = (
            f"{stamp} {writer} " if text.startswith("kernel: ") else f"[{writer}] {stamp} " if writer else f"{stamp} "
        )
        rows += [f"{front}{line}" for line in text.rstrip("\n").split("\n")[:10_000]]
    return "\n".join(rows) + "\n"
