"""Log files that people or alerts give: kept with the incident, remembered with the job, asked of the nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from incidents.models import Fleet, Incident, Job, Node, Reading
from incidents.services import response, runs
from incidents.services.fleet import Login, Refused, add_nodes
from incidents.tasks import run_shard
from tests.support.alerts import Sender, alert, body
from tests.support.fleets import main, person
from tests.support.sshd_nodes import Lab

pytestmark = [pytest.mark.django_db, pytest.mark.database]

LOGS = "/logs/run7/*.log"


@pytest.fixture(autouse=True)
def unrung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.current_app, "send_task", lambda *_, **__: None)


@pytest.fixture
def job() -> Job:
    add_nodes(main(), "gpu-[001-002]", Login(), None)
    return response.save_job(main(), "run7", list(Node.objects.all()))


@pytest.fixture
def page(client: Client) -> Client:
    client.force_login(person("rita", "responder"))
    return client


def test_they_are_kept_with_the_incident_and_stand_in_its_timeline(job: Job) -> None:
    incident = response.declare(main(), "run7", None, log_paths=[LOGS, " "])
    assert Incident.objects.get().log_paths == [LOGS]
    assert incident.events.get(kind="declared").payload["log_paths"] == [LOGS]


def test_a_job_gives_those_of_the_last_time_until_it_gets_others(job: Job) -> None:
    assert response.declare(main(), "run7", None).log_paths == []
    response.declare(main(), "run7", None, log_paths=[LOGS])
    assert response.declare(main(), "run7", None).log_paths == [LOGS]
    response.declare(main(), "run7", None, log_paths=["/other/rank0.log"])
    assert response.declare(main(), "run7", None).log_paths == ["/other/rank0.log"]
    assert response.declare(main(), "gpu-001", None).log_paths == [], "nodes without a job remember none"


def test_a_path_that_is_none_opens_nothing_and_is_said_at_its_field(job: Job) -> None:
    with pytest.raises(Refused, match="does not begin with /") as refused:
        response.declare(main(), "run7", None, log_paths=[LOGS, "run7/*.log"])
    assert refused.value.field == "log_paths"
    assert not Incident.objects.exists()
    job.refresh_from_db()
    assert job.log_paths == []


# The page


def test_the_form_takes_one_path_per_line(job: Job, page: Client) -> None:
    said = {"what": "run7", "severity": "2", "log_paths": f"{LOGS}\r\n\r\n/logs/run7/torchrun.out \r\n"}
    assert page.post("/incidents/declare", said).status_code == 302
    assert Incident.objects.get().log_paths == [LOGS, "/logs/run7/torchrun.out"]


def test_the_form_says_what_is_wrong_and_keeps_what_was_typed(job: Job, page: Client) -> None:
    answer = page.post("/incidents/declare", {"what": "run7", "severity": "2", "log_paths": "/etc/shadow\n<b>/x"})
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "no log is read there" in text and "&lt;b&gt;/x" in text and "<b>/x" not in text
    assert not Incident.objects.exists()


def test_without_paths_the_form_is_as_short_as_before(job: Job, page: Client) -> None:
    assert page.post("/incidents/declare", {"what": "run7", "severity": "2"}).status_code == 302
    assert Incident.objects.get().log_paths == []


def test_a_known_job_fills_the_form_in(job: Job, page: Client) -> None:
    response.declare(main(), "run7", None, log_paths=[LOGS, "/x.out"])
    text = page.get("/incidents/declare").content.decode()
    assert f'href="/incidents/declare?job={job.pk}"' in text and LOGS not in text
    filled = page.get(f"/incidents/declare?job={job.pk}").content.decode()
    assert 'value="run7"' in filled and f"{LOGS}\n/x.out</textarea>" in filled


@pytest.mark.parametrize("number", ["0", "", "x", "²", "9" * 30, "-1", "999999"])
def test_a_job_that_is_not_there_fills_nothing_in(job: Job, page: Client, number: str) -> None:
    assert page.get("/incidents/declare", {"job": number}).status_code == 200


def test_the_job_of_a_fleet_that_somebody_is_not_in_fills_nothing_in(job: Job, client: Client) -> None:
    Job.objects.update(log_paths=[LOGS])
    client.force_login(person("eve", "admin", Fleet.objects.create(name="theirs")))
    text = client.get("/incidents/declare", {"job": job.pk}).content.decode()
    assert LOGS not in text and 'value="run7"' not in text


# Alerts


def test_an_alerts_label_and_annotation_give_them(job: Job) -> None:
    one = alert(job_name="run7", node="gpu-001", log_path="/logs/run7/rank_*.log")
    one["annotations"]["log_path"] = f"{LOGS}\n/logs/run7/torchrun.out\n"
    assert Sender().post(body(one)).status_code == 202
    expected = ["/logs/run7/rank_*.log", LOGS, "/logs/run7/torchrun.out"]
    assert Incident.objects.get().log_paths == expected
    job.refresh_from_db()
    assert job.log_paths == expected


def test_an_alert_opens_its_incident_whatever_its_log_paths_are(job: Job) -> None:
    one = alert(job_name="run7", node="gpu-001", log_path="/etc/shadow")
    one["annotations"]["log_path"] = "\n".join(["run7.log", "/logs/\x1b[31m", "/a" * 5000, LOGS, *["/x"] * 4000])
    Sender().post(body(one))
    incident = Incident.objects.get()
    assert incident.log_paths == [LOGS, "/x"]
    notes = " ".join(incident.events.get(kind="declared").payload["alert"]["notes"])
    assert "no log is read there" in notes and "does not begin with /" in notes and "\x1b" not in notes


def test_of_many_paths_in_alerts_the_first_eight_are_taken(job: Job) -> None:
    found = [alert(job_name="run7", node="gpu-001", log_path=f"/logs/{number}.log") for number in range(12)]
    Sender().post(body(*found))
    incident = Incident.objects.get()
    assert incident.log_paths == [f"/logs/{number}.log" for number in range(8)]
    assert "12 log paths; the first 8" in " ".join(incident.events.get(kind="declared").payload["alert"]["notes"])


def test_an_alert_without_them_asks_for_those_of_its_job(job: Job) -> None:
    Job.objects.update(log_paths=[LOGS])
    Sender().post(body(alert(job_name="run7", node="gpu-001")))
    assert Incident.objects.get().log_paths == [LOGS]


# The nodes


@pytest.mark.django_db(transaction=True)
def test_the_nodes_are_asked_for_them(lab: Lab, settings: Any, tmp_path: Path) -> None:
    settings.SSH_CONFIG = str(lab.config)
    lab.start("gpu-001")
    logs = lab.folder / "job"
    logs.mkdir()
    (logs / "rank_7.log").write_text("[rank7]: RuntimeError: CUDA error: unknown error\n")
    incident = response.declare(main(), "gpu-001", None, log_paths=[f"{logs}/*.log"])
    run_shard(incident.runs.get().shards.get().pk)
    reading = Reading.objects.get(probe="rank.log")
    assert reading.outcome == "ok", reading.why
    assert reading.facts["given"] == [{"pattern": f"{logs}/*.log", "fits": 1, "why": ""}]
    assert [finding["code"] for finding in reading.findings] == ["rank.cuda_error"]
