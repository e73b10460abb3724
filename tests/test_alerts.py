"""Alerts in: stored first, then one incident per job. Alertmanager sends again after a 5xx only, so answers matter."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from incidents.models import Alert, AlertDelivery, AlertSource, Incident, Job, Node
from incidents.queries.timeline import broken_links
from incidents.services import alert_sources, alerts, response, runs
from incidents.services.fleet import Login, Refused, add_nodes

pytestmark = [pytest.mark.django_db, pytest.mark.database]


class Sender:
    """Posts as Alertmanager does, to one source."""

    def __init__(self, name: str = "cluster-1") -> None:
        self.source, self.token = alert_sources.add_source(name, None)
        self.client = Client(enforce_csrf_checks=True)

    def post(self, body: object, token: str | None = None, slug: str = "") -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        authorization = {"Authorization": f"Bearer {self.token if token is None else token}"}
        address = f"/alerts/{slug or self.source.slug}"
        return self.client.post(address, data, content_type="application/json", headers=authorization)


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    rung: list[int] = []
    monkeypatch.setattr(runs.current_app, "send_task", lambda name, args, **_: rung.extend(args))
    return rung


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


def kinds(incident: Incident) -> list[str]:
    return list(incident.events.values_list("kind", flat=True))


# What an alert becomes --------------------------------------------------------------------------------------------


def test_an_alert_opens_an_incident_and_capture_starts_by_itself(
    sender: Sender, rung: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    sent = body(alert(job_name="llm-70b", node="gpu-[001-004]", severity="critical", starts=ago(minutes=7)))
    with django_capture_on_commit_callbacks(execute=True):
        answer = sender.post(sent)
    incident = Incident.objects.get()
    assert (answer.status_code, answer.json()) == (
        202,
        {"happened": "incident", "incidents": [incident.pk], "problem": ""},
    )
    assert (incident.title, incident.severity, str(incident.job)) == ("TrainingStalled on llm-70b", 1, "llm-70b")
    assert sorted(node.name for node in incident.nodes.all()) == ["gpu-001", "gpu-002", "gpu-003", "gpu-004"]
    assert (incident.declared_by, incident.commander) == (None, None), "no person did it: nobody commands yet"
    assert incident.impact_at is not None
    assert incident.t0 - incident.impact_at > timedelta(minutes=6), "T0 is now; what the alert says is impact before it"
    assert rung == list(incident.runs.get().shards.values_list("pk", flat=True))
    assert kinds(incident) == ["declared", "suite_started"]
    said = incident.events.get(kind="declared").payload["alert"]
    assert said["says"] == "fires: TrainingStalled on llm-70b"
    assert (said["source"], said["notes"]) == ("cluster-1", [])
    assert list(broken_links(incident)) == []


def test_what_came_is_kept_to_the_byte(sender: Sender) -> None:
    raw = json.dumps(
        body(stalled(), receiver="golden15", of_a_later_version={"notification_reason": "ä \\u0000"}), indent=3
    )
    sender.post(raw.encode())
    delivery = AlertDelivery.objects.get()
    assert delivery.raw == raw
    assert (delivery.status, delivery.group_key) == ("firing", '{}:{alertname="TrainingStalled"}')


def test_five_hundred_replays_are_one_incident_and_a_counter(sender: Sender) -> None:
    sent = json.dumps(body(stalled())).encode()
    answers = {(answer.status_code, *answer.json()["incidents"]) for answer in (sender.post(sent) for _ in range(501))}
    incident = Incident.objects.get()
    assert answers == {(202, incident.pk)}
    assert kinds(incident) == ["declared", "suite_started"]
    assert AlertDelivery.objects.get().repeats == 500
    assert Alert.objects.get().repeats == 500


def test_a_repeat_with_another_wording_is_still_a_repeat(sender: Sender) -> None:
    one = stalled()
    sender.post(body(one, notification_reason="first notification"))
    sender.post(body(one, notification_reason="repeat interval elapsed"))
    assert AlertDelivery.objects.count() == 2
    assert Alert.objects.get().repeats == 1
    assert kinds(Incident.objects.get()) == ["declared", "suite_started"]


def test_alerts_that_are_added_are_one_event(sender: Sender) -> None:
    first = stalled()
    sender.post(body(first))
    sender.post(body(first, stalled(node="gpu-002", rail="3"), stalled(node="gpu-003", rail="3")))
    incident = Incident.objects.get()
    assert kinds(incident) == ["declared", "suite_started", "alert"]
    said = incident.events.get(kind="alert").payload
    assert ([one["nodes"] for one in said["firing"]], said["alerts"]) == (["gpu-002", "gpu-003"], 2)
    assert Alert.objects.count() == 3


@pytest.mark.parametrize("together", [True, False])
def test_alerts_of_two_jobs_are_two_incidents(sender: Sender, together: bool) -> None:
    both = stalled("llm-70b", "gpu-001"), stalled("vision", "gpu-002")
    for sent in [body(*both)] if together else [body(one) for one in both]:
        assert sender.post(sent).status_code == 202
    assert {str(one.job): one.nodes.get().name for one in Incident.objects.all()} == {
        "llm-70b": "gpu-001",
        "vision": "gpu-002",
    }


def test_two_sources_about_one_job_are_one_incident(sender: Sender) -> None:
    sender.post(body(stalled()))
    Sender("slurm").post(body(stalled(severity="warning")))
    incident = Incident.objects.get()
    assert kinds(incident) == ["declared", "suite_started", "alert"]
    assert sorted(one.source.name for one in incident.alerts.all()) == ["cluster-1", "slurm"]


def test_an_alert_joins_the_incident_that_a_person_declared(sender: Sender) -> None:
    add_nodes("gpu-001", Login(), None)
    response.save_job("llm-70b", list(Node.objects.all()))
    declared = response.declare("llm-70b", None)
    assert sender.post(body(alert(job_name="llm-70b"))).json()["incidents"] == [declared.pk]


def test_resolved_closes_nothing_and_is_one_event(sender: Sender) -> None:
    one = stalled()
    sender.post(body(one))
    over = {**one, "status": "resolved", "endsAt": ago(seconds=1)}
    for _ in range(3):
        assert sender.post(body(over)).status_code == 202
    incident = Incident.objects.get()
    assert incident.closed_at is None
    assert kinds(incident) == ["declared", "suite_started", "alert"]
    said = incident.events.get(kind="alert").payload
    assert said["says"] == "no longer fires: TrainingStalled on llm-70b"
    assert (incident.alerts.get().status, incident.alerts.get().repeats) == ("resolved", 2)
    sender.post(body({**one, "startsAt": ago(seconds=0)}))
    assert kinds(incident)[-2:] == ["alert", "alert"], "it fires again: that is news"


def test_an_alert_that_is_over_opens_nothing(sender: Sender) -> None:
    answer = sender.post(body({**stalled(), "status": "resolved"}))
    assert (answer.status_code, answer.json()["happened"], answer.json()["problem"]) == (202, "stored", "")
    assert not Incident.objects.exists()
    assert AlertDelivery.objects.get().status == "resolved"


def test_after_its_incident_is_closed_an_alert_opens_a_new_one(sender: Sender) -> None:
    sent = body(stalled())
    sender.post(sent)
    Incident.objects.update(closed_at=timezone.now())
    sender.post(sent)
    assert [one.closed_at is None for one in Incident.objects.all()] == [True, False]


def at_once(*posts: Callable[[], Any]) -> list[Any]:
    """The answers to posts of as many threads, each with its own connection to the database."""
    barrier = threading.Barrier(len(posts))

    def one(post: Callable[[], Any]) -> Any:
        try:
            barrier.wait(20)
            return post()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(posts)) as pool:
        return list(pool.map(one, posts))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("known", [True, False], ids=["known before", "new"])
@pytest.mark.parametrize("labels", [{"job_name": "llm-70b"}, {}], ids=["one job", "no job, one node"])
def test_different_alerts_at_once_open_one_incident(labels: dict[str, str], known: bool) -> None:
    if known:
        add_nodes("gpu-[001-070]", Login(), None)
        response.save_job("llm-70b", list(Node.objects.all()))
    posts = []
    for number in range(4):
        sent = body(alert(f"Stalled{number}", node="gpu-[001-070]", **labels))
        posts.append(partial(Sender(f"source-{number}").post, sent))
    answers = at_once(*posts)
    incident = Incident.objects.get()
    assert [(answer.status_code, answer.json()["incidents"]) for answer in answers] == [(202, [incident.pk])] * 4
    assert kinds(incident) == ["declared", "suite_started", "alert", "alert", "alert"]
    assert list(broken_links(incident)) == []
    assert Node.objects.count() == 70


@pytest.mark.django_db(transaction=True)
def test_the_same_body_at_once_from_a_pair_of_alertmanagers_is_one_delivery() -> None:
    sender, sent = Sender(), body(stalled())
    answers = at_once(*[partial(sender.post, sent)] * 6)
    assert [answer.status_code for answer in answers] == [202] * 6
    assert (AlertDelivery.objects.get().repeats, Alert.objects.get().repeats) == (5, 5)
    assert kinds(Incident.objects.get()) == ["declared", "suite_started"]


# Which job, which nodes, since when -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        ({"job_name": "a", "training_job": "b", "job": "dcgm"}, "a"),
        ({"training_job": "b", "job": "dcgm"}, "b"),
        ({"slurm_job_name": "c", "job": "dcgm"}, "c"),
        ({"job_name": "  ", "kubernetes_pod_owner": "d"}, "d"),
        ({"exported_job": "e", "job": "dcgm"}, "e"),
        ({"job": "dcgm"}, "dcgm"),
    ],
)
def test_the_jobs_name_is_looked_for_in_this_order(sender: Sender, labels: dict[str, str], job: str) -> None:
    sender.post(body(alert(node="gpu-001", **labels)))
    incident = Incident.objects.get()
    assert str(incident.job) == job
    notes = incident.events.get(kind="declared").payload["alert"]["notes"]
    assert any("scrape job" in note for note in notes) == (job == "dcgm")


@pytest.mark.parametrize(
    ("labels", "nodes"),
    [
        ({"node": "gpu-003", "instance": "gpu-004:9400"}, ["gpu-003"]),
        ({"nodename": "gpu-003"}, ["gpu-003"]),
        ({"hostname": "gpu-003.cluster.example"}, ["gpu-003"]),
        ({"instance": "gpu-003:9400"}, ["gpu-003"]),
        ({"instance": "10.0.0.3:9400"}, ["gpu-003"]),
        ({"instance": "kube-state-metrics:8080"}, ["gpu-001", "gpu-002"]),
        ({"instance": "localhost:9100"}, ["gpu-001", "gpu-002"]),
        ({"node": "gpu-00[1"}, ["gpu-001", "gpu-002"]),
        ({}, ["gpu-001", "gpu-002"]),
    ],
)
def test_nodes_are_those_the_alert_names_else_those_of_the_job(
    sender: Sender, labels: dict[str, str], nodes: list[str]
) -> None:
    add_nodes("gpu-001\ngpu-002\n10.0.0.3 gpu-003\ngpu-004", Login(), None)
    response.save_job("llm-70b", list(Node.objects.filter(name__in=["gpu-001", "gpu-002"])))
    sender.post(body(alert(job_name="llm-70b", **labels)))
    assert sorted(node.name for node in Incident.objects.get().nodes.all()) == nodes
    assert Node.objects.count() == 4, "nothing was added to the fleet"


def test_an_instance_that_nobody_knows_is_the_last_resort(sender: Sender) -> None:
    sender.post(body(alert(job_name="llm-70b", instance="[fd00::7]:9400")))
    assert Incident.objects.get().nodes.get().name == "fd00::7"


def test_the_sources_own_machine_is_no_node(sender: Sender) -> None:
    sender.post(
        body(*(alert(job_name="j", instance=here) for here in ("localhost:9100", "127.0.0.1:9100", "[::1]:80")))
    )
    assert "names no nodes" in AlertDelivery.objects.get().problem
    assert not Node.objects.exists()


def test_an_alert_without_nodes_waits_with_a_word_on_what_to_do_and_opens_when_they_are_known(sender: Sender) -> None:
    sent = body(alert(job_name="llm-70b"))
    answer = sender.post(sent)
    assert (answer.status_code, answer.json()["happened"], answer.json()["incidents"]) == (202, "stored", [])
    assert "of job llm-70b names no nodes" in AlertDelivery.objects.get().problem
    assert "Give the alert a label node" in AlertDelivery.objects.get().problem
    assert not Job.objects.exists(), "what was not done leaves nothing behind"
    add_nodes("gpu-001", Login(), None)
    response.save_job("llm-70b", list(Node.objects.all()))
    assert sender.post(sent).json()["happened"] == "incident"
    assert AlertDelivery.objects.get().problem == ""


def test_one_job_without_nodes_does_not_hold_up_the_other(sender: Sender) -> None:
    answer = sender.post(body(alert(job_name="lost"), stalled("llm-70b")))
    assert answer.json()["incidents"] == [Incident.objects.get().pk]
    assert "job lost names no nodes" in answer.json()["problem"]


def test_an_alert_without_a_job_joins_the_open_incident_of_its_node(sender: Sender) -> None:
    sender.post(body(stalled(node="gpu-[001-004]")))
    sender.post(body(alert("XidError", node="gpu-003")))
    assert kinds(Incident.objects.get()) == ["declared", "suite_started", "alert"]
    sender.post(body(alert("XidError", node="gpu-009")))
    assert Incident.objects.count() == 2


def test_an_alert_without_job_and_nodes_is_over_in_the_incident_it_belongs_to(sender: Sender) -> None:
    one = alert("XidError", node="gpu-003")
    sender.post(body(one))
    del one["labels"]["node"]
    sender.post(body({**one, "status": "resolved"}))
    assert Incident.objects.get().alerts.get().status == "resolved"


@pytest.mark.parametrize(("severity", "sev"), [("critical", 1), ("CRITICAL", 1), ("warning", 3), ("page", 2), ("", 2)])
def test_severity(sender: Sender, severity: str, sev: int) -> None:
    sender.post(body(stalled(severity=severity)))
    assert Incident.objects.get().severity == sev


@pytest.mark.parametrize(
    ("starts", "word"),
    [
        (-1, "in the future"),
        (25, "over 24 hours ago"),
        ("9999-12-31T23:59:59-10:00", ""),
        ("2026-11-29T17:30:00", ""),
        ("0001-01-01T00:00:00Z", ""),
        ("yesterday", ""),
    ],
)
def test_a_start_that_cannot_be_true_is_not_taken_for_impact(sender: Sender, starts: str | int, word: str) -> None:
    sender.post(body({**stalled(), "startsAt": starts if isinstance(starts, str) else ago(hours=starts)}))
    incident = Incident.objects.get()
    assert incident.impact_at is None
    notes = incident.events.get(kind="declared").payload["alert"]["notes"]
    assert [("clock is suspect" in note, word in note) for note in notes] == ([(True, True)] if word else [])


def test_impact_is_the_earliest_start_that_can_be_true(sender: Sender) -> None:
    starts = [ago(minutes=3), ago(minutes=9), ago(days=3)]
    sender.post(body(*({**stalled(rank=str(rank)), "startsAt": at} for rank, at in enumerate(starts))))
    incident = Incident.objects.get()
    assert incident.impact_at is not None
    assert timedelta(minutes=8) < incident.t0 - incident.impact_at < timedelta(minutes=10)


# Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "wrong", "wröng", "x" * 10_000])
def test_a_wrong_token_is_401_and_stores_nothing(sender: Sender, token: str) -> None:
    answer = sender.post(body(stalled()), token=token.encode().decode("latin-1"))
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    nothing_came_of_it()


def test_no_token_and_another_sources_token_are_401(sender: Sender) -> None:
    other = Sender("slurm")
    assert sender.client.post("/alerts/cluster-1", b"{}", content_type="application/json").status_code == 401
    assert sender.post(body(stalled()), token=other.token).status_code == 401
    basic = {"Authorization": f"Basic {sender.token}"}
    assert sender.client.post("/alerts/cluster-1", b"{}", "application/json", headers=basic).status_code == 401
    nothing_came_of_it()


def nothing_came_of_it() -> None:
    assert not AlertDelivery.objects.exists()
    assert not Incident.objects.exists()
    assert not AlertSource.objects.exclude(last_at=None).exists()


def test_tokens_are_compared_in_constant_time(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr(alert_sources.hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or False)
    assert sender.post(body(stalled())).status_code == 401
    assert compared == [(64, 64)]


def test_an_unknown_source_is_404(sender: Sender) -> None:
    assert sender.post(body(stalled()), slug="nobody").status_code == 404


def test_over_256_kb_is_413(sender: Sender) -> None:
    fits = json.dumps(body(stalled())).encode()
    fits += b" " * (256 * 1024 - len(fits))
    assert sender.post(fits + b" ").status_code == 413
    nothing_came_of_it()
    assert sender.post(fits).status_code == 202


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"status=firing", b"\xff\xfe{}", b'{"a": "\x00"}', b"[" * 200_000 + b"\x00"]
)
def test_what_is_not_json_is_400_and_counted(sender: Sender, raw: bytes) -> None:
    assert sender.post(raw).status_code == 400
    assert not AlertDelivery.objects.exists()
    source = AlertSource.objects.get()
    assert (source.unreadable, source.last_at is None) == (1, False)


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"[]",
        b"17",
        b"NaN",
        b'{"alerts": []}',
        b'{"alerts": [1, null, "x"]}',
        b'{"alerts": {"0": {}}}',
        b"[" * 200_000,
        b'{"alerts": [' + b'{"labels": ' * 30 + b"{}" + b"}" * 30 + b"]}",
        b"9" * 200_000,
    ],
    ids=lambda raw: raw[:24].decode(),
)
def test_json_that_says_nothing_is_kept_with_a_word_on_it(sender: Sender, raw: bytes) -> None:
    answer = sender.post(raw)
    assert (answer.status_code, answer.json()["happened"]) == (202, "stored")
    delivery = AlertDelivery.objects.get()
    assert (delivery.raw, bool(delivery.problem)) == (raw.decode(), True)
    assert "stumbled" not in delivery.problem


@pytest.mark.parametrize(("depth", "read"), [(17, True), (18, False), (5000, False)])
def test_a_body_may_be_twenty_levels_deep(sender: Sender, depth: int, read: bool) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth
    raw = json.dumps(body(stalled(), more="deep")).encode().replace(b'"deep"', b"[" + deep + b"]")
    assert sender.post(raw).json()["happened"] == ("incident" if read else "stored")
    assert ("nested more than 20 levels" in AlertDelivery.objects.get().problem) is not read


@pytest.mark.parametrize("where", ["_store", "_act", "_conclude"])
def test_a_database_failure_is_503_so_that_it_is_sent_again(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OperationalError("database is locked")

    sent = body(stalled())
    with monkeypatch.context() as patch:
        patch.setattr(alerts, where, fail)
        assert sender.post(sent).status_code == 503
    assert AlertDelivery.objects.exists() == (where != "_store"), "what was stored stays stored"
    assert sender.post(sent).json()["incidents"] == [Incident.objects.get().pk]


def test_a_database_that_is_away_from_the_start_is_503(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OperationalError("could not connect to server")

    monkeypatch.setattr(AlertSource.objects, "filter", fail)
    assert sender.post(body(stalled())).status_code == 503


def test_a_mistake_of_ours_loses_nothing_and_is_said(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "open_incident", lambda *args, **kwargs: 1 / 0)
    answer = sender.post(body(stalled()))
    assert (answer.status_code, answer.json()["happened"]) == (202, "stored")
    assert "stumbled over this body and kept it (ZeroDivisionError" in AlertDelivery.objects.get().problem


def test_the_address_takes_no_get(sender: Sender) -> None:
    assert sender.client.get("/alerts/cluster-1").status_code in (403, 405)


# Hostile bodies ---------------------------------------------------------------------------------------------------

HOSTILE = [
    "\x00\x1b[2J\x1b]0;owned\x07",
    "\ud800 lone \udfff",
    "<script>alert(1)</script>",
    "'; DROP TABLE incidents_incident; --",
    "\u202egnp.exe\u200b",
    "line\nbreak\r\n\u2028and\ttab",
    "x" * 15_000,
    "{{ 7 * 7 }}${jndi:ldap://x/}",
    " ",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_survives_everywhere_and_reaches_no_page_uncleaned(sender: Sender, text: str) -> None:
    one = {
        **alert(text, job_name=text, node="gpu-001", severity=text),
        "annotations": {"summary": text, text: text},
        "fingerprint": text,
    }
    one["labels"][text] = text
    answer = sender.post(body(one, groupKey=text, status=text, version=text, unknown={text: [text]}))
    assert (answer.status_code, answer.json()["happened"]) == (202, "incident")
    delivery, incident = AlertDelivery.objects.get(), Incident.objects.get()
    assert json.loads(delivery.raw)["unknown"] == {text: [text]}
    shown = json.dumps([incident.title, str(incident.job), delivery.group_key, incident.alerts.get().name])
    shown += json.dumps(list(incident.events.values_list("payload", flat=True)))
    for bad in ("\\u0000", "\\u001b", "\\ud800", "\\u202e", "\\n", "\\t", "\\u2028"):
        assert bad not in shown
    assert 0 < len(incident.title) <= 200
    assert len(str(incident.job)) <= 200
    assert len(shown) < 8000


def test_labels_of_other_types_do_no_harm(sender: Sender) -> None:
    one = {"status": 7, "labels": ["node"], "annotations": None, "startsAt": 12, "fingerprint": {"a": 1}}
    answer = sender.post(body(stalled(), commonLabels=3, groupLabels=None) | {"alerts": [one, stalled()]})
    assert answer.json()["incidents"] == [Incident.objects.get().pk]


def test_thousands_of_alerts_and_jobs_in_one_body_open_a_few_incidents(sender: Sender) -> None:
    storm = [{"labels": {"job_name": f"j{number}", "node": "n1"}} for number in range(3000)]
    answer = sender.post({"version": "4", "status": "firing", "alerts": storm})
    assert answer.status_code == 202
    assert Incident.objects.count() == 20
    assert "names 1000 jobs; only the first 20" in answer.json()["problem"]


def test_labels_that_name_a_million_nodes_are_refused_quickly(sender: Sender) -> None:
    many = [alert(job_name="j", node=f"n{number}-[1-15000]") for number in range(100)]
    answer = sender.post(body(*many, alert(job_name="j", node="n-[1-999999999]")))
    assert answer.json()["incidents"] == [Incident.objects.get().pk]
    assert Node.objects.count() <= 20_000
    notes = Incident.objects.get().events.get(kind="declared").payload["alert"]["notes"]
    assert notes == ["its labels name more than 20000 nodes; the rest was left out"]


# Sources ----------------------------------------------------------------------------------------------------------


def command(*words: str) -> str:
    out = io.StringIO()
    call_command("alert_source", *words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_the_command_prints_a_token_once_and_keeps_only_its_hash() -> None:
    token = command("add", "Cluster 1").strip()
    source = AlertSource.objects.get()
    assert (source.slug, len(token)) == ("cluster-1", 43)
    assert token not in str(AlertSource.objects.values().get())
    assert alert_sources.may_send(source, token)
    assert token not in command("list")
    assert "never heard" in command("list")


def test_a_new_token_ends_the_old_one_and_a_disabled_source_is_refused(sender: Sender) -> None:
    old = sender.token
    sender.token = command("rotate", "cluster-1").strip()
    assert sender.post(body(stalled()), token=old).status_code == 401
    assert sender.post(body(stalled())).status_code == 202
    assert "last heard 20" in command("list")
    command("disable", "cluster-1")
    assert sender.post(body(stalled())).status_code == 401
    assert "DISABLED" in command("list")
    sender.token = command("rotate", "cluster-1").strip()
    assert sender.post(body(stalled())).status_code == 202


def test_a_source_that_is_there_or_is_not_there_is_said() -> None:
    command("add", "cluster-1")
    with pytest.raises(CommandError, match="There is a source cluster-1 already"):
        command("add", "Cluster 1")
    with pytest.raises(CommandError, match="no alert source slurm. Sources: cluster-1"):
        command("rotate", "slurm")
    with pytest.raises(Refused, match="Give the source a name"):
        alert_sources.add_source("  !! ", None)
