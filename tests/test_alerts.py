"""What becomes of an alert: incidents opened and joined, nodes found, repeats counted."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from incidents.models import Alert, AlertDelivery, Incident, Job, Node
from incidents.queries.timeline import broken_links
from incidents.services import response
from incidents.services.fleet import Login, add_nodes
from tests.support.alerts import Sender, ago, alert, body, stalled
from tests.support.fleets import main

pytestmark = [pytest.mark.django_db, pytest.mark.database, pytest.mark.usefixtures("rung")]


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
    add_nodes(main(), "gpu-001", Login(), None)
    response.save_job(main(), "llm-70b", list(Node.objects.all()))
    declared = response.declare(main(), "llm-70b", None)
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
        add_nodes(main(), "gpu-[001-070]", Login(), None)
        response.save_job(main(), "llm-70b", list(Node.objects.all()))
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
    add_nodes(main(), "gpu-001\ngpu-002\n10.0.0.3 gpu-003\ngpu-004", Login(), None)
    response.save_job(main(), "llm-70b", list(Node.objects.filter(name__in=["gpu-001", "gpu-002"])))
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
    add_nodes(main(), "gpu-001", Login(), None)
    response.save_job(main(), "llm-70b", list(Node.objects.all()))
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
