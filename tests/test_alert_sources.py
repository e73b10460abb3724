"""Programs that may send alerts: the command and the page."""

from __future__ import annotations

import io
import time

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from incidents.models import AlertSource, Fleet, Node
from incidents.services import alert_sources, response
from incidents.services.fleet import Login, Refused, add_nodes
from tests.support.alerts import Sender, alert, body, stalled
from tests.support.fleets import main, person

pytestmark = [pytest.mark.django_db, pytest.mark.database, pytest.mark.usefixtures("rung")]


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
        alert_sources.add_source(main(), "  !! ", None)


def test_the_page_shows_each_source_and_what_could_not_be_placed(client: Client, sender: Sender) -> None:
    alert_sources.add_source(main(), "silent", None)
    sender.post(body(alert(job_name="lost")))
    sender.post(body(stalled()))
    client.force_login(person("vic", "viewer"))
    page = client.get("/fleet/main/alerts").content.decode()
    assert "http://" in page and "/alerts/cluster-1" in page
    assert page.count("last heard") == 1
    assert page.count("never heard") == 1
    assert page.count("<article") == 1, "only the one that could not be placed"
    assert "Alert TrainingStalled of job lost names no nodes" in page
    assert sender.token not in page
    assert "1 alert of the last day could not be placed" in client.get("/incidents/").content.decode()


def test_another_fleets_alerts_are_not_shown(client: Client, sender: Sender) -> None:
    sender.post(body(alert(job_name="lost")))
    client.force_login(person("eve", "admin", Fleet.objects.create(name="theirs")))
    assert client.get("/fleet/main/alerts").status_code == 404
    assert "lost" not in client.get("/fleet/theirs/alerts").content.decode()
    assert "could not be placed" not in client.get("/incidents/").content.decode()


def test_a_hostile_body_is_only_text_on_the_page(client: Client, sender: Sender) -> None:
    sender.post(body(alert("<script>alert(1)</script>\u202e", job_name="lost")))
    client.force_login(person("vic", "viewer"))
    page = client.get("/fleet/main/alerts").content.decode()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\u202e" not in page


def test_a_body_nested_deeply_costs_the_page_little(client: Client, sender: Sender) -> None:
    deep = b'{"alerts": ' + b'{"a": [' * 800 + b"1," * 100_000 + b"1" + b"]}" * 800 + b"}"
    assert sender.post(deep).status_code == 202
    client.force_login(person("vic", "viewer"))
    began = time.monotonic()
    page = client.get("/fleet/main/alerts").content.decode()
    assert time.monotonic() - began < 2, "the reviewer's body took ten seconds"
    assert "its beginning" in page


def test_a_body_that_is_understood_later_is_no_trouble_any_more(client: Client, sender: Sender) -> None:
    sent = body(alert(job_name="llm-70b"))
    sender.post(sent)
    client.force_login(person("vic", "viewer"))
    assert "could not be placed" in client.get("/incidents/").content.decode()
    add_nodes(main(), "gpu-001", Login(), None)
    response.save_job(main(), "llm-70b", list(Node.objects.all()))
    sender.post(sent)
    assert "could not be placed" not in client.get("/incidents/").content.decode()
