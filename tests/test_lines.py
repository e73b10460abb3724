"""Timeline events as sentences."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from django.utils import timezone

from incidents.models import Event, Incident
from incidents.queries import lines
from incidents.queries.timeline import HIDDEN
from tests.support.fleets import main

SERVICES = Path(__file__).parent.parent / "incidents" / "services"


def told_kinds() -> set[str]:
    """The kinds in every call `tell(incident, "kind", ...)` of the services."""
    found = set()
    for path in SERVICES.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "tell" and len(node.args) > 1:
                assert isinstance(node.args[1], ast.Constant), f"{path.name}:{node.lineno}: a kind is a constant"
                found.add(str(node.args[1].value))
    return found


def test_every_kind_that_is_told_has_a_sentence_or_is_hidden() -> None:
    assert told_kinds() == set(lines.KINDS) | set(HIDDEN)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "payload", "says"),
    [
        (
            "declared",
            {"severity": 1, "job": "llm", "nodes": "gpu-[001-064]"},
            "declared SEV1: job llm on gpu-[001-064]",
        ),
        ("suite_started", {"suite": "capture", "nodes": 1}, "capture suite started on 1 node"),
        ("suite_ended", {"suite": "capture", "answered": 2, "nodes": 3}, "capture ended: 2 of 3 nodes answered"),
        ("suite_ended", {"suite": "capture", "answered": 3, "nodes": 3}, "capture complete: 3 of 3 nodes answered"),
        ("phase", {"of": "capture", "to": "decide", "word": "clear"}, "moved to Decide & act: “clear”"),
        ("overdue", {"phase": "triage"}, "Triage is over its time"),
        ("command", {"before": "ada", "now": "sam"}, "took command, after ada"),
        ("alert", {"source": "prom-a", "says": "NCCLWatchdogTimeout"}, "prom-a: NCCLWatchdogTimeout"),
        (
            "verdict",
            {"cause": "ib.link_down", "says": "Port 1 is down", "probability": 0.934, "change": "first"},
            "Verdict: Port 1 is down (0.93)",
        ),
        (
            "verdict",
            {"cause": "none", "says": "No probe found anything wrong", "probability": 0.9999, "change": "another"},
            "Verdict changed: No probe found anything wrong (over 0.99)",
        ),
        (
            "verdict",
            {"cause": "unknown", "says": "The evidence does not decide", "probability": 0.6, "change": "another"},
            "Verdict changed: The evidence does not decide",
        ),
        (
            "decision",
            {"chosen": "accept", "says": "Port 1 is down", "why": ""},
            "accepted the verdict “Port 1 is down”.",
        ),
        (
            "decision",
            {"chosen": "not this", "says": "Port 1 is down", "why": "it is unplugged on purpose"},
            "says that it is not this: “Port 1 is down”. Why: “it is unplugged on purpose”",
        ),
        ("from_the_future", {}, "from the future"),
    ],
)
def test_an_event_reads_as_a_sentence(kind: str, payload: dict[str, object], says: str) -> None:
    incident = Incident.objects.create(fleet=main(), title="x", t0=timezone.now())
    Event.objects.create(incident=incident, seq=1, kind=kind, at=incident.t0, payload=payload, hash="x")
    assert [line.says for line in lines.lines(incident)] == [says]
