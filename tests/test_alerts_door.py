"""POST /alerts/<source>: who gets in, what is answered, and bodies of all kinds."""

from __future__ import annotations

import json

import pytest
from django.db import OperationalError

from incidents.models import AlertDelivery, AlertSource, Incident, Node
from incidents.services import alert_sources, alerts
from tests.support.alerts import Sender, alert, body, stalled

pytestmark = [pytest.mark.django_db, pytest.mark.database, pytest.mark.usefixtures("rung")]


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
