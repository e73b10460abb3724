"""Alerts as Alertmanager 0.2x prints and posts them."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import Client

from incidents.services import alert_sources
from tests.support.fleets import main


class Sender:
    """Posts as Alertmanager does, to one source."""

    def __init__(self, name: str = "cluster-1") -> None:
        self.source, self.token = alert_sources.add_source(main(), name, None)
        self.client = Client(enforce_csrf_checks=True)

    def post(self, body: object, token: str | None = None, slug: str = "") -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        authorization = {"Authorization": f"Bearer {self.token if token is None else token}"}
        address = f"/alerts/{slug or self.source.slug}"
        return self.client.post(address, data, content_type="application/json", headers=authorization)


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat().replace("+00:00", "Z")


def alert(name: str = "TrainingStalled", status: str = "firing", starts: str = "", **labels: str) -> dict[str, Any]:
    """One alert as Alertmanager 0.2x prints it."""
    labels = {"alertname": name, **labels}
    return {
        "status": status,
        "labels": labels,
        "annotations": {"summary": f"{name} on {labels.get('job_name', 'something')}"},
        "startsAt": starts or ago(minutes=2),
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus:9090/graph",
        "fingerprint": hashlib.sha256(repr(sorted(labels.items())).encode()).hexdigest()[:16],
    }


def body(*found: dict[str, Any], **more: object) -> dict[str, Any]:
    firing = any(one["status"] == "firing" for one in found)
    return {
        "version": "4",
        "groupKey": '{}:{alertname="TrainingStalled"}',
        "truncatedAlerts": 0,
        "status": "firing" if firing else "resolved",
        "receiver": "golden15",
        "groupLabels": {"alertname": "TrainingStalled"},
        "commonLabels": {"alertname": "TrainingStalled"},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "alerts": list(found),
        **more,
    }


def stalled(job: str = "llm-70b", node: str = "gpu-[001-004]", **labels: str) -> dict[str, Any]:
    return alert(job_name=job, node=node, **labels)
