"""What a webhook body of Alertmanager says, as plain values. Pure: text in, values out; no database.

Source: Alertmanager's template.Data and notify/webhook (version "4"). Grafana posts the same shape. Bodies are hostile:
depth and number are limited, and every text is cleaned here, once, before anybody shows or stores it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from probes.core import clean

MOST_DEPTH = 20
MOST_ALERTS = 1000  # read of one body; 256 KB of real alerts are fewer
VERSION = "4"

# Where a job's name is looked for, first hit wins.
JOB_LABELS = (
    "job_name",  # what docs/alerts.md asks for
    "training_job",
    "slurm_job_name",
    "label_training_kubeflow_org_job_name",  # Kubeflow's pod label, as kube-state-metrics exports it
    "training_kubeflow_org_job_name",
    "kubernetes_pod_owner",
    "exported_job",  # a target's own `job`, renamed by Prometheus because it sets `job` itself
    "job",  # Prometheus' scrape job, such as dcgm-exporter: hardly ever the training job, so last, and said
)
SCRAPE_JOB = "job"
# Where a node's name is looked for. `instance` is what was scraped, which need not run on the node: see services.
NODE_LABELS = ("node", "nodename", "hostname")
INSTANCE = "instance"
LOG_PATH = "log_path"  # a label or an annotation: patterns of log files, one per line
MOST_LOG_PATHS = 20  # lines that are looked at; fewer are taken
SEVERITIES = {"critical": 1, "warning": 3}
SEVERITY_ELSE = 2


class NotJson(ValueError):
    """The body is not JSON at all."""


class NotUnderstood(ValueError):
    """It is JSON, but nothing that can be acted on. The text is for people: what, and what to do."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One alert. Texts are clean, on one line and short; `nodes` is as the label has it, maybe folded."""

    fingerprint: str
    name: str
    summary: str
    firing: bool
    severity: int
    job: str
    job_label: str
    nodes: str
    instance: str
    started_at: datetime | None
    log_paths: tuple[str, ...] = ()  # as they came, to be checked by whoever uses them


@dataclass(frozen=True, slots=True)
class Body:
    """A whole body. `notes` are sentences for people about what was odd in it."""

    group_key: str
    status: str
    signals: tuple[Signal, ...]
    notes: tuple[str, ...]


def decoded(raw: bytes) -> str:
    """The body as text. Raises NotJson when it is not UTF-8 or holds a NUL, which no JSON does (RFC 8259)."""
    if b"\0" in raw:
        raise NotJson("the body is not JSON")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise NotJson("the body is not UTF-8") from error


def parsed(text: str) -> Any:
    """The JSON value. Raises NotJson, and NotUnderstood when it is nested too deeply to be read."""
    try:
        value = json.loads(text, parse_int=_number)
    except RecursionError as error:
        raise NotUnderstood(_TOO_DEEP) from error
    except ValueError as error:
        raise NotJson("the body is not JSON") from error
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return value
    raise NotUnderstood(_TOO_DEEP)


_TOO_DEEP = f"The body is nested more than {MOST_DEPTH} levels deep; it was kept, and nothing of it was read."


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) < 19 else float(digits)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def read(value: Any) -> Body:
    """A body's alerts. Raises NotUnderstood with what to do."""
    alerts = value.get("alerts") if isinstance(value, dict) else None
    if not isinstance(alerts, list) or not any(isinstance(alert, dict) for alert in alerts):
        raise NotUnderstood(
            "The body has no list of alerts. Let Alertmanager post its own body (version 4), not a payload template's."
        )
    notes = []
    if (version := line(value.get("version"), 20)) != VERSION:
        notes.append(f"the body says version {version!r}, read as version {VERSION}")
    if len(alerts) > MOST_ALERTS:
        notes.append(f"only {MOST_ALERTS} of its {len(alerts)} alerts were read")
    left_out = value.get("truncatedAlerts")
    if isinstance(left_out, int | float) and left_out > 0:
        notes.append(f"the source left out {left_out:.0f} more alerts (max_alerts)")
    status = line(value.get("status"), 20)
    found: dict[str, Signal] = {}
    for alert in alerts[:MOST_ALERTS]:
        if isinstance(alert, dict):
            signal = _signal(alert, value, status)
            found.setdefault(signal.fingerprint, signal)
    return Body(line(value.get("groupKey"), 300), status, tuple(found.values()), tuple(notes))


def _signal(alert: Mapping[str, Any], body: Mapping[str, Any], status: str) -> Signal:
    labels = {**_texts(body.get("groupLabels")), **_texts(body.get("commonLabels")), **_texts(alert.get("labels"))}
    words = {**_texts(body.get("commonAnnotations")), **_texts(alert.get("annotations"))}
    job_label = next((name for name in JOB_LABELS if line(labels.get(name), 200)), "")
    node_label = next((name for name in NODE_LABELS if line(labels.get(name), 200)), "")
    name = line(labels.get("alertname"), 200) or "alert without a name"
    return Signal(
        fingerprint=line(alert.get("fingerprint"), 64) or _fingerprint(labels),
        name=name,
        summary=line(words.get("summary"), 200) or name,
        firing=(line(alert.get("status"), 20) or status) != "resolved",
        severity=SEVERITIES.get(labels.get("severity", "").strip().lower(), SEVERITY_ELSE),
        job=line(labels.get(job_label), 200),
        job_label=job_label,
        nodes=line(labels.get(node_label), 4000),
        instance="" if node_label else _without_port(line(labels.get(INSTANCE), 300)),
        started_at=_time(alert.get("startsAt")),
        log_paths=_lines(labels.get(LOG_PATH)) + _lines(words.get(LOG_PATH)),
    )


def line(value: Any, most: int) -> str:
    """Text or a number of a body as one clean line of at most `most` characters; "" for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = " ".join(clean(str(value)[: 4 * most]).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _lines(text: str | None) -> tuple[str, ...]:
    return tuple(row.strip() for row in (text or "")[:16_384].split("\n")[:MOST_LOG_PATHS] if row.strip())


def _texts(value: Any) -> dict[str, str]:
    """A map of labels or annotations; whatever in it is not text is left out."""
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}


def _fingerprint(labels: Mapping[str, str]) -> str:
    return "ours-" + hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16]


_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):\d{1,5}")


def _without_port(instance: str) -> str:
    """`gpu-7:9400` and `[fd00::7]:9400` without port and brackets; a bare IPv6 address stays whole."""
    match = _PORT.fullmatch(instance)
    return (match[1] or match[2]) if match else instance.strip("[]")


def _time(value: Any) -> datetime | None:
    """An RFC 3339 time with its zone, in UTC; None for anything else, and for Go's zero time."""
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None and at.year > 1 else None
    except (TypeError, ValueError, OverflowError):
        return None
